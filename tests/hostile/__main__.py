"""python -m tests.hostile: let a hostile user loose on a `voda up` of root, beside an honest one; needs root.

Rule: exit status 0 means that every claim held; the evidence stays under --out either way.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.hostile.attacks import ATTACKS
from tests.hostile.run import Wanted, run
from tests.hostile.verdict import SERVED_WITHIN_S


def main(words: Sequence[str]) -> int:
    """Run once, print figures and what broke, and return the exit status."""
    options = _options(words)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    if os.geteuid() != 0:
        console.print("skipped: to be other users takes root")
        return 0
    console.print(f"Seed {options.seed}: {options.seconds:g} s of {', '.join(options.attack or ATTACKS)}")
    wanted = Wanted(
        seconds=options.seconds,
        seed=options.seed,
        folder=options.out,
        attacks=tuple(options.attack or ATTACKS),
        within_s=options.within,
    )
    outcome = run(wanted, console.print)
    for name, figure in outcome.figures.items():
        console.print(f"{name:30} {figure}")
    for claim, found in outcome.broken.items():
        for what in found:
            console.print(f"BROKEN: {claim}: {what}")
    is_broken = any(outcome.broken.values())
    console.print(f"Evidence: {options.out}; again: python -m tests.hostile --seed {options.seed}" if is_broken else "")
    return int(is_broken)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, start and end not counted")
    parser.add_argument("--seed", type=int, default=1, help="of chance")
    parser.add_argument("--attack", action="append", choices=tuple(ATTACKS), help="may be repeated; by default all")
    parser.add_argument("--within", type=float, default=SERVED_WITHIN_S, metavar="S", help="p99 that is borne")
    parser.add_argument("--out", type=Path, default=Path("out/hostile"), help="where the evidence goes")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

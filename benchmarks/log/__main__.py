"""`python -m benchmarks.log [NAME ...]`: take every figure of the log, or those whose name contains a NAME.

A figure is a module with `TITLE` and `run(options) -> Sequence[Row]`. Goals are reported, never enforced: machines are
noisy, so compare the ratios.
"""

import argparse
import importlib
import signal
import sys

import uvloop

from benchmarks.log.options import Options
from benchmarks.table import Row, show

FIGURES = ("append", "postgres", "tail", "start", "failover", "simulated")


def main(arguments: list[str]) -> None:
    """Take the figures that are asked for, one after the other, and say how many goals are met."""
    names, options = _parsed(arguments)
    chosen = [name for name in FIGURES if not names or any(part in name for part in names)]
    if not chosen:
        sys.exit(f"there is no figure {' or '.join(names)}: expected some of {', '.join(FIGURES)}, or nothing")
    # Whoever ends it by the usual signal leaves no process behind either.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    rows: list[Row] = []
    for name in chosen:
        module = importlib.import_module(f"benchmarks.log.{name}")
        print(f"taking {name} ...", file=sys.stderr, flush=True)
        # On the event loop that voda itself runs on.
        measured = uvloop.run(module.run(options))
        show(measured, module.TITLE)
        rows += measured
    judged = [row for row in rows if row.is_met is not None]
    print(f"{sum(bool(row.is_met) for row in judged)} of {len(judged)} goals met")


def _parsed(arguments: list[str]) -> tuple[list[str], Options]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.log", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}; by default all")
    parser.add_argument("--scale", type=float, default=1.0, help="share of events and tries; 1 = as the goals say")
    parser.add_argument("--store", action="append", default=[], help="sqlite, postgres or jetstream; by default all")
    found = parser.parse_args(arguments)
    return found.names, Options(scale=found.scale, stores=tuple(found.store))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Takes figures: modules with `TITLE` and `run(options) -> Sequence[Row]`.

Rule: goals are reported, never enforced: machines are noisy, so compare the ratios.
"""

import importlib
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from benchmarks.table import Row, show

Runner = Callable[[Coroutine[Any, Any, Sequence[Row]]], Sequence[Row]]


def chosen(names: Sequence[str], figures: Sequence[str]) -> Sequence[str]:
    """Return the figures whose name contains one of the names; without names, all.

    Raises:
        SystemExit: there is none.
    """
    found = [figure for figure in figures if not names or any(part in figure for part in names)]
    if not found:
        sys.exit(f"there is no figure {' or '.join(names)}: expected some of {', '.join(figures)}, or nothing")
    return found


def take(package: str, figures: Sequence[str], options: object, runner: Runner) -> None:
    """Take figures one after the other, and say how many goals are met.

    Args:
        package: of the figures' modules.
        figures: their names.
        options: for each of them.
        runner: runs a coroutine, such as asyncio.run.
    """
    # Whoever ends it by the usual signal leaves no process behind either.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    rows: list[Row] = []
    for name in figures:
        module = importlib.import_module(f"{package}.{name}")
        print(f"taking {name} ...", file=sys.stderr, flush=True)
        measured = runner(module.run(options))
        show(measured, module.TITLE)
        rows += measured
    judged = [row for row in rows if row.is_met is not None]
    print(f"{sum(bool(row.is_met) for row in judged)} of {len(judged)} goals met")

"""How many hours of the whole control plane are simulated in a minute, all faults injected, all invariants held."""

from collections.abc import Sequence
from contextlib import closing
from time import perf_counter

from benchmarks.log.options import Options
from benchmarks.table import Row
from tests.dst.search import Plan, Totals, search

TITLE = "Deterministic simulation"
_SEEDS = 24
_PROCESSES = 2
_HOURS = 8.0
_QUIET_HOURS = 4.0
"""Of them at the end, without faults; as `make dst` has it."""


async def run(options: Options) -> Sequence[Row]:
    """Return simulated hours per minute of wall time."""
    plan, totals = Plan(hours=_HOURS, quiet_s=_QUIET_HOURS * 3600), Totals()
    begun = perf_counter()
    with closing(search(range(options.scaled(_SEEDS, _PROCESSES)), plan, jobs=_PROCESSES)) as found:
        for one in found:
            totals.add(one)
    took_s = perf_counter() - begun
    return [
        Row(
            what=f"{totals.seeds} seeds in {_PROCESSES} processes, {len(totals.failed)} of which broke an invariant",
            figure=totals.virtual_s / 3600 / (took_s / 60),
            unit="h/min",
            goal=200.0,
            better="higher",
        )
    ]

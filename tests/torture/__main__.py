"""python -m tests.torture: kill, stop and cut off real processes, and prove that nothing was lost.

Rule: exit status 0 means that every claim held on every store; the evidence stays under --out either way.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.torture.chaos import Tally
from tests.torture.run import Outcome, Wanted, torture
from tests.torture.servers import STORES

KILLS = {"sqlite": 1_000, "postgres": 300, "jetstream": 300}
_STEP = 50
"""Kills between two lines where there is no terminal."""


def main(words: Sequence[str]) -> int:
    """Torture the stores one after the other, print a table, and return the exit status."""
    options = _options(words)
    console = Console(highlight=False, soft_wrap=True)
    outcomes: dict[str, Outcome] = {}
    for store in options.store or STORES:
        wanted = Wanted(
            store=store,
            kills=options.kills or (KILLS[store] if options.seconds is None else 1_000_000),
            seconds=options.seconds,
            seed=options.seed,
            folder=options.out / store,
        )
        try:
            outcomes[store] = asyncio.run(_shown(wanted, console))
        except (RuntimeError, asyncio.CancelledError) as error:
            console.print(
                f"{store}: broken off: {str(error) or 'told to end'}; evidence: {wanted.folder}", markup=False
            )
            return 1
    console.print(_table(outcomes))
    for store, outcome in outcomes.items():
        for line in outcome.broken:
            console.print(f"{store}: {line}", markup=False)
    broken = [store for store, outcome in outcomes.items() if outcome.broken]
    console.print(f"Evidence: {options.out}" + (f"; violations on {', '.join(broken)}" if broken else ""))
    return 1 if broken else 0


async def _shown(wanted: Wanted, console: Console) -> Outcome:
    this = asyncio.current_task()
    assert this is not None, "run by asyncio.run"
    # As Ctrl-C does: nothing that was started stays.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"{wanted.store}: kills", total=wanted.kills)
        told = 0

        def tell(tally: Tally) -> None:
            nonlocal told
            progress.update(task, completed=tally.kills)
            if not console.is_terminal and tally.kills >= told + _STEP:
                told = tally.kills
                console.print(f"{wanted.store}: {tally.kills} kills")

        return await torture(wanted, tell)


def _table(outcomes: dict[str, Outcome]) -> Table:
    table = Table(title="Torture")
    table.add_column("")
    for store in outcomes:
        table.add_column(store, justify="right")
    for name, shown in _ROWS.items():
        table.add_row(name, *(shown(outcome) for outcome in outcomes.values()))
    return table


def _figure(name: str) -> Callable[[Outcome], str]:
    return lambda outcome: f"{outcome.figures[name]:,}"


_ROWS: Mapping[str, Callable[[Outcome], str]] = {
    "kills": lambda outcome: f"{outcome.tally.kills:,}",
    "stops": lambda outcome: f"{outcome.tally.stops:,}",
    "ills of servers and links": lambda outcome: f"{outcome.tally.ills.total():,}",
    "starts given up for want of the log": lambda outcome: f"{outcome.tally.tries_again:,}",
    **{f"{name} in the log": _figure(name) for name in ("events", "jobs", "plans", "leaders")},
    "operations of clients": _figure("operations"),
    "  acknowledged": _figure("acknowledged"),
    "  tried again": _figure("retried"),
    "requests of unknown outcome": _figure("unknown"),
    "took": lambda outcome: f"{outcome.wall_s:,.0f} s",
    "claims proven": lambda outcome: f"{sum(not found for found in outcome.findings.values())}",
    "claims broken": lambda outcome: f"{sum(bool(found) for found in outcome.findings.values())}",
}


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--store", action="append", choices=STORES, help="may be repeated; by default all")
    parser.add_argument("--kills", type=int, default=0, help="per store; by default 1,000 or 300")
    parser.add_argument("--seconds", type=float, help="so long per store, however many kills that are")
    parser.add_argument("--seed", type=int, default=1, help="of chance")
    parser.add_argument("--out", type=Path, default=Path("out/torture"), help="where the evidence goes")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

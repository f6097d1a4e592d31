"""`voda explain`: why a job has what it has, and why it waits."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli._log import LOG, MOMENT, Output, opened, place_of

if TYPE_CHECKING:
    from voda.events.store import EventStore
    from voda.timetravel.explanation import Explanation
    from voda.timetravel.moment import Place

_HELP = """
Explain why a job has what it has, or waits; of a job that ended, the story.

The reason is not looked up: the policy is asked again with the state of that
moment. A waiting job is told what it lacks, what would let it start, and when
it is expected to start.

\b
Examples:
  voda explain voda.db resnet-7
  voda explain out/mine/elastic-fifo/log.jsonl vgg16-19 --at +30m
  voda explain voda.db resnet-7 --at 2026-01-31T12:00:00Z -o json
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("explain", help=_HELP)(explain)


def explain(
    log: Annotated[str, typer.Argument(help=LOG)],
    job: Annotated[str, typer.Argument(help="The job's id.")],
    at: Annotated[str, typer.Option("--at", help=f"At {MOMENT}; by default the end.")] = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="For people or for programs.")] = Output.TABLE,
) -> None:
    """Explain one job."""
    import msgspec
    from rich.console import Console

    from voda.cli._explanation import explanation_text

    told = asyncio.run(_explain(log, job, at))
    if output is Output.JSON:
        print(msgspec.json.encode(told).decode())
    else:
        Console(highlight=False).print(explanation_text(told))


async def _explain(log: str, job: str, at: str) -> "Explanation":
    from voda.timetravel.witness import explain

    async with opened(log) as store:
        place = await place_of(store, at)
        told = await explain(store, job, place)
        return await _with_outlook(store, told, place) if told.shortage and not told.nodes else told


async def _with_outlook(store: "EventStore", told: "Explanation", place: "Place") -> "Explanation":
    from msgspec.structs import replace

    from voda.simulator.whatif.outlook import expected_start

    start_at = await expected_start(store, told.job_id, place.position, pool=told.pool)
    return replace(told, expected_start_at=start_at)

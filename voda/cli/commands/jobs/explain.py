"""`voda explain`: why a job has what it has, and why it waits."""

from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.completion import all_jobs
from voda.cli.log.open import MOMENT, Output, is_log, opened, place_of
from voda.cli.options import Where, asks_server

if TYPE_CHECKING:
    from voda.log.store import EventStore
    from voda.timetravel.explanation import Explanation
    from voda.timetravel.moment import Place

_HELP = """
Explain why a job has what it has, or waits; of a job that ended, the story.

The reason is not looked up: the policy is asked again with the state of that
moment. A waiting job is told what it lacks, what would let it start, and when
it is expected to start. A job alone is asked of the server; with a log before
it, the log is read.

\b
Examples:
  voda explain resnet-7
  voda explain voda.db resnet-7
  voda explain out/mine/elastic-fifo/log.jsonl vgg16-19 --at +30m
  voda explain resnet-7 --at 2026-01-31T12:00:00Z -o json
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("explain", help=_HELP)(asks_server(explain))


def explain(
    where: Where,
    asked: Annotated[
        list[str],
        typer.Argument(metavar="[LOG] JOB", help="The job's id, after the log to be read.", autocompletion=all_jobs),
    ],
    at: Annotated[str, typer.Option("--at", help=f"At {MOMENT}; by default the end.")] = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="For people or for programs.")] = Output.TABLE,
) -> None:
    """Explain one job."""
    from voda.domain.errors import InvalidInput

    if len(asked) > 2:
        raise InvalidInput(f"one job is explained at a time: expected JOB or LOG JOB, got {' '.join(asked)[:200]!r}")
    if len(asked) == 1 and is_log(asked[0]):
        raise InvalidInput(f"which job of {asked[0][:200]}? expected: voda explain LOG JOB")
    if len(asked) == 2:
        _show_recorded(*asked, at=at, output=output)
    else:
        _show_asked(where, asked[0], at=at, output=output)


def _show_asked(where: Where, job: str, *, at: str, output: Output) -> None:
    from voda.api.schemas.explanations import ExplanationView
    from voda.cli.http.client import answered, decoded, path
    from voda.cli.render.explanation import explanation_text
    from voda.cli.render.stdout import console, print_bytes
    from voda.cli.render.times import full, now

    body = answered(where, lambda client: client.get(path("jobs", job, "explain"), {"at": at} if at else None))
    if output is Output.JSON:
        print_bytes(body)
    else:
        present = now()
        console().print(explanation_text(decoded(body, ExplanationView), lambda instant: full(instant, present)))


def _show_recorded(log: str, job: str, *, at: str, output: Output) -> None:
    import asyncio

    import msgspec

    from voda.api.presenters.explanations import explanation_of
    from voda.cli.render.explanation import explanation_text
    from voda.cli.render.stdout import console

    told = asyncio.run(_explain(log, job, at))
    if output is Output.JSON:
        print(msgspec.json.encode(told).decode())
    else:
        console().print(explanation_text(explanation_of(told, expected_start_at=told.expected_start_at)))


async def _explain(log: str, job: str, at: str) -> "Explanation":
    from voda.timetravel.job_explanation import explain

    async with opened(log) as store:
        place = await place_of(store, at)
        told = await explain(store, job, place)
        return await _with_outlook(store, told, place) if told.shortage and not told.nodes else told


async def _with_outlook(store: "EventStore", told: "Explanation", place: "Place") -> "Explanation":
    from msgspec.structs import replace

    from voda.simulator.whatif.outlook import expected_start

    start_at = await expected_start(store, told.job_id, place.position, pool=told.pool)
    return replace(told, expected_start_at=start_at)

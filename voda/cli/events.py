"""`voda events`: what happened, one line per event."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from voda.cli._log import EMPTY, LOG, MOMENT, Output, opened, place_of

if TYPE_CHECKING:
    from voda.events.envelope import Event
    from voda.events.store import EventStore

_HELP = """
Tell what happened, a line per event: position, time, whom it concerns, what.

\b
Examples:
  voda events out/mine/elastic-fifo/log.jsonl
  voda events voda.db --job resnet-7 --relative
  voda events voda.db --type plan.adopted --from -1h -o json
  voda events voda.db --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z
  voda events voda.db --follow
"""


class _Part(NamedTuple):
    """Which part of the log was asked for, as the user wrote it."""

    job: str
    begin: str
    end: str
    follow: bool


class _Lines:
    """Prints the events that were asked for."""

    def __init__(self, *, job: str, types: Sequence[str], output: Output) -> None:
        self.count = 0
        self._job = job
        self._types = frozenset(types)
        self._output = output
        self.begins_at: float | None = None
        """Times are told since then; None = as times of day."""

    def show(self, event: "Event") -> None:
        """Print the event, if it was asked for."""
        from voda.timetravel.story import jobs_of

        if (self._types and event.type not in self._types) or (self._job and self._job not in jobs_of(event.data)):
            return
        self.count += 1
        print(_as_json(event) if self._output is Output.JSON else self._text(event), flush=True)

    def _text(self, event: "Event") -> str:
        from voda.timetravel.moment import elapsed, rfc3339
        from voda.timetravel.story import describe, subject_of

        at = event.recorded_at
        time = rfc3339(at, decimals=3) if self.begins_at is None else elapsed(at - self.begins_at)
        return f"{event.position:>6} {time} {subject_of(event)}: {describe(event)}"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("events", help=_HELP)(events)


def events(  # noqa: PLR0913 - a command's options are its parameters
    log: Annotated[str, typer.Argument(help=LOG)],
    job: Annotated[str, typer.Option("--job", "-j", help="Only events about this job, plans included.")] = "",
    kind: Annotated[
        list[str] | None, typer.Option("--type", "-t", help="Only events of this type; repeatable.")
    ] = None,
    begin: Annotated[str, typer.Option("--from", help=f"Begin at {MOMENT}.")] = "",
    end: Annotated[str, typer.Option("--to", help="End there; as --from.")] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with events to come, until interrupted.")
    ] = False,
    relative: Annotated[bool, typer.Option("--relative", "-r", help="Times since the log's first event.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="For people or for programs.")] = Output.TABLE,
) -> None:
    """Print the events asked for."""
    from voda.domain.catalogue import chosen
    from voda.domain.errors import InvalidInput
    from voda.timetravel.story import TYPES

    types = [chosen(one, TYPES, what="event type").TYPE for one in kind or ()]
    if follow and end:
        raise InvalidInput("--follow and --to exclude each other: either there is an end, or there is none")
    lines = _Lines(job=job, types=types, output=output)
    try:
        asyncio.run(_print(log, lines, _Part(job=job, begin=begin, end=end, follow=follow), relative=relative))
    except BrokenPipeError:
        # The reader has seen enough, as `head` does; what is still buffered must not be written either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _print(log: str, lines: _Lines, part: "_Part", *, relative: bool) -> None:
    from voda.timetravel.moment import recorded_at
    from voda.timetravel.witness import unknown_job

    async with opened(log) as store:
        if part.job and not part.follow and not (await store.head(f"job.{part.job}")).version:
            raise await unknown_job(store, part.job)
        lines.begins_at = await recorded_at(store, 1) if relative else None
        async for event in _asked(store, part):
            lines.show(event)
        if not lines.count:
            print("No such event in this part of the log." if await store.position() else EMPTY, file=sys.stderr)


async def _asked(store: "EventStore", part: "_Part") -> "AsyncIterator[Event]":
    from voda.domain.errors import InvalidInput
    from voda.events.memory import MemoryStore
    from voda.timetravel.moment import find, parsed
    from voda.timetravel.past import events_between

    after = (await find(store, parsed(part.begin), before=True)).position if part.begin else 0
    if part.follow:
        if isinstance(store, MemoryStore):
            raise InvalidInput("--follow needs a log that grows: this is an exported file, name the database instead")
        async for event in store.tail(after):
            yield event
    async for event in events_between(store, after=after, until=(await place_of(store, part.end)).position):
        yield event


def _as_json(event: "Event") -> str:
    import msgspec

    from voda.timetravel.moment import rfc3339
    from voda.timetravel.story import describe

    fields = {**msgspec.structs.asdict(event), "recorded_at": rfc3339(event.recorded_at), "what": describe(event)}
    return msgspec.json.encode(fields).decode()

"""`voda events`: what happened, one line per event; from the server, or from a log."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from voda.cli.command_group import command
from voda.cli.completion import all_jobs
from voda.cli.execution import run_async
from voda.cli.log_files import EMPTY, LOG, MOMENT, LogOutputOption, is_log, open_log, place_of, print_json
from voda.cli.options import JOB_HELP, ServerOptions
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.cli.http.client import Client
    from voda.cli.http.remote_log import RemoteEvent, RemoteLog
    from voda.events.envelope import Event
    from voda.log.store import EventStore

_LAST = 100
"""Events of a server's log shown by default."""
_NOTHING = "No such event in this part of the log."


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSelection:
    job: Annotated[
        str, Option("--job", "-j", help="Only events about this job, plans included.", autocompletion=all_jobs)
    ] = ""
    types: Annotated[list[str] | None, Option("--type", "-t", help="Only events of this type; repeatable.")] = None
    begin: Annotated[str, Option("--from", help=f"Begin at {MOMENT}.")] = ""
    end: Annotated[str, Option("--to", help="End there; as --from.")] = ""
    follow: Annotated[
        bool, Option("--follow", "-f", "--watch", "-w", help="Keep printing new events until interrupted.")
    ] = False
    relative: Annotated[bool, Option("--relative", "-r", help="Print times relative to the log's first event.")] = False
    output: LogOutputOption = "table"


@command("events")
def events(
    where: ServerOptions,
    part: EventSelection,
    log: Annotated[
        str,
        Argument(
            metavar="[LOG|JOB]",
            help=f"{LOG} Else a job: {JOB_HELP}",
            autocompletion=all_jobs,
        ),
    ] = "",
) -> None:
    """List events, one per line: position, time, subject, what happened.

    Without a log, they come from the server: the last 100 by default.

    \b
    Examples:
      voda events
      voda events --watch
      voda events resnet-7
      voda events voda.db --job resnet-7 --relative
      voda events voda.db --type plan.adopted --from -1h -o json
      voda events voda.db --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z
      voda events out/mine/elastic-fifo/log
    """
    from voda.cli.http.client import call_server
    from voda.domain.plugins import chosen
    from voda.events.event_text import TYPES

    part = replace(part, types=[chosen(one, TYPES, what="event type").TYPE for one in part.types or ()])
    if part.follow and part.end:
        raise InvalidInput("--follow and --to exclude each other: give one of them")
    if log and part.job and not is_log(log):
        raise InvalidInput(f"{log[:200]!r} is no log: there is no such file; leave it out to ask the server")
    try:
        if is_log(log):
            run_async(_print_recorded(log, part))
        else:
            part = replace(part, job=part.job or log)
            call_server(where, lambda client: _print_server_events(client, part))
    except BrokenPipeError:
        # The reader has seen enough, as `head` does; what is still buffered must not be written either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _print_recorded(log: str, part: EventSelection) -> None:
    from msgspec.structs import asdict

    from voda.cli.render.awaited_starts import AwaitedStarts
    from voda.events.event_text import describe, jobs_of, subject_of
    from voda.timetravel.job_explanation import job_named, unknown_job
    from voda.timetravel.moment import elapsed, recorded_at, rfc3339

    count, starts = 0, AwaitedStarts()
    async with open_log(log) as store:
        if part.job:
            part = replace(part, job=await job_named(store, part.job, (await place_of(store, part.end)).position))
        if part.job and not part.follow and not (await store.head(f"job.{part.job}")).version:
            raise await unknown_job(store, part.job)
        begins_at = await recorded_at(store, 1) if part.relative else None
        async for event in _recorded(store, part):
            if (part.types and event.type not in part.types) or (part.job and part.job not in jobs_of(event.data)):
                continue
            count += 1
            if part.output == "json":
                print_json({**asdict(event), "recorded_at": rfc3339(event.recorded_at), "message": describe(event)})
            else:
                at = event.recorded_at
                time = rfc3339(at, decimals=3) if begins_at is None else elapsed(at - begins_at)
                what = starts.text(event, lambda instant: rfc3339(instant.timestamp(), decimals=0))
                print(f"{event.position:>6} {time} {subject_of(event)}: {what}", flush=True)
        if not count:
            print(_NOTHING if await store.position() else EMPTY, file=sys.stderr)


async def _recorded(store: "EventStore", part: EventSelection) -> "AsyncIterator[Event]":
    from voda.log.archive.archive_backed_store import SegmentStore
    from voda.timetravel.moment import find, parse_moment
    from voda.timetravel.replay import events_between

    after = (await find(store, parse_moment(part.begin), before=True)).position if part.begin else 0
    if part.follow:
        if isinstance(store, SegmentStore):
            raise InvalidInput("--follow needs a log that grows: this is a copy in a folder, name the database instead")
        async for event in store.tail(after):
            yield event
    async for event in events_between(store, after=after, until=(await place_of(store, part.end)).position):
        yield event


def _print_server_events(client: "Client", part: EventSelection) -> None:
    from voda.cli.http.client import decode, resource_path
    from voda.cli.http.remote_log import RemoteLog, SearchedLog, known_event
    from voda.cli.render.awaited_starts import AwaitedStarts
    from voda.cli.render.job_text import exactly
    from voda.cli.render.terminal import note, now, plain, print_bytes
    from voda.text import clock, full
    from voda.timetravel.moment import elapsed, recorded_at
    from voda.wire.jobs import JobView

    filters: dict[str, str | int | list[str]] = {"type": list(part.types)} if part.types else {}
    if part.job and part.end:
        filters["job"] = part.job
    elif part.job:
        # The name must not mean another job half way, and an unknown one is an error.
        filters["job"] = exactly(decode(client.get(resource_path("jobs", part.job)), JobView))
    log, present, count, starts = RemoteLog(client, filters), now(), 0, AwaitedStarts()
    begins_at = run_async(recorded_at(SearchedLog(log), 1)) if part.relative else None
    for seen in _server_events(log, part, is_filtered=bool(filters)):
        count += 1
        if part.output == "json":
            print_bytes(seen.raw)
        else:
            at = seen.event.recorded_at
            time = full(at, present) if begins_at is None else elapsed(at.timestamp() - begins_at)
            known = known_event(seen.event)
            what = starts.text(known, lambda instant: clock(instant, present)) if known else seen.what
            print(plain(f"{seen.event.position:>6} {time} {seen.subject}: {what}"), flush=True)
    if not count:
        note(_NOTHING)


def _server_events(log: "RemoteLog", part: EventSelection, *, is_filtered: bool) -> "Iterator[RemoteEvent]":
    from voda.cli.http.remote_log import SearchedLog
    from voda.timetravel.moment import find, parse_moment

    last = log.position()
    until = run_async(find(SearchedLog(log), parse_moment(part.end))).position if part.end else last
    if part.job and part.end:
        log = log.ending_at(until)
    if part.begin:
        after = run_async(find(SearchedLog(log), parse_moment(part.begin), before=True)).position
    else:
        after = 0 if is_filtered or part.end else max(0, last - _LAST)
    if part.follow:
        yield from log.tail(after)
    yield from log.between(after, until)

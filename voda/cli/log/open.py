"""What the commands that read a log share: opening it, and the words for their arguments."""

import enum
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from voda.log.store import EventStore
    from voda.timetravel.moment import LogPlace

LOG = "An SQLite file, an exported .jsonl file, or a postgresql:// or nats:// URL."
MOMENT = (
    "a position (42), a time (2026-01-31T12:00:00Z), or a span after the first or before the last event (+1h, -10m)"
)
EMPTY = "The log is empty: nothing has happened yet."


class LogOutput(enum.StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"


LogOutputOption = Annotated[LogOutput, typer.Option("--output", "-o", help="For people or for programs.")]


def is_log(text: str) -> bool:
    """Return whether the user means a log, and no job, by this."""
    from pathlib import Path

    return "://" in text or text.endswith((".db", ".jsonl")) or Path(text).is_file()


@asynccontextmanager
async def open_log(log: str) -> "AsyncIterator[EventStore]":
    """Open a log for reading, and close it at the end of the block; of a lost end only a warning is given."""
    from voda.domain.errors import LogDamaged
    from voda.log.factory import open_log, refuse_cut

    store = await open_log(log)
    try:
        try:
            await refuse_cut(store)
        except LogDamaged as error:
            # What is left may be just what somebody is looking for.
            print(f"voda: warning: {error}", file=sys.stderr)
        yield store
    finally:
        await store.close()


async def place_of(store: "EventStore", moment: str) -> "LogPlace":
    """Return the place of a moment as the user wrote it; of the log's end where nothing was written."""
    from voda.timetravel.moment import AtPosition, find, parse_moment

    return await find(store, parse_moment(moment) if moment else AtPosition(await store.position()))

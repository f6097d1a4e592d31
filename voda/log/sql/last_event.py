"""Where a log ends, if what lies there can be read.

Rule: an index may know of events that their table has lost, so an end is believed only once its event was read.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from voda.domain.errors import LogDamaged
from voda.log.sql import schema

Fetch = Callable[[str, dict[str, object]], Awaitable[Sequence[Any]]]
"""Runs one query."""


async def readable_end(fetch: Fetch, *, base: int, marked: int) -> int:
    """Return the position of the last event that can be read, where only the log's end may be lost.

    Args:
        fetch: of the database.
        base: position of the last event that was archived.
        marked: a position that the log once reached, as far as is known.
    """
    try:
        end = int((await fetch(schema.POSITION, {}))[0][0])
    except LogDamaged:
        end = marked
    if end <= base or await _is_readable(fetch, end):
        return end
    readable, lost = base, end
    while lost - readable > 1:
        middle = (readable + lost) // 2
        if await _is_readable(fetch, middle):
            readable = middle
        else:
            lost = middle
    return readable


async def _is_readable(fetch: Fetch, position: int) -> bool:
    try:
        return bool(await fetch(schema.HASH_AT, {"position": position}))
    except LogDamaged:
        return False

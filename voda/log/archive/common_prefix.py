"""Proves that a copy is the beginning of a log, or finds the position at which the two differ.

Rule: hashes alone prove it, and only the events that the copy lacks are read.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from voda.domain.errors import InvalidInput, LogArchived, LogDamaged
from voda.events.codec import body_of
from voda.events.envelope import Head, Sealed
from voda.log.archive.verify import PAGE, HashChain, compare_heads
from voda.log.store import EventStore

EventAt = Callable[[int], Awaitable[Sealed | None]]
"""Returns a copy's event at a position; None if it has none."""


async def page_of(source: EventStore, after: int, end: int) -> Sequence[Sealed]:
    """Return the next page of events behind a position, up to another position.

    Raises:
        LogDamaged: there are no events.
    """
    page = await source.read_sealed(after, min(PAGE, end - after))
    if not page:
        raise LogDamaged(f"position {after + 1}: the event is missing", after + 1)
    return page


async def event_at(store: EventStore, position: int) -> Sealed | None:
    """Return the event at a position; None if there is none, or it is archived."""
    try:
        found = await store.read_sealed(position - 1, 1) if position else ()
    except LogArchived:
        return None
    return found[0] if found else None


async def prove_prefix(
    source: EventStore, copy: HashChain, at: EventAt, end: int, heads: Mapping[str, Head] | None
) -> None:
    """Prove that the events of a copy, and the events that follow in the log, lead to the log's heads.

    Args:
        source: the log.
        copy: the chain at the copy's end; it is not moved.
        at: reads an event of the copy.
        end: position up to which the log is read.
        heads: of the log at `end`; None = not known, so nothing is proven of streams that have no later events.

    Raises:
        InvalidInput: the copy is not the beginning of the log; names the first position that differs.
        LogDamaged: the log is not what was written.
    """
    if copy.position == 0:
        return
    if copy.position > end:
        raise InvalidInput(
            f"the copy is at position {copy.position}, but the log ends at {end}: it is a copy of another log, or the"
            " log was restored from an older copy since; choose a new place"
        )
    if await _differ(source, at, copy.position):
        raise await _difference(source, at, copy.position)
    chain = HashChain(copy.position, copy.heads)
    while chain.position < end:
        for sealed in await page_of(source, chain.position, end):
            if not sealed.is_intact:
                raise LogDamaged(f"position {sealed.position}: the checksum does not fit the event", sealed.position)
            try:
                chain.step(sealed)
            except LogDamaged as error:
                raise _not_a_prefix(copy.position, str(error)) from error
    try:
        if heads is not None:
            compare_heads(heads, chain, "the log")
    except LogDamaged as error:
        raise _not_a_prefix(copy.position, str(error)) from error


async def _differ(source: EventStore, at: EventAt, position: int) -> bool:
    here, there = await event_at(source, position), await at(position)
    return bool(here and there and here.hash != there.hash)


async def _difference(source: EventStore, at: EventAt, differs: int) -> InvalidInput:
    """Return the error that names the first position at which log and copy differ, found by bisection."""
    same = 0
    while differs - same > 1:
        middle = (same + differs) // 2
        if await _differ(source, at, middle):
            differs = middle
        else:
            same = middle
    here, there = await event_at(source, differs), await at(differs)
    return _not_a_prefix(differs, f"the log has {_described(here)} there, the copy {_described(there)}")


def _described(sealed: Sealed | None) -> str:
    if sealed is None:
        return "nothing"
    body = body_of(sealed)
    return f"version {body.version} of stream {body.stream} ({sealed.hash[:12]})"


def _not_a_prefix(position: int, what: str) -> InvalidInput:
    return InvalidInput(
        f"the copy is not the beginning of the log: by position {position} they have parted ({what});"
        " it is a copy of another log, or another process wrote to it; choose a new place"
    )

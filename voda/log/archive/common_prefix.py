"""Whether one log is the beginning of another, and where they part if it is not.

Rule: proven by hashes alone, reading only what the shorter one lacks.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from voda.domain.errors import InvalidInput, LogArchived, LogDamaged
from voda.events.codec import body_of
from voda.events.envelope import Head, Sealed
from voda.log.archive.verify import PAGE, HashChain, compare_heads
from voda.log.store import EventStore

At = Callable[[int], Awaitable[Sealed | None]]
"""Returns a copy's event at a position; None where it has none."""


async def page_of(source: EventStore, after: int, end: int) -> Sequence[Sealed]:
    """Return the next events behind a position, up to another.

    Raises:
        LogDamaged: there are none.
    """
    page = await source.read_sealed(after, min(PAGE, end - after))
    if not page:
        raise LogDamaged(f"position {after + 1}: the event is missing", after + 1)
    return page


async def event_at(store: EventStore, position: int) -> Sealed | None:
    """Return the event at a position; None where there is none, or it is archived."""
    try:
        found = await store.read_sealed(position - 1, 1) if position else ()
    except LogArchived:
        return None
    return found[0] if found else None


async def prove_beginning(
    source: EventStore, copy: HashChain, at: At, end: int, heads: Mapping[str, Head] | None
) -> None:
    """Prove that the events which a copy has, and those that come next, lead to the log's heads.

    Args:
        source: the log.
        copy: a walk at the copy's end; it is not moved.
        at: looks into the copy.
        end: position of the log's last event, or how far it is to be looked at.
        heads: of the log there; None = not known, so that of streams which do not go on nothing is proven.

    Raises:
        InvalidInput: the copy is not the beginning of the log; where they part is told.
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
        raise await _parting(source, at, copy.position)
    walk = HashChain(copy.position, copy.heads)
    while walk.position < end:
        for sealed in await page_of(source, walk.position, end):
            if not sealed.is_intact:
                raise LogDamaged(f"position {sealed.position}: the checksum does not fit the event", sealed.position)
            try:
                walk.step(sealed)
            except LogDamaged as error:
                raise _parted(copy.position, str(error)) from error
    try:
        if heads is not None:
            compare_heads(heads, walk, "the log")
    except LogDamaged as error:
        raise _parted(copy.position, str(error)) from error


async def _differ(source: EventStore, at: At, position: int) -> bool:
    here, there = await event_at(source, position), await at(position)
    return bool(here and there and here.hash != there.hash)


async def _parting(source: EventStore, at: At, differs: int) -> InvalidInput:
    """Return the error that says where a log and its copy part; found by halving."""
    same = 0
    while differs - same > 1:
        middle = (same + differs) // 2
        if await _differ(source, at, middle):
            differs = middle
        else:
            same = middle
    here, there = await event_at(source, differs), await at(differs)
    return _parted(differs, f"the log has {_told(here)} there, the copy {_told(there)}")


def _told(sealed: Sealed | None) -> str:
    if sealed is None:
        return "nothing"
    body = body_of(sealed)
    return f"version {body.version} of stream {body.stream} ({sealed.hash[:12]})"


def _parted(position: int, what: str) -> InvalidInput:
    return InvalidInput(
        f"the copy is not the beginning of the log: by position {position} they have parted ({what});"
        " it is a copy of another log, or somebody wrote to it; choose a new place"
    )

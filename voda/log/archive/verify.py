"""Proves that a log is what was written, or names the first position that is not.

Rule: a walk trusts nothing but the hashes; everything kept beside the bodies (columns, heads, snapshots) must agree
with what the walk has found.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from voda.domain.errors import LogDamaged
from voda.events.codec import EventBody, body_of, head_after
from voda.events.envelope import Head, Sealed
from voda.log.append_plan import EventRow
from voda.log.durable_store import Base
from voda.log.store import EventStore, Snapshot

PAGE = 2000
_EMPTY = Head()
# With room for the rounding of both.
_MICROSECOND_S = 1.1e-6
_COLUMNS = ("stream", "version", "event_id", "type")

_Found = tuple[Sealed, EventRow | None]

Progress = Callable[[int, int], None]
"""Called with events done and events in all, once per page."""


class VerifyReport(NamedTuple):
    """What a log was found to be."""

    events: int
    """Events proven, from the first on."""
    streams: int
    snapshots: int
    damaged_at: int | None
    """First damaged position; None where nothing is damaged, or the damage lies beside the events."""
    problem: str
    """One sentence; empty where nothing is damaged."""
    archived: int = 0
    """Events before the first one that was looked at: they are in an archive."""

    @property
    def is_intact(self) -> bool:
        """Whether nothing was found."""
        return not self.problem


@runtime_checkable
class Audited(Protocol):
    """A store that keeps more than bodies: columns, snapshots, files."""

    async def ends(self) -> tuple[int, Mapping[str, Head]]:
        """Return the position of the last event and every stream's head, both seen at one instant."""
        ...

    async def read_rows(self, after: int, limit: int) -> Sequence[EventRow]:
        """Return events with the columns that stand beside their bodies."""
        ...

    def snapshots(self) -> AsyncIterator[Snapshot]:
        """Yield every snapshot, lowest position first."""
        ...

    async def damage(self) -> str | None:
        """Return what the database finds wrong with its own files."""
        ...

    async def base(self) -> Base:
        """Return where the log begins."""
        ...


class HashChain:
    """Steps through a log, keeping the head of every stream.

    Args:
        position: of the last event before the walk's first; 0 = the walk begins with the log.
        heads: of every stream at that position.
    """

    def __init__(self, position: int = 0, heads: Mapping[str, Head] | None = None) -> None:
        self.position = position
        self.heads: dict[str, Head] = dict(heads or {})

    def step(self, sealed: Sealed) -> EventBody:
        """Take the next event and return its body.

        Raises:
            LogDamaged: it is not the event that belongs here.
        """
        expected = self.position + 1
        if sealed.position != expected:
            raise LogDamaged(f"position {expected}: the event is missing, {sealed.position} follows", expected)
        if not sealed.is_intact:
            raise LogDamaged(f"position {expected}: the checksum does not fit the event", expected)
        body = body_of(sealed)
        before = self.heads.get(body.stream, _EMPTY)
        self._refuse_misfit(body, before, expected)
        self.heads[body.stream] = head_after(sealed, body, before)
        self.position = expected
        return body

    def _refuse_misfit(self, body: EventBody, before: Head, position: int) -> None:
        where = f"position {position}: stream {body.stream}"
        if body.version != before.version + 1:
            raise LogDamaged(f"{where}: expected version {before.version + 1}, got {body.version}", position)
        if body.prev != before.hash:
            raise LogDamaged(f"{where}: the event does not follow the one before it (another hash)", position)
        if body.epoch < before.epoch:
            raise LogDamaged(f"{where}: epoch {body.epoch} follows epoch {before.epoch}", position)


async def verify_log(
    store: EventStore, *, archive: Mapping[str, Head] | None = None, progress: Progress | None = None
) -> VerifyReport:
    """Walk the whole log and compare it with everything that is kept beside it.

    What others append meanwhile is left out. Damage beside the events is told only where the events have none.

    Args:
        store: the log; where it begins behind an archive, the walk begins there.
        archive: heads that the archive's events lead to at that place, where they were proven.
        progress: called once per page.
    """
    walk = HashChain()
    marks = _Marks()
    first = 0
    try:
        await marks.collect(store)
        end, heads = await ends_of(store)
        walk = await _begun(store)
        first = walk.position
        if archive is not None:
            compare_heads(archive, walk, "the archive")
        async for sealed, row in _events(store, first, end, progress):
            body = walk.step(sealed)
            if row:
                _compare_columns(row, body)
            marks.compare(walk)
        marks.refuse_cut(walk.position)
        compare_heads(heads, walk, "the list of streams")
        marks.refuse_problem()
        if isinstance(store, Audited) and (found := await store.damage()):
            raise LogDamaged(f"the events are intact, but the database's file is not: {found}")
    except LogDamaged as error:
        return VerifyReport(walk.position, len(walk.heads), marks.snapshots, error.position, str(error), first)
    return VerifyReport(walk.position, len(walk.heads), marks.snapshots, None, "", first)


async def _begun(store: EventStore) -> HashChain:
    base = await store.base() if isinstance(store, Audited) else Base()
    return HashChain(base.position, base.heads)


class _Marks:
    """What snapshots say about the log: the heads of all streams at some positions."""

    def __init__(self) -> None:
        self.snapshots = 0
        self._heads: dict[int, list[Snapshot]] = {}
        self._problem: LogDamaged | None = None

    async def collect(self, store: EventStore) -> None:
        """Load the snapshots, up to the first that is damaged."""
        if not isinstance(store, Audited):
            return
        try:
            async for snapshot in store.snapshots():
                self.snapshots += 1
                # Others may have appended between the state's position and the look at the heads. Their versions
                # add up to the position at which they were seen.
                seen_at = max(snapshot.position, sum(head.version for head in snapshot.heads.values()))
                self._heads.setdefault(seen_at, []).append(snapshot)
        except LogDamaged as error:
            self._problem = error

    def compare(self, walk: HashChain) -> None:
        """Compare with the heads that the walk has come to, and keep the first difference."""
        for snapshot in self._heads.get(walk.position, ()):
            try:
                compare_heads(snapshot.heads, walk, f"the snapshot at position {snapshot.position}")
            except LogDamaged as error:
                # Of no event: the walk goes on, to look for one that is damaged.
                self._problem = self._problem or LogDamaged(str(error))

    def refuse_cut(self, end: int) -> None:
        """Raise if a snapshot has seen the log go on after position `end`."""
        if self._heads and (furthest := max(self._heads)) > end:
            raise LogDamaged(
                f"position {end + 1}: the log ends at {end}, but there is a snapshot of position {furthest}", end + 1
            )

    def refuse_problem(self) -> None:
        """Raise what was found wrong with a snapshot, if anything was."""
        if self._problem:
            raise self._problem


def compare_heads(expected: Mapping[str, Head], walk: HashChain, source: str) -> None:
    """Refuse a walk that has not come to the same heads."""
    if expected == walk.heads:
        return
    stream = min(name for name in {*expected, *walk.heads} if expected.get(name) != walk.heads.get(name))
    wanted, found = expected.get(stream, _EMPTY), walk.heads.get(stream, _EMPTY)
    cut_at = walk.position + 1 if _is_a(int, wanted.version) and wanted.version > found.version else None
    where = f"position {cut_at}: " if cut_at else ""
    raise LogDamaged(
        f"{where}{source} says that stream {stream} is at version {wanted.version} ({str(wanted.hash)[:12]}),"
        f" its events end at version {found.version} ({found.hash[:12]})",
        cut_at,
    )


@runtime_checkable
class Ended(Protocol):
    """A store that tells where it ends."""

    async def ends(self) -> tuple[int, Mapping[str, Head]]:
        """Return the position of the last event and every stream's head, both seen at one instant."""
        ...


async def ends_of(store: EventStore) -> tuple[int, Mapping[str, Head]]:
    """Return the position of the last event and every stream's head, at one instant where the store can tell it."""
    if isinstance(store, Ended):
        return await store.ends()
    return await store.position(), await store.heads()


async def _events(store: EventStore, done: int, end: int, progress: Progress | None) -> AsyncIterator[_Found]:
    while done < end:
        page = await _page(store, done, min(PAGE, end - done))
        if not page:
            raise LogDamaged(f"position {done + 1}: the event is missing", done + 1)
        for found in page:
            yield found
        done += len(page)
        if progress:
            progress(done, end)


async def _page(store: EventStore, after: int, limit: int) -> Sequence[_Found]:
    """Read a page; where the database cannot read it whole, the part before the first event it cannot read."""
    try:
        if isinstance(store, Audited):
            rows = await store.read_rows(after, limit)
            return [(Sealed(row[0], row[6], row[7]), row) for row in rows]
        return [(sealed, None) for sealed in await store.read_sealed(after, limit)]
    except LogDamaged as error:
        if limit == 1:
            raise LogDamaged(f"position {after + 1}: the event cannot be read ({error})", after + 1) from error
        return await _page(store, after, limit // 2)


def _compare_columns(row: EventRow, body: EventBody) -> None:
    position, *found, recorded_at = row[:6]
    expected = [body.stream, body.version, body.event_id, body.type]
    names = [name for name, told, kept in zip(_COLUMNS, expected, found, strict=True) if told != kept]
    # The body keeps whole microseconds; the column keeps what the clock said.
    if not _is_a(float, recorded_at) or abs(recorded_at - body.recorded_at.timestamp()) > _MICROSECOND_S:
        names.append("recorded_at")
    if names:
        raise LogDamaged(f"position {position}: the column {names[0]} does not agree with the event", position)


def _is_a(kind: type, value: object) -> bool:
    """What a damaged database returns need not be what its column promises."""
    return isinstance(value, kind)

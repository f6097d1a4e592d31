"""Verifies a log event by event along its hash chain, and names the first position that is not what was written.

Rule: only the hashes are trusted; everything stored beside the bodies (columns, heads, snapshots) must agree with the
chain.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Self

from msgspec.structs import replace

from voda.domain.errors import LogDamaged
from voda.events.codec import EventBody, body_of, head_after
from voda.events.envelope import Head, Sealed
from voda.log.append_plan import EventRow
from voda.log.store import Base, DurableStore, EventStore, Snapshot

PAGE = 2000
_EMPTY = Head()
# With room for the rounding of both.
_MICROSECOND_S = 1.1e-6
_COLUMNS = ("stream", "version", "event_id", "type")

_SealedRow = tuple[Sealed, EventRow | None]

Progress = Callable[[int, int], None]
"""Called with events done and events in all, once per page."""


class Pace(NamedTuple):
    """How a verification takes turns with whatever else its process does."""

    page: int = PAGE
    """Events that are read, and proven, in one go."""
    pause: Callable[[], Awaitable[None]] | None = None
    """Waited for after every page."""


_AT_ONCE = Pace()


class VerifyReport(NamedTuple):
    """What a verification found."""

    events: int
    """Events proven, from the first on."""
    streams: int
    snapshots: int
    damaged_at: int | None
    """First damaged position; None if nothing is damaged, or only what is stored beside the events."""
    problem: str
    """One sentence; empty if nothing is damaged."""
    archived: int = 0
    """Events before the first proven one: they are in an archive."""

    @property
    def is_intact(self) -> bool:
        return not self.problem

    @classmethod
    def of_unreadable(cls, error: LogDamaged) -> Self:
        """Return the report on a log that is too damaged to be opened."""
        return cls(max((error.position or 1) - 1, 0), 0, 0, error.position, str(error))


class HashChain:
    """The hash chain of a log, proven up to a position: each step proves the next event and moves its stream's head.

    Args:
        position: of the last event proven.
        heads: there; copied.
        over: those of all streams that are not among `heads`; not changed.
    """

    def __init__(
        self, position: int = 0, heads: Mapping[str, Head] | None = None, *, over: Mapping[str, Head] = {}
    ) -> None:
        self.position = position
        self.heads = dict(heads or {})
        self._over = over

    def step(self, sealed: Sealed) -> EventBody:
        """Take the next event and return its body; raises LogDamaged if it is not the event that follows."""
        expected = self.position + 1
        if sealed.position != expected:
            raise LogDamaged(f"position {expected}: the event is missing, {sealed.position} follows", expected)
        if not sealed.is_intact:
            raise LogDamaged(f"position {expected}: the checksum does not fit the event", expected)
        body = body_of(sealed)
        before = self.heads.get(body.stream) or self._over.get(body.stream, _EMPTY)
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
    store: EventStore,
    *,
    archive: Mapping[str, Head] | None = None,
    progress: Progress | None = None,
    pace: Pace = _AT_ONCE,
) -> VerifyReport:
    """Prove every event of the log, and compare the chain with everything that is stored beside the events.

    Events appended during the verification are left out. Damage beside the events is reported only if no event is
    damaged.

    Args:
        store: the log; if it has a base, the chain begins there.
        archive: heads at the base to which the archive's events were proven to lead; None = not known.
        progress: gets the events done.
        pace: by default without a pause.
    """
    chain = HashChain()
    snapshots = _HeadsOfSnapshots()
    first = 0
    try:
        await snapshots.collect(store)
        end, heads = await store.ends()
        base = await store.base() if isinstance(store, DurableStore) else Base()
        chain, first = HashChain(base.position, base.heads), base.position
        if archive is not None:
            compare_heads(archive, chain, "the archive")
        async for sealed, row in _events(store, first, end, progress, pace):
            body = chain.step(sealed)
            if row:
                _compare_columns(row, body)
            snapshots.compare(chain)
        snapshots.refuse_cut(chain.position)
        compare_heads(heads, chain, "the list of streams")
        snapshots.refuse_problem()
        if isinstance(store, DurableStore) and (found := await store.damage()):
            raise LogDamaged(f"the events are intact, but the database's file is not: {found}")
    except LogDamaged as error:
        return VerifyReport(chain.position, len(chain.heads), snapshots.count, error.position, str(error), first)
    return VerifyReport(chain.position, len(chain.heads), snapshots.count, None, "", first)


class _HeadsOfSnapshots:
    """The heads of all streams at some positions, as the snapshots have them."""

    def __init__(self) -> None:
        self.count = 0
        self._heads: dict[int, list[Snapshot]] = {}
        self._problem: LogDamaged | None = None

    async def collect(self, store: EventStore) -> None:
        """Read the snapshots, up to the first that is damaged."""
        if not isinstance(store, DurableStore):
            return
        try:
            async for snapshot in store.snapshots.all():
                self.count += 1
                # Others may have appended between the state's position and the look at the heads. Their versions
                # add up to the position at which they were seen.
                seen_at = max(snapshot.position, sum(head.version for head in snapshot.heads.values()))
                # The heads alone count here; states may be large.
                self._heads.setdefault(seen_at, []).append(replace(snapshot, state=b""))
        except LogDamaged as error:
            self._problem = error

    def compare(self, chain: HashChain) -> None:
        """Compare the snapshots of the chain's position with it, and remember the first difference."""
        for snapshot in self._heads.get(chain.position, ()):
            try:
                compare_heads(snapshot.heads, chain, f"the snapshot at position {snapshot.position}")
            except LogDamaged as error:
                # No event is damaged yet: the chain goes on to look for one.
                self._problem = self._problem or LogDamaged(str(error))

    def refuse_cut(self, end: int) -> None:
        """Raise if a snapshot is of a position behind `end`."""
        if self._heads and (furthest := max(self._heads)) > end:
            raise LogDamaged(
                f"position {end + 1}: the log ends at {end}, but there is a snapshot of position {furthest}", end + 1
            )

    def refuse_problem(self) -> None:
        if self._problem:
            raise self._problem


def compare_heads(expected: Mapping[str, Head], chain: HashChain, source: str) -> None:
    """Raise LogDamaged unless the chain leads to the expected heads."""
    if expected == chain.heads:
        return
    stream = min(name for name in {*expected, *chain.heads} if expected.get(name) != chain.heads.get(name))
    wanted, found = expected.get(stream, _EMPTY), chain.heads.get(stream, _EMPTY)
    cut_at = chain.position + 1 if _is_a(int, wanted.version) and wanted.version > found.version else None
    where = f"position {cut_at}: " if cut_at else ""
    raise LogDamaged(
        f"{where}{source} says that stream {stream} is at version {wanted.version} ({str(wanted.hash)[:12]}),"
        f" its events end at version {found.version} ({found.hash[:12]})",
        cut_at,
    )


async def _events(
    store: EventStore, done: int, end: int, progress: Progress | None, pace: Pace
) -> AsyncIterator[_SealedRow]:
    while done < end:
        page = await _page(store, done, min(pace.page, end - done))
        if not page:
            raise LogDamaged(f"position {done + 1}: the event is missing", done + 1)
        for found in page:
            yield found
        done += len(page)
        if progress:
            progress(done, end)
        if pace.pause:
            await pace.pause()


async def _page(store: EventStore, after: int, limit: int) -> Sequence[_SealedRow]:
    """Read a page; if the database cannot read all of it, the part before the first unreadable event."""
    try:
        if isinstance(store, DurableStore):
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
    names = [name for name, in_body, stored in zip(_COLUMNS, expected, found, strict=True) if in_body != stored]
    # The body has whole microseconds; the column has the clock's own fraction.
    if not _is_a(float, recorded_at) or abs(recorded_at - body.recorded_at.timestamp()) > _MICROSECOND_S:
        names.append("recorded_at")
    if names:
        raise LogDamaged(f"position {position}: the column {names[0]} does not agree with the event", position)


def _is_a(kind: type, value: object) -> bool:
    """A damaged database may return another type than its column promises."""
    return isinstance(value, kind)

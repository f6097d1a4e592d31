"""The store of a log in a relational database.

Rule: the differences between SQLite and PostgreSQL are behind `Database`; everything else is here.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from voda.domain.errors import LogDamaged
from voda.events.codec import unseal
from voda.events.envelope import Event, Head, Sealed, hash_of
from voda.log.append_plan import EventRow
from voda.log.group_commit import CommittedStore, LogWriter
from voda.log.snapshot_record import record_of, snapshot_of
from voda.log.sql import schema
from voda.log.sql.rows import StoredHead, base_of, read_stream, readable_end
from voda.log.store import SNAPSHOTS_KEPT, Base, Snapshot, SnapshotStore, load_heads, tail_is_cut, within_page
from voda.log.tail import TAIL_PAGE

_SWEEP = 10_000
"""So many events are deleted at once, for which a writer waits some hundredths of a second."""
_PIECE_BYTES = 1024 * 1024
"""Of a snapshot; a writer waits some hundredths of a second for one. SQLite refuses values of a gigabyte."""

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder(order="sorted").encode

_LARGE_BYTES: Final = 100_000
"""Of events: more take long enough to decode for others to notice."""
Params = Mapping[str, object]


class Database(LogWriter, Protocol):
    """What the store needs of a database."""

    place: str
    """Path or URL, without password."""
    poll_s: float
    """A tail reads at least so often, in case a notification is lost."""

    async def fetch(self, sql: str, params: Params) -> Sequence[Any]:
        """Return the rows of one query, all read at one instant."""

    def recent(self, after: int) -> Sequence[Sealed]:
        """Return the events behind position `after` that this process has just written, as far as it remembers them.

        Without a gap from `after` on; empty where it would have one. Others may have appended more behind them.
        """
        return ()

    def newest(self, after: int) -> Sequence[Sealed] | None:
        """Return all events behind position `after`, where this process knows without a query; None: it does not."""
        return None

    async def write(self, statements: Sequence[tuple[str, Params]]) -> None:
        """Run the statements in one durable transaction."""

    async def listen(self, on_growth: Callable[[], None]) -> None:
        """Call `on_growth` when another process appended, as far as the database can tell."""

    async def damage(self) -> str | None:
        """Return the damage that the database itself finds in its files; None: none, or only the server checks them."""
        return None

    def reached(self) -> tuple[int, str]:
        """Return a position that the log once reached, by a mark beside the database, and its name; 0 = no mark."""
        return 0, ""

    async def close(self) -> None:
        """Release all connections. Safe to call twice."""


class SqlSnapshots(SnapshotStore):
    """A SnapshotStore in the database of a log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, snapshot: Snapshot) -> None:
        record, digest = await asyncio.to_thread(_hashed_record, snapshot)
        key = {"name": snapshot.name, "position": snapshot.position, "hash": digest}
        pieces = range(0, len(record), _PIECE_BYTES)
        # One at a time: appends go on in between.
        for number, first in enumerate(pieces):
            piece = {**key, "number": number, "data": record[first : first + _PIECE_BYTES]}
            await self._database.write([(schema.SAVE_PIECE, piece)])
        name = {"name": snapshot.name}
        await self._database.write(
            [
                (schema.SAVE_SNAPSHOT, {**key, "pieces": len(pieces)}),
                (schema.DROP_SNAPSHOTS, {**name, "keep": SNAPSHOTS_KEPT}),
                (schema.DROP_PIECES, name),
            ]
        )

    async def latest(self, name: str, *, at_most: int | None = None) -> Snapshot | None:
        limit = 2**62 if at_most is None else at_most
        while rows := await self._database.fetch(schema.LATEST_SNAPSHOT, {"name": name, "at_most": limit}):
            try:
                if (found := await self._load(*rows[0])) is not None:
                    return found
            except LogDamaged as error:
                _log.warning("snapshot passed over place=%s reason=%s", self._database.place, error)
                limit = rows[0][1] - 1
        return None

    async def all(self) -> AsyncIterator[Snapshot]:
        for name, position in await self._database.fetch(schema.SNAPSHOTS, {}):
            for row in await self._row(name, position):
                if (found := await self._load(*row)) is not None:
                    yield load_heads(found)

    async def _load(self, name: str, position: int, digest: str, pieces: int) -> Snapshot | None:
        """Return a snapshot, its heads not decoded yet; None where a writer has deleted or replaced it meanwhile.

        Raises LogDamaged if it is not what was written.
        """
        data: list[bytes] = []
        for number in range(pieces):
            key = {"name": name, "position": position, "hash": digest, "number": number}
            # A damaged SQLite file may hold text where its column promises bytes.
            data += [row[0] for row in await self._database.fetch(schema.PIECE, key) if isinstance(row[0], bytes)]
        record = b"".join(data)
        if await asyncio.to_thread(hash_of, record) == digest:
            return snapshot_of(name, position, record)
        if [row[2] for row in await self._row(name, position)] != [digest]:
            return None
        raise LogDamaged(f"snapshot {name} at position {position}: the checksum does not fit")

    async def _row(self, name: str, position: int) -> Sequence[Any]:
        """Return the row of a snapshot; none where a writer has deleted it."""
        found = await self._database.fetch(schema.LATEST_SNAPSHOT, {"name": name, "at_most": position})
        return [row for row in found if row[1] == position]


class SqlStore(CommittedStore):
    """An EventStore in SQLite or PostgreSQL; made by `open_store`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.place, database)
        self.database = database
        """A Lease beside the log uses it."""
        self.snapshots = SqlSnapshots(database)
        self._base = Base()
        """As read last; it only moves forwards."""

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        if stream is None:
            newest = self.database.newest(after)
            found = await self.read_sealed(after, limit) if newest is None else newest[:limit]
            return await _unsealed(found)
        events, gap = await read_stream(self.database.fetch, stream, after, limit)
        # After the read: events that it lacks were deleted after the base was moved.
        base = await self._refuse_archived(after, stream)
        if gap is not None and gap.version > base.heads.get(stream, Head()).version:
            raise gap.damage()
        return events

    async def page_size(self, after: int, limit: int, *, stream: str | None = None) -> int:
        query = schema.SIZES if stream is None else schema.STREAM_SIZES
        wanted = {"after": after, "limit": limit} | ({} if stream is None else {"stream": stream})
        rows = await self.database.fetch(query, wanted)
        if stream is not None or not rows or rows[0][1] != after + 1:
            await self._refuse_archived(after, stream)
        return within_page([row[0] for row in rows], limit)

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        rows = await self.database.fetch(schema.READ, {"after": after, "limit": limit})
        if not rows or rows[0][0] != after + 1:
            await self._refuse_archived(after)
        _refuse_gap(after, [row[0] for row in rows])
        return [Sealed(*row) for row in rows]

    async def read_rows(self, after: int, limit: int) -> Sequence[EventRow]:
        rows = await self.database.fetch(schema.READ_ROWS, {"after": after, "limit": limit})
        if not rows or rows[0][0] != after + 1:
            await self._refuse_archived(after)
        return rows

    async def ends(self) -> tuple[int, Mapping[str, Head]]:
        try:
            rows = await self.database.fetch(schema.ENDS, {})
        except LogDamaged:
            # Its error names the position.
            await self.refuse_cut()
            raise
        return rows[0][0], await asyncio.to_thread(_heads, [row[1:] for row in rows if row[1] is not None])

    def tail(self, after: int) -> AsyncIterator[Event]:
        async def following(after: int) -> Sequence[Event]:
            await self.database.listen(self._growth.wake)
            # Whoever has appended waits to read it back. Behind it others' appends may be missing: these wake the tail.
            if recent := self.database.recent(after):
                return [unseal(sealed) for sealed in recent]
            return await self.read(after, TAIL_PAGE)

        return self._growth.tail(after, following, poll_s=self.database.poll_s)

    async def position(self) -> int:
        return int((await self.database.fetch(schema.POSITION, {}))[0][0])

    async def head(self, stream: str) -> Head:
        """See EventStore.head; raises LogDamaged if the stream's last event is not the one in the list of streams."""
        rows = await self.database.fetch(schema.HEAD, {"stream": stream})
        return StoredHead(*rows[0]).proven() if rows else Head()

    async def heads(self) -> Mapping[str, Head]:
        return await asyncio.to_thread(_heads, await self.database.fetch(schema.HEADS, {}))

    async def base(self) -> Base:
        position = (await self.database.fetch(schema.BASE_POSITION, {}))[0][0]
        if position != self._base.position:
            self._base = base_of(self.place, *(await self.database.fetch(schema.BASE, {}))[0])
        return self._base

    async def forget(self, base: Base) -> None:
        """See DurableStore.forget. The base moves at once; then the events below it are deleted slice by slice."""
        base.refuse_beyond(self.place, await self.position())
        if base.position > (await self.base()).position:
            body = _encode(base)
            row = {"position": base.position, "base": body, "hash": hash_of(body)}
            await self.database.write([(schema.SAVE_BASE, row), (schema.DROP_BASES, {})])
        await self._sweep((await self.base()).position)

    async def _sweep(self, until: int) -> None:
        """Delete the events up to a position, also those that a killed process left."""
        after = int((await self.database.fetch(schema.FIRST_POSITION, {}))[0][0]) - 1
        # Each slice begins where the last one ended: a search for the first row would scan the deleted rows.
        while 0 <= after < until:
            slice_end = min(after + _SWEEP, until)
            await self.database.write([(schema.DROP_EVENTS, {"after": after, "until": slice_end})])
            after = slice_end

    async def _refuse_archived(self, after: int, stream: str | None = None) -> Base:
        base = await self.base()
        base.refuse_archived(self.place, after, stream)
        return base

    async def refuse_cut(self) -> None:
        # Read before the end: other processes may append meanwhile.
        marked, mark = self.database.reached()
        reached = int((await self.database.fetch(schema.REACHED, {}))[0][0])
        base = await self.base()
        position = await readable_end(self.database.fetch, base=base.position, marked=max(reached, marked))
        if max(reached, marked) <= position:
            return
        if (await self.base()).position > base.position:
            # Unreadable events may have been archived meanwhile.
            return await self.refuse_cut()
        furthest = max(reached, marked)
        hint = f" (or, if an older log was put here on purpose, remove {mark})" if marked > reached else ""
        raise tail_is_cut(self.place, position, furthest, hint)

    async def damage(self) -> str | None:
        await self.refuse_cut()
        return await self.database.damage()

    async def close(self) -> None:
        await self._commits.close()
        await self.database.close()


async def _unsealed(found: Sequence[Sealed]) -> Sequence[Event]:
    """Return the events; of many bytes in a thread, while others go on."""
    if sum(len(sealed.body) for sealed in found) <= _LARGE_BYTES:
        return [unseal(sealed) for sealed in found]
    return await asyncio.to_thread(lambda: [unseal(sealed) for sealed in found])


def _refuse_gap(after: int, positions: Sequence[int]) -> None:
    # One by one: a damaged database may return pages out of order that end at the right position.
    for expected, found in enumerate(positions, after + 1):
        if found != expected:
            raise LogDamaged(f"position {expected}: the event is missing", expected)


def _hashed_record(snapshot: Snapshot) -> tuple[bytes, str]:
    record = record_of(snapshot)
    return record, hash_of(record)


def _heads(rows: Sequence[Any]) -> dict[str, Head]:
    """Return the heads of rows; for a thread: there may be hundreds of thousands."""
    return {stream: Head(*head) for stream, *head in rows}

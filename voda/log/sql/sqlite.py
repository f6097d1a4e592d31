"""A log in an SQLite file: one connection that writes and one that reads, each with a thread of its own.

Rule: an append is answered once it is on the disk (WAL, synchronous=FULL), and other processes may write too. The event
loop uses the writing connection itself for a quick commit, but only while the thread does not use it.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeVar

import aiosqlite

from voda.domain.errors import StoreNotWritable, VodaError
from voda.events.envelope import Head, Sealed
from voda.log.append_plan import Append, EventRow, GroupPlan, Outcome, parts_of, plan_group
from voda.log.sql import schema, sqlite_file
from voda.log.sql.rows import StoredHead
from voda.log.sql.sqlite_file import is_busy, translate_error, translate_errors
from voda.log.sql.sqlite_journal import HighWaterMark, SqliteNotifier, mark_path, read_mark
from voda.log.sql.store import Database, Params
from voda.log.store import refuse_other_end

INLINE_BELOW_S = 0.002
"""A commit runs on the event loop while recent ones took less: to wake a thread takes a third of that."""
_FORGOTTEN = 0.2
"""The remembered time of a slow commit shrinks by this share with each later one: after a stall of a second, 28 commits
run in the thread."""
INLINE_FACTS = 128
"""An append of more facts always runs in the thread."""
HEADS_CACHED = 100_000
REMEMBERED = 64
"""Of the last events written, so many are kept in memory for tails; more than that at once are read from the file."""
_LARGEST_REMEMBERED_BYTES = 65_536
STOP_WITHIN_S = 5.0
"""A thread that hangs in opening the file is left behind after this time."""

INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
# One statement for many rows avoids a turn through Python, with its interpreter lock, for each row.
_HUNDRED = 100
_INSERT_HUNDRED = INSERT_EVENT.replace("INSERT", "INSERT OR FAIL") + ", (?, ?, ?, ?, ?, ?, ?, ?)" * (_HUNDRED - 1)
UPSERT_HEAD = f"INSERT INTO streams VALUES (?, ?, ?, ?, ?) {schema.REPLACING_HEAD}"
_KNOWN = "SELECT event_id, position FROM events WHERE event_id IN (SELECT value FROM json_each(?))"
_HEADS = f"{schema.STORED_HEADS} WHERE stream IN (SELECT value FROM json_each(?))"

T = TypeVar("T")


class SqliteDatabase(Database):
    """See `Database`."""

    poll_s = 0.5

    def __init__(self, path: Path, writer: "_Writer | None", reader: "_RowReader") -> None:
        self.place = str(path)
        self._path = path
        self._writer = writer
        self._reader = reader
        self._writes = ThreadPoolExecutor(1, "voda-log-write")
        self._notifier = SqliteNotifier(sqlite_file.journal(path))
        # Not known yet: the first commits are made in the thread.
        self._recent_commit_s = 2 * INLINE_BELOW_S

    @classmethod
    async def open(cls, path: Path, *, timeout_s: float = 5.0, read_only: bool = False) -> Self:
        """Open a log that voda.log.sql.sqlite_file.check accepts."""
        writer = None if read_only else await asyncio.to_thread(_Writer, path, timeout_s)
        try:
            reader = _RowReader(path)
            await reader.open()
        except BaseException:
            if writer:
                writer.close()
            raise
        return cls(path, writer, reader)

    async def fetch(self, sql: str, params: Params) -> Sequence[tuple[Any, ...]]:
        return await self._reader.fetch(sql, params)

    def recent(self, after: int) -> Sequence[Sealed]:
        found = self._writer.recent if self._writer else ()
        behind = tuple(sealed for sealed in found if sealed.position > after)
        is_whole = all(sealed.position == expected for expected, sealed in enumerate(behind, after + 1))
        return behind if is_whole else ()

    def newest(self, after: int) -> Sequence[Sealed] | None:
        # Most readers are at the log's end: a query would take two threads' turns to find nothing.
        if self._writer is None or (end := self._writer.known_end()) is None or after > end:
            return None
        behind = self.recent(after)
        return behind if len(behind) == end - after else None

    async def write(self, statements: Sequence[tuple[str, Params]]) -> None:
        await self._in_writer(lambda writer: writer.write(statements))

    async def commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            return await self._in_writer(lambda writer: writer.commit(group))
        finally:
            self._took(loop.time() - began_s)

    def commit_at_once(self, group: Sequence[Append]) -> Sequence[Outcome] | None:
        is_small = sum(len(append.facts) for append in parts_of(group)) <= INLINE_FACTS
        if not self._writer or self._recent_commit_s > INLINE_BELOW_S or not is_small:
            return None
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            return self._writer.commit_at_once(group)
        finally:
            self._took(loop.time() - began_s)

    async def take_over(self, plan: GroupPlan, *, after: int) -> None:
        await self._in_writer(lambda writer: writer.take_over(plan, after))

    async def listen(self, on_growth: Callable[[], None]) -> None:
        self._notifier.listen(on_growth)

    async def damage(self) -> str | None:
        found = await self.fetch("PRAGMA integrity_check(1)", {})
        return None if found[0][0] == "ok" else " ".join(str(found[0][0]).split())

    def reached(self) -> tuple[int, str]:
        return read_mark(self._path), mark_path(self._path).name

    async def close(self) -> None:
        self._notifier.close()
        # In this order: the last connection to close deletes the journal, and only a writer may.
        await self._reader.close()
        self._writes.shutdown()
        if self._writer:
            self._writer.close()

    def _took(self, commit_s: float) -> None:
        self._recent_commit_s = max(commit_s, self._recent_commit_s * (1 - _FORGOTTEN))
        self._notifier.skip_own_change()

    async def _in_writer(self, call: Callable[["_Writer"], T]) -> T:
        if self._writer is None:
            raise StoreNotWritable(f"{self.place} was opened for reading only")
        return await asyncio.get_running_loop().run_in_executor(self._writes, call, self._writer)


class _RowReader:
    """The reading connection.

    A file without a journal is opened as one that never changes. If another process has written to it since, what was
    read may be half new: the file is opened again, and the query repeated.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._frozen_at: sqlite_file.Stamp | None = None
        self._connection: aiosqlite.Connection
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Connect; cancelled in between, the connection of before stays, with what is known of it."""
        stamps: list[sqlite_file.Stamp | None] = []

        def connect() -> sqlite3.Connection:
            opened, stamp = sqlite_file.open_reader(self._path)
            stamps.append(stamp)
            return opened

        connection = aiosqlite.Connection(connect, iter_chunk_size=64)
        # A process that ends without closing its log must not wait for this thread.
        connection._thread.daemon = True
        try:
            self._connection = await connection
        except BaseException:
            # aiosqlite only asks its thread to stop, which would answer when the event loop may be closed.
            await asyncio.to_thread(connection._thread.join, timeout=STOP_WITHIN_S)
            raise
        (self._frozen_at,) = stamps

    async def fetch(self, sql: str, params: Params) -> list[tuple[Any, ...]]:
        async with self._turn:
            while True:
                try:
                    with translate_errors(self._path):
                        rows: Any = await self._connection.execute_fetchall(sql, params)
                except VodaError:
                    if not self._is_outdated():
                        raise
                else:
                    if not self._is_outdated():
                        return list(rows)
                # In this order: a reader that is cancelled in between still has a connection.
                outdated = self._connection
                await self.open()
                await outdated.close()

    async def close(self) -> None:
        await self._connection.close()

    def _is_outdated(self) -> bool:
        return self._frozen_at is not None and self._frozen_at != sqlite_file.stamp(self._path)


class _Writer:
    """The writing connection, with a cache of the log's heads that holds until another process writes."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._connection = sqlite_file.open_writer(path)
        self._mark = HighWaterMark(path)
        self._timeout_ms = round(timeout_s * 1000)
        # The connection has one transaction at a time, whichever thread began it.
        self._in_use = Lock()
        self._set_timeout(0)
        self._data_version = -1
        self._position = 0
        self._heads: dict[str, Head] = {}
        self.recent: tuple[Sealed, ...] = ()
        """The last events written; replaced as a whole, because another thread reads it."""

    def commit_at_once(self, group: Sequence[Append]) -> list[Outcome] | None:
        """Write the group; if another thread or process is writing, return None and write nothing."""
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            return self._commit(group)
        except sqlite3.Error as error:
            if is_busy(error):
                return None
            raise translate_error(error, self._path) from error
        finally:
            self._in_use.release()

    def known_end(self) -> int | None:
        """Return the position of the log's last event; None where another process, or a thread, may have written."""
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            return self._position if self._read_data_version() == self._data_version else None
        except sqlite3.Error:
            return None
        finally:
            self._in_use.release()

    def commit(self, group: Sequence[Append]) -> list[Outcome]:
        with self._waiting_for_locks():
            return self._commit(group)

    def write(self, statements: Sequence[tuple[str, Params]]) -> None:
        with self._waiting_for_locks(), self._transaction():
            for sql, params in statements:
                self._connection.execute(sql, params)
            self._connection.execute("COMMIT")
        # Events may be among what was deleted.
        self.recent = ()

    def take_over(self, plan: GroupPlan, after: int) -> None:
        with self._waiting_for_locks(), self._transaction():
            refuse_other_end(str(self._path), self._position, after)
            self._record(plan)

    def close(self) -> None:
        with self._in_use:
            self._connection.close()
            self._mark.close(journal=sqlite_file.journal(self._path))

    def _commit(self, group: Sequence[Append]) -> list[Outcome]:
        # Nearly always every fact is new, so facts are looked up only after a conflict.
        try:
            with self._transaction():
                plan = self._plan(group, known={})
                if not plan.has_failures:
                    return self._record(plan)
        except sqlite3.IntegrityError:
            pass
        with self._transaction():
            return self._record(self._plan(group, known=self._recorded_ids(group)))

    def _plan(self, group: Sequence[Append], known: Mapping[str, int]) -> GroupPlan:
        unread = [append.stream for append in parts_of(group) if append.stream not in self._heads]
        if unread:
            for row in self._connection.execute(_HEADS, (json.dumps(unread),)):
                self._heads[row[0]] = StoredHead(*row).proven()
        return plan_group(group, position=self._position, heads=self._heads, known=known)

    def _recorded_ids(self, group: Sequence[Append]) -> dict[str, int]:
        ids = [fact.event_id for append in parts_of(group) for fact in append.facts]
        return dict(self._connection.execute(_KNOWN, (json.dumps(ids),)))

    def _record(self, plan: GroupPlan) -> list[Outcome]:
        if plan.rows:
            self._insert(plan)
            self._connection.execute("COMMIT")
            self._position += len(plan.rows)
            self._mark.reached(self._position)
            self._heads.update(plan.heads)
            self._remember(plan.rows)
        return plan.outcomes

    def _remember(self, rows: Sequence[EventRow]) -> None:
        if len(rows) > REMEMBERED or any(len(row[6]) > _LARGEST_REMEMBERED_BYTES for row in rows):
            self.recent = ()
        else:
            new = [Sealed(row[0], row[6], row[7]) for row in rows]
            self.recent = (*self.recent[len(new) - REMEMBERED :], *new) if len(new) < REMEMBERED else tuple(new)

    def _insert(self, plan: GroupPlan) -> None:
        in_hundreds = len(plan.rows) - len(plan.rows) % _HUNDRED
        for first in range(0, in_hundreds, _HUNDRED):
            values = list(chain.from_iterable(plan.rows[first : first + _HUNDRED]))
            self._connection.execute(_INSERT_HUNDRED, values)
        self._connection.executemany(INSERT_EVENT, plan.rows[in_hundreds:])
        self._connection.executemany(UPSERT_HEAD, plan.head_rows())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Hold the write lock, with the cache up to date; undo whatever is not committed."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._catch_up()
            yield
        except BaseException:
            # Read the state anew after a failed transaction.
            self._data_version = -1
            raise
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _catch_up(self) -> None:
        """Empty the cache if another process has written."""
        data_version = self._read_data_version()
        if data_version != self._data_version or len(self._heads) > HEADS_CACHED:
            self._heads.clear()
            self._position = self._connection.execute(schema.POSITION).fetchone()[0]
            self._data_version = data_version

    def _read_data_version(self) -> int:
        """Return a number that changes when another connection has committed."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    @contextmanager
    def _waiting_for_locks(self) -> Iterator[None]:
        """Use the connection exclusively, and wait for the locks of other processes."""
        with self._in_use, translate_errors(self._path):
            self._set_timeout(self._timeout_ms)
            try:
                yield
            finally:
                self._set_timeout(0)

    def _set_timeout(self, timeout_ms: int) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {timeout_ms}")

"""A log in an SQLite file: one connection that writes and one that reads, each with a thread of its own.

Rule: what an append is answered with is on the disk (WAL, synchronous=FULL), and other processes may write too. The
event loop borrows the writing connection for a quick commit, but only while the thread does not use it.
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
from typing import Any, TypeVar

from voda.domain.errors import InvalidInput, StoreNotWritable, VodaError
from voda.events.envelope import Head
from voda.log.append_plan import Append, GroupPlan, Outcome, plan_group
from voda.log.durable_store import refuse_other_end
from voda.log.sql import schema
from voda.log.sql.rows import StoredHead
from voda.log.sql.store import Params
from voda.log.sqlite import file
from voda.log.sqlite.errors import is_busy, translate_error, translate_errors
from voda.log.sqlite.high_water_mark import HighWaterMark, mark_path, read_mark
from voda.log.sqlite.notify import SqliteNotifier

INLINE_BELOW_S = 0.002
"""A commit is made on the event loop while recent ones took less: waking a thread would cost a third of it."""
_FORGOTTEN = 0.2
"""Share of a slow commit that each later one makes forgotten: after a second's stall, 28 go by the thread."""
INLINE_FACTS = 128
"""More facts than this always go to the thread."""
HEADS_CACHED = 100_000

INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
# One statement for many rows spares each row a turn through Python, and the lock its interpreter holds meanwhile.
_HUNDRED = 100
_INSERT_HUNDRED = INSERT_EVENT.replace("INSERT", "INSERT OR FAIL") + ", (?, ?, ?, ?, ?, ?, ?, ?)" * (_HUNDRED - 1)
UPSERT_HEAD = (
    "INSERT INTO streams (stream, version, hash, epoch, position) VALUES (?, ?, ?, ?, ?) ON CONFLICT (stream)"
    " DO UPDATE SET version = excluded.version, hash = excluded.hash, epoch = excluded.epoch,"
    " position = excluded.position"
)
_KNOWN = "SELECT event_id, position FROM events WHERE event_id IN (SELECT value FROM json_each(?))"
_HEADS = f"{schema.STORED_HEADS} WHERE stream IN (SELECT value FROM json_each(?))"

T = TypeVar("T")


class SqliteDatabase:
    """See `Database`."""

    poll_s = 0.5

    def __init__(self, path: Path, *, timeout_s: float = 5.0, read_only: bool = False) -> None:
        self.place = str(path)
        self._path = path
        self._writer = None if read_only else _Writer(path, timeout_s)
        self._reader, self._frozen_at = file.open_reader(path)
        self._reads = ThreadPoolExecutor(1, "voda-log-read")
        self._writes = ThreadPoolExecutor(1, "voda-log-write")
        self._watch = SqliteNotifier(file.journal(path))
        # Not known yet; a few commits in the thread will tell.
        self._recent_commit_s = 2 * INLINE_BELOW_S

    async def fetch(self, sql: str, params: Params) -> Sequence[tuple[Any, ...]]:
        """See Database.fetch."""
        return await asyncio.get_running_loop().run_in_executor(self._reads, self._fetch, sql, params)

    async def write(self, statements: Sequence[tuple[str, Params]]) -> None:
        """See Database.write."""
        await self._in_writer(lambda writer: writer.write(statements))

    async def commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        """See Database.commit."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            return await self._in_writer(lambda writer: writer.commit(group))
        finally:
            self._took(loop.time() - began_s)

    def commit_at_once(self, group: Sequence[Append]) -> Sequence[Outcome] | None:
        """See Database.commit_at_once."""
        if not self._writer or self._recent_commit_s > INLINE_BELOW_S or not _is_small(group):
            return None
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            return self._writer.commit_at_once(group)
        finally:
            self._took(loop.time() - began_s)

    async def restore(self, batches: Iterator[GroupPlan]) -> None:
        """See Database.restore."""
        await self._in_writer(lambda writer: writer.restore(batches))

    async def take_over(self, plan: GroupPlan, *, after: int) -> None:
        """See Database.take_over."""
        await self._in_writer(lambda writer: writer.take_over(plan, after))

    async def listen(self, on_growth: Callable[[], None]) -> None:
        """See Database.listen."""
        self._watch.want(on_growth)

    async def damage(self) -> str | None:
        """See Database.damage."""
        found = await self.fetch("PRAGMA integrity_check(1)", {})
        return None if found[0][0] == "ok" else " ".join(str(found[0][0]).split())

    def reached(self) -> tuple[int, str]:
        """See Database.reached."""
        return read_mark(self._path), mark_path(self._path).name

    async def close(self) -> None:
        """See Database.close."""
        self._watch.close()
        # In this order: the last connection to close tidies the journal away, and only a writer may.
        self._reads.shutdown()
        self._reader.close()
        self._writes.shutdown()
        if self._writer:
            self._writer.close()

    def _took(self, commit_s: float) -> None:
        self._recent_commit_s = max(commit_s, self._recent_commit_s * (1 - _FORGOTTEN))
        self._watch.heed_own()

    async def _in_writer(self, call: Callable[["_Writer"], T]) -> T:
        if self._writer is None:
            raise StoreNotWritable(f"{self.place} was opened for reading only")
        return await asyncio.get_running_loop().run_in_executor(self._writes, call, self._writer)

    def _fetch(self, sql: str, params: Params) -> list[tuple[Any, ...]]:
        while True:
            try:
                with translate_errors(self._path):
                    rows = self._reader.execute(sql, params).fetchall()
            except VodaError:
                if not self._is_outdated():
                    raise
            else:
                if not self._is_outdated():
                    return rows
            self._reader.close()
            self._reader, self._frozen_at = file.open_reader(self._path)

    def _is_outdated(self) -> bool:
        """Whether a file that was read as if nobody wrote to it has been written to: what was read may be half new."""
        return self._frozen_at is not None and self._frozen_at != file.stamp(self._path)


class _Transaction:
    """Holds the write lock. A class, because a generator would cost every append a hundredth of its commit."""

    __slots__ = ("_writer",)

    def __init__(self, writer: "_Writer") -> None:
        self._writer = writer

    def __enter__(self) -> None:
        self._writer.begin()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._writer.end(has_failed=kind is not None)


class _Writer:
    """The writing connection, and what it remembers of the log as long as nobody else writes."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._connection = file.open_writer(path)
        self._mark = HighWaterMark(path)
        self._timeout_ms = round(timeout_s * 1000)
        # The connection knows one transaction at a time, whichever thread began it.
        self._in_use = Lock()
        self._set_timeout(0)
        self._data_version = -1
        self._position = 0
        self._heads: dict[str, Head] = {}

    def commit_at_once(self, group: Sequence[Append]) -> list[Outcome] | None:
        """Write the group, or nothing and return None if another thread or process is writing."""
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

    def commit(self, group: Sequence[Append]) -> list[Outcome]:
        """Write the group, waiting for other processes."""
        with self._patience():
            return self._commit(group)

    def write(self, statements: Sequence[tuple[str, Params]]) -> None:
        """See Database.write."""
        with self._patience(), self._transaction():
            for sql, params in statements:
                self._connection.execute(sql, params)
            self._connection.execute("COMMIT")

    def restore(self, batches: Iterator[GroupPlan]) -> None:
        """See Database.restore."""
        with self._patience(), self._transaction():
            if self._position:
                raise InvalidInput(f"{self._path} is not empty: it has {self._position} events")
            for batch in batches:
                self._insert(batch)
            self._connection.execute("COMMIT")
            self._mark.reached(self._connection.execute(schema.POSITION).fetchone()[0])
        # What was inserted is not in the cache.
        self._data_version = -1

    def take_over(self, plan: GroupPlan, after: int) -> None:
        """See Database.take_over."""
        with self._patience(), self._transaction():
            refuse_other_end(str(self._path), self._position, after)
            self._record(plan)

    def close(self) -> None:
        """Close the connection."""
        with self._in_use:
            self._connection.close()
            self._mark.close(journal=file.journal(self._path))

    def _commit(self, group: Sequence[Append]) -> list[Outcome]:
        # Nearly always every fact is new; to look each of them up first would cost a search per fact.
        try:
            with self._transaction():
                plan = self._plan(group, known={})
                if not plan.has_failures:
                    return self._record(plan)
        except sqlite3.IntegrityError:
            pass
        with self._transaction():
            return self._record(self._plan(group, known=self._known(group)))

    def _plan(self, group: Sequence[Append], known: Mapping[str, int]) -> GroupPlan:
        unread = [append.stream for append in group if append.stream not in self._heads]
        if unread:
            for row in self._connection.execute(_HEADS, (json.dumps(unread),)):
                self._heads[row[0]] = StoredHead(*row).proven()
        return plan_group(group, position=self._position, heads=self._heads, known=known)

    def _known(self, group: Sequence[Append]) -> dict[str, int]:
        ids = [fact.event_id for append in group for fact in append.facts]
        return dict(self._connection.execute(_KNOWN, (json.dumps(ids),)))

    def _record(self, plan: GroupPlan) -> list[Outcome]:
        if plan.rows:
            self._insert(plan)
            self._connection.execute("COMMIT")
            self._position += len(plan.rows)
            self._mark.reached(self._position)
            self._heads.update(plan.heads)
        return plan.outcomes

    def _insert(self, plan: GroupPlan) -> None:
        in_hundreds = len(plan.rows) - len(plan.rows) % _HUNDRED
        for first in range(0, in_hundreds, _HUNDRED):
            values = list(chain.from_iterable(plan.rows[first : first + _HUNDRED]))
            self._connection.execute(_INSERT_HUNDRED, values)
        self._connection.executemany(INSERT_EVENT, plan.rows[in_hundreds:])
        self._connection.executemany(UPSERT_HEAD, plan.head_rows())

    def _transaction(self) -> "_Transaction":
        return _Transaction(self)

    def begin(self) -> None:
        """Take the write lock and bring the cache up to date."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._catch_up()
        except BaseException:
            self.end(has_failed=True)
            raise

    def end(self, *, has_failed: bool) -> None:
        """Undo whatever is not committed."""
        if has_failed:
            # What a failed transaction left behind is looked up, not guessed.
            self._data_version = -1
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _catch_up(self) -> None:
        """Forget what is remembered if another process wrote meanwhile."""
        data_version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if data_version != self._data_version or len(self._heads) > HEADS_CACHED:
            self._heads.clear()
            self._position = self._connection.execute(schema.POSITION).fetchone()[0]
            self._data_version = data_version

    @contextmanager
    def _patience(self) -> Iterator[None]:
        """Use the connection alone, and wait for other processes."""
        with self._in_use, translate_errors(self._path):
            self._set_timeout(self._timeout_ms)
            try:
                yield
            finally:
                self._set_timeout(0)

    def _set_timeout(self, timeout_ms: int) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {timeout_ms}")


def _is_small(group: Sequence[Append]) -> bool:
    return sum(len(append.facts) for append in group) <= INLINE_FACTS

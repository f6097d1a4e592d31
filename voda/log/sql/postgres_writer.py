"""Writes groups of appends to PostgreSQL, on a connection of its own.

Rules: rows are written with the lock held, and only directly behind the last event. The heads and the position are
cached from the last group, so the next one needs no query: the statement that writes it names the position at which it
must begin, and writes nothing if another process was faster.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from asyncpg import (
    InterfaceError,
    InternalClientError,
    OperatorInterventionError,
    PostgresConnectionError,
    UniqueViolationError,
)
from sqlalchemy.ext.asyncio import AsyncEngine

from voda.events.envelope import Head
from voda.log.append_plan import Append, GroupPlan, Outcome, parts_of, plan_group
from voda.log.sql import schema
from voda.log.sql.postgres_engine import CHANNEL, OwnConnection
from voda.log.sql.rows import StoredHead
from voda.log.store import refuse_other_end

_GONE: Final = (InterfaceError, InternalClientError, PostgresConnectionError, OperatorInterventionError, OSError)
# One number for all logs: advisory locks belong to a database, and a database has one log.
LOCK: Final = f"SELECT pg_advisory_xact_lock({schema.APPLICATION_ID})"
HEADS_CACHED: Final = 100_000

# Two statements: each sees what was committed before it began, and whatever follows begins with the lock held.
_BEGIN: Final = f"BEGIN ISOLATION LEVEL READ COMMITTED; {LOCK}"
_HEADS: Final = f"{schema.STORED_HEADS} WHERE stream = ANY($1)"
_READ_STATE: Final = (
    f"SELECT 0, '', ({schema.POSITION}), '', 0::bigint, 0::bigint, NULL::bytea, 0::bigint"
    f" UNION ALL SELECT 1, heads.* FROM ({_HEADS}) AS heads"
    " UNION ALL SELECT 2, event_id, position, '', 0, 0, NULL, 0 FROM events WHERE event_id = ANY($2)"
)
_EVENT_COLUMNS: Final = tuple(schema.events.columns.keys())
_HEAD_COLUMNS: Final = tuple(schema.streams.columns.keys())
_WRITE: Final = (
    f"WITH place AS (SELECT 1 WHERE ({schema.POSITION}) = $1), written AS ("
    f"INSERT INTO events ({', '.join(_EVENT_COLUMNS)}) SELECT added.* FROM place, unnest($2::bigint[], $3::text[],"
    " $4::bigint[], $5::text[], $6::text[], $7::float8[], $8::bytea[], $9::text[]) AS added) "
    f"INSERT INTO streams ({', '.join(_HEAD_COLUMNS)}) SELECT ends.* FROM place, unnest($10::text[], $11::bigint[],"
    f" $12::text[], $13::bigint[], $14::bigint[]) AS ends {schema.REPLACING_HEAD}"
    # Once per stream, but delivered once.
    f" RETURNING pg_notify('{CHANNEL}', '')"
)


class PostgresWriter(OwnConnection):
    """The writing connection, made when first needed and made again when it is lost.

    Callers limit the time of a call.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine)
        self._turn = asyncio.Lock()
        self._position = -1
        """Of the log's last event, as far as this process knows; -1 = not known."""
        self._heads: dict[str, Head] = {}
        """Of some streams, at that position."""

    async def commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        async with self._clean_connection():
            return await self._commit(group)

    async def take_over(self, plan: GroupPlan, *, after: int, place: str) -> None:
        """See Database.take_over; `place` names the log in the error."""
        async with self._clean_connection():
            await self._begin()
            self._forget()
            refuse_other_end(place, await self._driver.fetchval(schema.POSITION), after)
            assert await self._write(plan, after), "the log ends where it was just seen to end"
            await self._driver.execute("COMMIT")

    @asynccontextmanager
    async def _clean_connection(self) -> AsyncIterator[None]:
        """Have the connection for oneself; what fails ends it, in any state, and the server rolls back."""
        async with self._turn:
            try:
                yield
            except BaseException:
                self._forget()
                await self.close()
                raise

    async def _commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        await self._begin()
        try:
            if (plan := await self._write_by_cache(group)) is None:
                plan = await self._write_after_read(group)
        except UniqueViolationError:
            # A fact is in the log already. Nearly always every fact is new, so facts are looked up only now.
            await self._driver.execute("ROLLBACK")
            await self._begin()
            plan = await self._write_after_read(group)
        await self._driver.execute("COMMIT")
        self._remember(plan)
        return plan.outcomes

    async def _begin(self) -> None:
        """Begin a transaction that holds the lock, on a new connection if the present one is gone."""
        if self._driver is not None:
            try:
                await self._driver.execute(_BEGIN)
            except TimeoutError:
                # Another process holds the lock; a new connection would wait for it as well.
                raise
            except _GONE:
                # Nothing was begun, so nothing is lost. The next server may be a standby that took over without the
                # last events, so the cache is emptied.
                self._forget()
                await self.close()
            else:
                return
        await self._connect()
        await self._driver.execute(_BEGIN)

    async def _write_by_cache(self, group: Sequence[Append]) -> GroupPlan | None:
        """Write the group by the cache; None if the cache is outdated, or an append of the group is refused."""
        if self._position < 0:
            return None
        await self._add_heads(group)
        plan = plan_group(group, position=self._position, heads=self._heads, known={})
        # A refusal may be due to an outdated cache.
        if plan.has_failures or not await self._write(plan, self._position):
            return None
        return plan

    async def _add_heads(self, group: Sequence[Append]) -> None:
        unread = [append.stream for append in parts_of(group) if append.stream not in self._heads]
        if unread:
            # If another process wrote meanwhile these heads are newer than the position, and the write fails.
            self._heads.update({row[0]: StoredHead(*row).proven() for row in await self._driver.fetch(_HEADS, unread)})

    async def _write_after_read(self, group: Sequence[Append]) -> GroupPlan:
        self._forget()
        streams = [append.stream for append in parts_of(group)]
        ids = [fact.event_id for append in parts_of(group) for fact in append.facts]
        position, known = 0, {}
        for kind, name, number, *rest in await self._driver.fetch(_READ_STATE, streams, ids):
            match kind:
                case 0:
                    position = number
                case 1:
                    self._heads[name] = StoredHead(name, number, *rest).proven()
                case _:
                    known[name] = number
        plan = plan_group(group, position=position, heads=self._heads, known=known)
        # No other process can have written: this one holds the lock.
        assert await self._write(plan, position), "the log ends where it was just seen to end"
        self._position = position
        return plan

    async def _write(self, plan: GroupPlan, position: int) -> bool:
        """Write the rows behind `position`; return whether the log ended there."""
        if not plan.rows:
            return True
        columns = (*zip(*plan.rows, strict=True), *zip(*plan.head_rows(), strict=True))
        return bool(await self._driver.fetch(_WRITE, position, *columns))

    def _remember(self, plan: GroupPlan) -> None:
        self._position += len(plan.rows)
        self._heads.update(plan.heads)
        if len(self._heads) > HEADS_CACHED:
            self._heads.clear()

    def _forget(self) -> None:
        self._position = -1
        self._heads.clear()

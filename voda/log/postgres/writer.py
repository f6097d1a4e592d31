"""Writes groups of appends to PostgreSQL on a connection kept for nothing else.

Rules: whatever is written is written with the lock held, and only where it follows the last event. What the last group
left is remembered, so that the next one needs no look: the statement that writes it says where it must begin, and
writes nothing where another process has been faster.
"""

from collections.abc import Sequence
from typing import Any, Final

from asyncpg import (
    InterfaceError,
    InternalClientError,
    OperatorInterventionError,
    PostgresConnectionError,
    UniqueViolationError,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from voda.events.envelope import Head
from voda.log.append_plan import Append, GroupPlan, Outcome, plan_group
from voda.log.postgres.engine import give_up
from voda.log.postgres.notify import CHANNEL
from voda.log.sql import schema
from voda.log.sql.rows import StoredHead

_GONE: Final = (InterfaceError, InternalClientError, PostgresConnectionError, OperatorInterventionError, OSError)
# One number for all logs: an advisory lock is the database's own, and a database holds one log.
LOCK: Final = f"SELECT pg_advisory_xact_lock({schema.APPLICATION_ID})"
HEADS_CACHED: Final = 100_000

# Two statements: each sees what was committed before it began, and whatever follows begins with the lock held.
_BEGIN: Final = f"BEGIN ISOLATION LEVEL READ COMMITTED; {LOCK}"
_HEADS: Final = f"{schema.STORED_HEADS} WHERE stream = ANY($1)"
_LOOK: Final = (
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
    " $12::text[], $13::bigint[], $14::bigint[]) AS ends ON CONFLICT (stream) DO UPDATE SET version = excluded.version,"
    " hash = excluded.hash, epoch = excluded.epoch, position = excluded.position"
    # As often as there are streams, and told once.
    f" RETURNING pg_notify('{CHANNEL}', '')"
)


class PostgresWriter:
    """The writing connection, made when first needed and made again when it is lost.

    Whoever calls it limits the time that it may take, and calls it once at a time.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._connection: AsyncConnection | None = None
        self._driver: Any = None
        self._position = -1
        """Of the log's last event, as far as we know; -1 = not known."""
        self._heads: dict[str, Head] = {}
        """Of streams, as they are at that position."""

    async def commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        """Write the group in one durable transaction.

        Raises:
            PostgresError, InterfaceError, DBAPIError, OSError: as the driver puts them.
        """
        try:
            return await self._commit(group)
        except BaseException:
            # Whatever state the connection is in: the server ends what was begun on it.
            self._forget()
            await self.close()
            raise

    async def close(self) -> None:
        """Give the connection up."""
        connection, driver = self._connection, self._driver
        self._connection = self._driver = None
        if connection is not None:
            await give_up(connection, driver)

    async def _commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        await self._begin()
        try:
            if (plan := await self._at_once(group)) is None:
                plan = await self._after_a_look(group)
        except UniqueViolationError:
            # A fact is in the log already: nearly always every one is new, so they are looked up only now.
            await self._driver.execute("ROLLBACK")
            await self._begin()
            plan = await self._after_a_look(group)
        await self._driver.execute("COMMIT")
        self._remember(plan)
        return plan.outcomes

    async def _begin(self) -> None:
        """Begin a transaction that holds the lock, on another connection where the one at hand is gone."""
        if self._driver is not None:
            try:
                await self._driver.execute(_BEGIN)
            except TimeoutError:
                # Somebody has the lock for long; another connection would wait for it as well.
                raise
            except _GONE:
                # Nothing was begun, so nothing is lost. Who answers next may be a standby that took over without the
                # last events: nothing that is remembered is known to hold there.
                self._forget()
                await self.close()
            else:
                return
        await self._connect()
        await self._driver.execute(_BEGIN)

    async def _connect(self) -> None:
        self._connection = await self._engine.connect()
        self._driver = (await self._connection.get_raw_connection()).driver_connection

    async def _at_once(self, group: Sequence[Append]) -> GroupPlan | None:
        """Write what fits what is remembered; None where it does not fit, or not all of the group is taken."""
        if self._position < 0:
            return None
        await self._add_heads(group)
        plan = plan_group(group, position=self._position, heads=self._heads, known={})
        # What is refused may have been so for what is no longer true.
        if plan.has_failures or not await self._write(plan, self._position):
            return None
        return plan

    async def _add_heads(self, group: Sequence[Append]) -> None:
        unread = [append.stream for append in group if append.stream not in self._heads]
        if unread:
            # Where another process wrote meanwhile they are of later, and the write finds that out.
            self._heads.update({row[0]: StoredHead(*row).proven() for row in await self._driver.fetch(_HEADS, unread)})

    async def _after_a_look(self, group: Sequence[Append]) -> GroupPlan:
        """Write the group as the log is now."""
        self._forget()
        streams = [append.stream for append in group]
        ids = [fact.event_id for append in group for fact in append.facts]
        position, known = 0, {}
        for kind, name, number, *rest in await self._driver.fetch(_LOOK, streams, ids):
            match kind:
                case 0:
                    position = number
                case 1:
                    self._heads[name] = StoredHead(name, number, *rest).proven()
                case _:
                    known[name] = number
        plan = plan_group(group, position=position, heads=self._heads, known=known)
        # With the lock held nobody else can have written since.
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

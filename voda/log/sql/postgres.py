"""A log in PostgreSQL.

Rule: an append holds one lock from before it reads the last position until it is committed, so positions are committed
in their order and a reader never sees a position before a lower one.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Self

from sqlalchemy import TextClause, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncConnection

from voda.domain.errors import NotALog
from voda.log.append_plan import Append, GroupPlan, Outcome
from voda.log.sql import schema
from voda.log.sql.postgres_engine import (
    PostgresNotifier,
    engine,
    refuse_loose,
    takes_any_sync,
    translate_errors,
)
from voda.log.sql.postgres_writer import LOCK, PostgresWriter
from voda.log.sql.store import Database, Params

_NAMED = re.compile(r"(?<!:):([a-z_]+)")
_HAS_TABLE = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = ANY(:names)"


class PostgresDatabase(Database):
    """See `Database`."""

    poll_s = 1.0

    def __init__(self, url: URL, *, read_only: bool, timeout_s: float) -> None:
        self.place = url.set(drivername="postgresql").render_as_string()
        self._engine = engine(url, read_only=read_only, timeout_s=timeout_s)
        self._takes_any_sync = takes_any_sync(url)
        self._timeout_s = timeout_s
        self._notifier = PostgresNotifier(self._engine)
        self._writer = PostgresWriter(self._engine)

    @classmethod
    async def open(cls, url: str, *, read_only: bool = False, timeout_s: float = 10.0) -> Self:
        """Connect to a database with a log.

        Raises:
            NotALog: its tables are missing or old; only `voda log migrate` makes them.
            InvalidInput: the server may lose events, or refuses the user.
        """
        database = cls(make_url(url), read_only=read_only, timeout_s=timeout_s)
        try:
            await database._refuse_other_tables()
            if not read_only:
                await database._refuse_loose()
        except BaseException:
            await database.close()
            raise
        return database

    @classmethod
    async def migrate(cls, url: str, *, timeout_s: float = 60.0) -> None:
        """Bring the tables to the current revision, or make them; raises NotALog where another application has such."""
        database = cls(make_url(url), read_only=False, timeout_s=timeout_s)
        try:
            async with database._transaction() as connection:
                await connection.execute(_sql(LOCK))
                revision = await _revision(connection)
                if revision is None:
                    await _refuse_foreign_tables(connection, database.place)
                if revision is None or not schema.is_current(revision, database.place):
                    await connection.run_sync(schema.upgrade)
            # A warning is enough here; to open such a log for writing is refused.
            await database._refuse_loose(takes_any=True)
        finally:
            await database.close()

    def connect_arguments(self) -> dict[str, Any]:
        """Return the driver's arguments for a connection of another purpose to the same server."""
        return dict(self._engine.dialect.create_connect_args(self._engine.url)[1])

    async def fetch(self, sql: str, params: Params) -> Sequence[tuple[Any, ...]]:
        statement, names = _native(sql)
        # Directly by the driver and without an explicit transaction: one round trip, and no conversion of rows.
        async with translate_errors(self.place), asyncio.timeout(self._timeout_s), self._engine.connect() as connection:
            try:
                driver: Any = (await connection.get_raw_connection()).driver_connection
                return list(map(tuple, await driver.fetch(statement, *(params[name] for name in names))))
            except BaseException:
                # In any state.
                await connection.invalidate()
                raise

    async def write(self, statements: Sequence[tuple[str, Params]]) -> None:
        async with self._transaction() as connection:
            for sql, params in statements:
                await connection.execute(_sql(sql), params)

    async def commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        async with translate_errors(self.place), asyncio.timeout(self._timeout_s):
            return await self._writer.commit(group)

    async def take_over(self, plan: GroupPlan, *, after: int) -> None:
        async with translate_errors(self.place), asyncio.timeout(self._timeout_s):
            await self._writer.take_over(plan, after=after, place=self.place)

    async def listen(self, on_growth: Callable[[], None]) -> None:
        """See Database.listen. A lost connection is made again at the next call."""
        async with translate_errors(self.place), asyncio.timeout(self._timeout_s):
            await self._notifier.listen(on_growth)

    async def close(self) -> None:
        await self._notifier.close()
        await self._writer.close()
        await self._engine.dispose()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection]:
        async with translate_errors(self.place), asyncio.timeout(self._timeout_s), self._engine.begin() as connection:
            yield connection

    async def _refuse_loose(self, *, takes_any: bool = False) -> None:
        async with self._transaction() as connection:
            await refuse_loose(connection, self.place, takes_any=takes_any or self._takes_any_sync)

    async def _refuse_other_tables(self) -> None:
        async with self._transaction() as connection:
            revision = await _revision(connection)
        if revision is None or not schema.is_current(revision, self.place):
            what = "holds no voda log yet" if revision is None else "holds the log of an older voda"
            raise NotALog(f"{self.place} {what}: run 'voda log migrate {self.place}' first")


@lru_cache
def _sql(statement: str) -> TextClause:
    return text(statement)


@lru_cache
def _native(statement: str) -> tuple[str, Sequence[str]]:
    """Return a statement with numbered parameters, and the names of these parameters in their order."""
    names = list(dict.fromkeys(_NAMED.findall(statement)))
    return _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", statement), names


async def _revision(connection: AsyncConnection) -> str | None:
    if not await _count(connection, [schema.REVISION_TABLE]):
        return None
    return (await connection.execute(_sql(schema.KNOWN_REVISION))).scalar_one_or_none()


async def _refuse_foreign_tables(connection: AsyncConnection, place: str) -> None:
    names = list(schema.metadata.tables)
    if await _count(connection, names):
        raise NotALog(f"{place} has tables named {', '.join(names)} of another application: give voda its own database")


async def _count(connection: AsyncConnection, names: Sequence[str]) -> int:
    return int((await connection.execute(_sql(_HAS_TABLE), {"names": names})).scalar_one())

"""One session with PostgreSQL that the server ends by itself once it hears nothing on it.

Rule: kept for one purpose and never pooled, neither by us nor by a pooler on the way: what is locked belongs to it.
"""

from collections.abc import Callable
from typing import Any, Final, Self

import asyncpg

from voda.domain.errors import InvalidInput
from voda.log.postgres.database import PostgresDatabase
from voda.log.postgres.errors import translate_errors

_SILENCE: Final = "idle_session_timeout"
_SETTING: Final = f"SELECT setting FROM pg_settings WHERE name = '{_SILENCE}'"
_MOST_NAME_BYTES: Final = 63
"""Of an application_name; the server would cut it anywhere, and replace what is not ASCII."""
_WAIT_S: Final = 5.0


class LeaseSession:
    """See the module; made by `open`."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    @classmethod
    async def open(cls, database: PostgresDatabase, *, name: str, silence_s: float) -> Self:
        """Connect.

        Args:
            database: where to.
            name: shown to administrators and to other sessions of the same role.
            silence_s: after which the server ends the session; to the millisecond.

        Raises:
            InvalidInput: the server cannot, because it is older than 14, or a pooler stands before it.
            StoreUnavailable: it does not answer.
        """
        wanted = str(round(silence_s * 1000))
        settings = {"application_name": _ascii(name), _SILENCE: wanted, "statement_timeout": wanted}
        limits = {"timeout": _WAIT_S, "command_timeout": _WAIT_S}
        async with translate_errors(database.place):
            try:
                driver = await asyncpg.connect(**database.connect_arguments(), **limits, server_settings=settings)
            except asyncpg.PostgresError as error:
                if _SILENCE in str(error):
                    raise _unable(database.place, str(error)) from error
                raise
            session = cls(driver)
            try:
                found = await session.fetch_value(_SETTING)
            except BaseException:
                session.abort()
                raise
        if found != wanted:
            session.abort()
            raise _unable(database.place, f"{_SILENCE} is {found} ms, expected {wanted}")
        return session

    @property
    def is_lost(self) -> bool:
        """Whether it has ended, as far as this side knows."""
        return bool(self._driver.is_closed())

    def on_end(self, call: Callable[[], None]) -> None:
        """Have something called when the session ends, however it does."""
        self._driver.add_termination_listener(lambda _: call())

    async def fetch_value(self, sql: str) -> Any:
        """Return the one value of a query."""
        return await self._driver.fetchval(sql)

    async def fetch_row(self, sql: str) -> tuple[Any, ...]:
        """Return the one row of a query."""
        return tuple(await self._driver.fetchrow(sql))

    def abort(self) -> None:
        """End it without a word; the server notices the broken connection, or hears nothing any more."""
        self._driver.terminate()


def _ascii(name: str) -> str:
    return name.encode("ascii", "replace")[:_MOST_NAME_BYTES].decode()


def _unable(place: str, said: str) -> InvalidInput:
    return InvalidInput(
        f"{place} cannot tell that a leader is silent: expected PostgreSQL 14 or newer, asked directly and not through"
        f" a pooler such as pgbouncer, got: {said}"
    )

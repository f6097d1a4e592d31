"""Notices that another process appended to a log in PostgreSQL, by LISTEN on a connection of its own.

Rule: it only shortens a tail's wait; the tail also looks for itself from time to time.
"""

import logging
from collections.abc import Callable
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from voda.log.sql.postgres_engine import give_up

CHANNEL = "voda_log"

_log = logging.getLogger(__name__)


class PostgresNotifier:
    """A LISTEN that is made when first needed, and made again when its connection is lost."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._connection: AsyncConnection | None = None
        self._driver: Any = None
        self._is_connecting = False

    async def listen(self, on_growth: Callable[[], None]) -> None:
        """Call `on_growth` at every notification from now on; connects if there is no connection."""
        # Several tails may ask at once; one of them connects.
        if self._is_connecting or (self._connection and not self._driver.is_closed()):
            return
        self._is_connecting = True
        try:
            await self.close()
            self._connection = await self._engine.connect()
            self._driver = (await self._connection.get_raw_connection()).driver_connection
            await self._driver.add_listener(CHANNEL, lambda *_: on_growth())
            _log.debug("listening channel=%s", CHANNEL)
        except BaseException:
            await self.close()
            raise
        finally:
            self._is_connecting = False

    async def close(self) -> None:
        """End the connection."""
        connection, driver = self._connection, self._driver
        self._connection = self._driver = None
        if connection is not None:
            # Not returned to the pool, where it would go on listening.
            await give_up(connection, driver)

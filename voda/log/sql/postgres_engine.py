"""Makes connections to PostgreSQL, to read and write or to LISTEN, ends them, and translates the server's errors.

Rule: a commit is acknowledged once it is on the server's disk. What a session can set for that, voda sets; a server
that answers earlier is refused, unless the URL allows it, in one sentence that names the setting.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from asyncpg import InterfaceError, InternalClientError, PostgresError
from sqlalchemy import event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from voda.domain.errors import InvalidInput, LogDamaged, NotALog, StoreNotWritable, StoreUnavailable, VodaError

CHANNEL = "voda_log"
# The driver raises InternalClientError if it has not noticed yet that the server ended the connection.
_FORESEEN = (DBAPIError, PostgresError, InterfaceError, InternalClientError, PoolTimeout, OSError, TimeoutError)
_OPTIONS: Final = {"sslmode": "ssl", "host": "host", "port": "port"}
"""Option of a URL, in PostgreSQL's words -> the driver's word for it."""
_SYNC: Final = "sync"
"""An option of voda's own, which is not passed to the driver."""
_SYNCS: Final = ("always", "any")
# Set even if it is the server's default, which may change under an open session. Values that wait for standbys as well
# are the operator's choice.
_WAIT_FOR_DISK: Final = (
    "SELECT set_config('synchronous_commit', CASE found WHEN 'off' THEN 'on' ELSE found END, false)"
    " FROM current_setting('synchronous_commit') AS found"
)

_FSYNC: Final = text("SELECT current_setting('fsync', true), current_setting('full_page_writes', true)")

_log = logging.getLogger(__name__)


def engine(url: URL, *, read_only: bool, timeout_s: float) -> AsyncEngine:
    """Return the engine; without a connection yet; raises InvalidInput if the URL has an unknown option."""
    settings = {
        "application_name": "voda",
        "default_transaction_read_only": "on" if read_only else "off",
        # A writer that freezes while it holds the lock must not block the others for ever.
        "idle_in_transaction_session_timeout": str(round(timeout_s * 1000)),
    }
    made = create_async_engine(
        url.set(drivername="postgresql+asyncpg", query=_options(url)),
        # Under repeatable read, a possible default, a writer would not see events committed meanwhile.
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        pool_timeout=timeout_s,
        connect_args={"timeout": timeout_s, "command_timeout": timeout_s, "server_settings": settings},
    )
    if not read_only:
        event.listen(made.sync_engine, "connect", _wait_for_disk)
    return made


def takes_any_sync(url: URL) -> bool:
    """Return whether the URL allows a server that answers before it has written to the disk."""
    return url.query.get(_SYNC) == "any"


async def refuse_loose(connection: AsyncConnection, place: str, *, takes_any: bool) -> None:
    """Raise InvalidInput (`takes_any`: warn) if a power cut may lose acknowledged events; warn of other risks."""
    fsync, full_pages = (await connection.execute(_FSYNC)).one()
    if fsync == "off":
        problem = (
            f"{place}: the server has fsync=off, so a crash of its machine or a power cut loses events that were"
            " answered, or the whole database: expected fsync=on in its postgresql.conf"
        )
        if not takes_any:
            raise InvalidInput(f"{problem}; or add ?sync=any to the URL to take the risk")
        _log.warning("%s", problem)
    if full_pages == "off":
        _log.warning(
            "%s: the server has full_page_writes=off, so a power cut may leave pages of the database half written,"
            " unless its file system never does that, as ZFS: expected full_page_writes=on in its postgresql.conf",
            place,
        )


async def _give_up(connection: AsyncConnection, driver: Any) -> None:
    """End a connection in any state; it leaves the pool in any case."""
    try:
        await connection.invalidate()
    except BaseException as error:
        if driver is not None:
            # Abruptly: a lock that it holds must be freed.
            driver.terminate()
        if not isinstance(error, Exception):
            raise
        # There is an earlier error as a rule, which must not be hidden by this one.
        _log.debug("a connection could not be ended reason=%r", error)
    finally:
        await connection.close()


def _wait_for_disk(connection: Any, _record: object) -> None:
    connection.run_async(_set)


async def _set(driver: Any) -> None:
    try:
        await driver.execute(_WAIT_FOR_DISK)
    except BaseException:
        # The pool does not have it yet, so nothing else would end it.
        driver.terminate()
        raise


def _options(url: URL) -> Mapping[str, str | tuple[str, ...]]:
    """Return the URL's options in the driver's words."""
    place = url.set(query={}).render_as_string()
    if unknown := sorted(set(url.query) - {*_OPTIONS, _SYNC}):
        expected = ", ".join((*_OPTIONS, _SYNC))
        raise InvalidInput(f"{place}: the URL's option {unknown[0]!r} is unknown, expected {expected}")
    if (sync := url.query.get(_SYNC, "always")) not in _SYNCS:
        raise InvalidInput(f"{place}: expected sync=always or sync=any, got {sync!r}")
    return {_OPTIONS[option]: value for option, value in url.query.items() if option != _SYNC}


class OwnConnection:
    """A connection for one purpose, which never goes back to the pool."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._connection: AsyncConnection | None = None
        self._driver: Any = None
        """asyncpg's connection; None: there is none."""

    async def _connect(self) -> None:
        self._connection = await self._engine.connect()
        self._driver = (await self._connection.get_raw_connection()).driver_connection

    async def close(self) -> None:
        connection, driver = self._connection, self._driver
        self._connection = self._driver = None
        if connection is not None:
            await _give_up(connection, driver)


class PostgresNotifier(OwnConnection):
    """A LISTEN that is made when first needed, and made again when its connection is lost."""

    _is_connecting = False

    async def listen(self, on_growth: Callable[[], None]) -> None:
        """Call `on_growth` at every notification from now on; connects if there is no connection."""
        # Several tails may ask at once; one of them connects.
        if self._is_connecting or (self._connection and not self._driver.is_closed()):
            return
        self._is_connecting = True
        try:
            await self.close()
            await self._connect()
            await self._driver.add_listener(CHANNEL, lambda *_: on_growth())
            _log.debug("listening channel=%s", CHANNEL)
        except BaseException:
            await self.close()
            raise
        finally:
            self._is_connecting = False


@asynccontextmanager
async def translate_errors(place: str) -> AsyncIterator[None]:
    """Raise errors of the database and of the connection as errors of voda that name the log."""
    try:
        yield
    except _FORESEEN as error:
        raise translate_error(error, place) from error
    except UnicodeDecodeError as error:
        # A server without data checksums returns whatever its pages contain.
        raise LogDamaged(
            f"{place} is damaged (it returns undecodable text): run 'voda log verify {place}', restore it from a copy"
        ) from error


def translate_error(error: Exception, place: str) -> VodaError:
    """Return voda's error for a database error, by its SQLSTATE (PostgreSQL documentation, appendix A)."""
    cause = getattr(error, "orig", None) or error
    state = str(getattr(cause, "sqlstate", None) or "")
    said = str(cause).splitlines()[0].rpartition(">: ")[2] if str(cause) else type(cause).__name__
    match state[:2], state:
        case "28", _:
            return InvalidInput(f"{place} refuses the user or password: {said}")
        case _, "3D000":
            return InvalidInput(f"{place}: {said}; create it with 'createdb'")
        case _, "42P01" | "42703":
            return NotALog(f"{place} holds no complete voda log ({said}): run 'voda log migrate {place}' first")
        case _, "53100":
            return StoreNotWritable(f"{place} cannot grow: the disk is full ({said}); free some space")
        case _, "25006" | "42501":
            return StoreNotWritable(f"{place} may not be written: {said}")
        case ("XX", "XX001" | "XX002") | ("23", _):
            return LogDamaged(f"{place} is damaged ({said}): run 'voda log verify {place}', restore it from a copy")
        case _:
            return StoreUnavailable(f"{place} does not answer: {said}; try again")

"""Makes connections to PostgreSQL, and ends them; refuses servers whose settings may lose acknowledged events.

Rule: a commit is acknowledged once it is on the server's disk. What a session can set for that, voda sets; a server
that answers earlier is refused, unless the URL allows it, in one sentence that names the setting.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import event, text
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from voda.domain.errors import InvalidInput

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
    """Return the engine; it makes no connection yet.

    Raises:
        InvalidInput: the URL has an unknown option.
    """
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
    """Raise if a power cut may lose events that the server acknowledged, and warn of other risky settings.

    Args:
        connection: to the server.
        place: of the log.
        takes_any: warn instead of raising.

    Raises:
        InvalidInput: the server has fsync=off.
    """
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


async def give_up(connection: AsyncConnection, driver: Any) -> None:
    """End a connection in any state.

    Args:
        connection: it leaves the pool in any case.
        driver: the driver's own connection, if known.
    """
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

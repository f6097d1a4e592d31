"""Makes connections with PostgreSQL, and gives them up.

Rule: on each of them a commit is answered once it is on the server's disk, as far as a session can see to that.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from voda.domain.errors import InvalidInput

_OPTIONS: Final = {"sslmode": "ssl", "host": "host", "port": "port"}
"""What may stand behind the question mark of a URL, in PostgreSQL's words, and the driver's word for it."""
_SYNC: Final = "sync"
"""An option of voda's own; the driver is not told."""
_SYNCS: Final = ("always", "any")
# Set also where it is the server's already: a server that is told another one meanwhile would change it under us. What
# waits for more than the disk, or for no standby, is the operator's choice.
_WAIT_FOR_DISK: Final = (
    "SELECT set_config('synchronous_commit', CASE found WHEN 'off' THEN 'on' ELSE found END, false)"
    " FROM current_setting('synchronous_commit') AS found"
)

_log = logging.getLogger(__name__)


def engine(url: URL, *, read_only: bool, timeout_s: float) -> AsyncEngine:
    """Return what makes connections; none is made yet.

    Raises:
        InvalidInput: the URL has an option that is none.
    """
    settings = {
        "application_name": "voda",
        "default_transaction_read_only": "on" if read_only else "off",
        # A writer that freezes while it holds the lock must not stop all others for good.
        "idle_in_transaction_session_timeout": str(round(timeout_s * 1000)),
    }
    made = create_async_engine(
        url.set(drivername="postgresql+asyncpg", query=_options(url)),
        # A server may be set to repeatable read, under which the lock's winner would not see the loser's events.
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        pool_timeout=timeout_s,
        connect_args={"timeout": timeout_s, "command_timeout": timeout_s, "server_settings": settings},
    )
    if not read_only:
        event.listen(made.sync_engine, "connect", _wait_for_disk)
    return made


def takes_any_sync(url: URL) -> bool:
    """Return whether the URL takes a server that answers before it has written to the disk."""
    return url.query.get(_SYNC) == "any"


async def give_up(connection: AsyncConnection, driver: Any) -> None:
    """End a connection, in whatever state it is.

    Args:
        connection: not of the pool any more, whatever comes of this.
        driver: the driver's own, if it is known.
    """
    try:
        await connection.invalidate()
    except BaseException as error:
        if driver is not None:
            # Without a word: what it holds, such as a lock, is not to be held any longer.
            driver.terminate()
        if not isinstance(error, Exception):
            raise
        # It is given up for a reason as a rule, and that one is to be told.
        _log.debug("a connection could not be ended reason=%r", error)
    finally:
        await connection.close()


def _wait_for_disk(connection: Any, _record: object) -> None:
    connection.run_async(_set)


async def _set(driver: Any) -> None:
    try:
        await driver.execute(_WAIT_FOR_DISK)
    except BaseException:
        # The pool has not got it yet, so nobody else would end it.
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

"""The Lease in PostgreSQL: an advisory lock, held by a session that the server ends after a silence.

Rules: the server alone decides who holds the lock, by its own timer (idle_session_timeout) and the end of sessions; a
holder whose session ended has lost it, whatever the clock says. If the server was restarted or a standby took over, the
former holder keeps the Lease for as long as it may not know that its session ended. The session serves this purpose
alone and is never pooled, because the lock belongs to it.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator
from typing import Any, Final

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from voda.domain.errors import ChangedMeanwhile, InvalidInput
from voda.domain.lease import Lease
from voda.events.types import LEADERSHIP
from voda.log.lease.poll import poll
from voda.log.sql import schema
from voda.log.sql.postgres import PostgresDatabase
from voda.log.sql.postgres_engine import translate_errors

_NAME_PREFIX: Final = "voda leads: "
"""First words of the application_name of a session that holds a Lease; the holder follows."""
_UNKNOWN: Final = "another replica"
"""Stands for a holder whose name this role may not see."""
_SILENCE: Final = "idle_session_timeout"
_SETTING: Final = f"SELECT setting FROM pg_settings WHERE name = '{_SILENCE}'"
_MOST_NAME_BYTES: Final = 63
"""Longest application_name; the server would cut a longer one, and replace what is not ASCII."""
_WAIT_S: Final = 5.0


class _Row(Struct, frozen=True, array_like=True):
    """The state of the lock on the server."""

    server: str
    """Which run of the server: the time of its start, in microseconds."""
    epoch: int
    """Highest epoch claimed in the log."""
    session: str | None
    """The session that holds the lock; None = it is free."""
    application: str | None


class PostgresLease:
    """See LeaseStore; it uses connections of its own to the log's database."""

    def __init__(self, database: PostgresDatabase, name: str) -> None:
        self.key = f"{name} in {database.place}"
        self._database = database
        # A lock of two numbers; appends take one of one number, so the two never conflict.
        self._lock = f"{schema.APPLICATION_ID}, {zlib.crc32(name.encode()) & 0x7FFF_FFFF}"
        self._look = _look(self._lock)
        self._session: Any = None
        """asyncpg's connection; the server notices that it was broken, or hears nothing on it any more."""
        self._mine: Lease | None = None
        self._last = ("", "")
        """The run of the server on which another holder was last seen, and that holder."""
        self._nudge = asyncio.Event()

    async def read(self) -> Lease | None:
        if self._session is not None and self._session.is_closed():
            # This is known without asking the server, which may be away.
            return _free(epoch=0, version="lost")
        (found,) = await self._database.fetch(self._look, {})
        return self._judged(_Row(*found))

    async def take(self, seen: Lease | None, *, holder: str, transitions: int, duration_s: float) -> Lease:
        """See LeaseStore.take; raises InvalidInput if the server cannot end silent sessions."""
        self._drop()
        session = await _open_session(self._database, name=f"{_NAME_PREFIX}{holder}", silence_s=duration_s)
        try:
            async with translate_errors(self._database.place):
                if not await session.fetchval(f"SELECT pg_try_advisory_lock({self._lock})"):
                    raise ChangedMeanwhile(f"{self.key} is held by another session")
                row = _Row(*await session.fetchrow(self._look))
        except BaseException:
            session.terminate()
            raise
        session.add_termination_listener(lambda _: self._nudge.set())
        self._session, self._last = session, ("", "")
        lease = _free(epoch=transitions, version=f"{row.server} {row.session}")
        self._mine = replace(lease, holder=holder, duration_s=duration_s)
        return self._mine

    async def renew(self, mine: Lease) -> Lease:
        session = self._require_session()
        async with translate_errors(self._database.place):
            row = _Row(*await session.fetchrow(self._look))
        if f"{row.server} {row.session}" != mine.version:
            # A pooler on the way to the server has changed the session.
            self._drop()
            raise ChangedMeanwhile(f"{self.key} is not held by this session")
        return mine

    async def release(self, mine: Lease) -> None:
        try:
            session = self._require_session()
            async with translate_errors(self._database.place):
                await session.fetchval(f"SELECT pg_advisory_unlock({self._lock})")
        finally:
            self._drop()

    def watch(self) -> AsyncGenerator[Lease | None, None]:
        return poll(self.read, self._nudge)

    def _require_session(self) -> Any:
        if self._session is None or self._session.is_closed():
            raise ChangedMeanwhile(f"{self.key}: the session that held it has ended")
        return self._session

    def _drop(self) -> None:
        session, self._session, self._mine = self._session, None, None
        if session is not None:
            session.terminate()

    def _judged(self, row: _Row) -> Lease:
        version = f"{row.server} {row.session}"
        if self._mine is not None:
            return self._mine if self._mine.version == version else _lease_of(row, version)
        server, holder = self._last
        if row.session is None and holder and server != row.server:
            # The former holder may have been cut off as this process was, and not know that its session ended.
            return replace(_free(epoch=row.epoch, version=version), holder=holder, is_enforced=False)
        lease = _lease_of(row, version)
        self._last = (row.server, lease.holder)
        return lease


async def _open_session(database: PostgresDatabase, *, name: str, silence_s: float) -> Any:
    """Return asyncpg's connection of a session that the server ends after so long without a statement.

    Raises:
        InvalidInput: the server is older than 14, or is reached through a pooler.
        StoreUnavailable: it does not answer.
    """
    wanted = str(round(silence_s * 1000))
    settings = {"application_name": _ascii(name), _SILENCE: wanted, "statement_timeout": wanted}
    limits = {"timeout": _WAIT_S, "command_timeout": _WAIT_S}
    async with translate_errors(database.place):
        try:
            session = await asyncpg.connect(**database.connect_arguments(), **limits, server_settings=settings)
        except asyncpg.PostgresError as error:
            if _SILENCE in str(error):
                raise _unavailable(database.place, str(error)) from error
            raise
        try:
            found = await session.fetchval(_SETTING)
        except BaseException:
            session.terminate()
            raise
    if found != wanted:
        session.terminate()
        raise _unavailable(database.place, f"{_SILENCE} is {found} ms, expected {wanted}")
    return session


def _lease_of(row: _Row, version: str) -> Lease:
    free = _free(epoch=row.epoch, version=version)
    if row.session is None:
        return free
    return replace(free, holder=(row.application or "").removeprefix(_NAME_PREFIX) or _UNKNOWN)


def _free(*, epoch: int, version: str) -> Lease:
    return Lease(holder="", transitions=epoch, duration_s=0.0, renewed_at="", version=version, is_enforced=True)


def _look(lock: str) -> str:
    group, number = lock.split(", ")
    return (
        "SELECT CAST(pg_postmaster_start_time() AS text),"
        f" (SELECT coalesce(max(epoch), 0) FROM streams WHERE stream = '{LEADERSHIP}'),"
        " CAST(locks.pid AS text) || ' ' || coalesce(CAST(sessions.backend_start AS text), ''),"
        " sessions.application_name FROM (SELECT 1) AS one LEFT JOIN"
        " (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        f" AND classid = {group} AND objid = {number}) AS locks ON true"
        " LEFT JOIN pg_stat_activity AS sessions ON sessions.pid = locks.pid"
    )


def _ascii(name: str) -> str:
    return name.encode("ascii", "replace")[:_MOST_NAME_BYTES].decode()


def _unavailable(place: str, found: str) -> InvalidInput:
    return InvalidInput(
        f"{place} cannot tell that a leader is silent: expected PostgreSQL 14 or newer, asked directly and not through"
        f" a pooler such as pgbouncer, got: {found}"
    )

"""The Lease in PostgreSQL: an advisory lock, held by a session that the server ends once it hears nothing on it.

Rules: the server alone judges who holds it, by its own timer (idle_session_timeout) and by its sessions' ends; a holder
whose session ended has lost it, whatever the clock says. What was held on another run of the server, or on a standby
that took its place, is left to its holder for as long as it may not know.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.errors import ChangedMeanwhile
from voda.domain.lease import Lease
from voda.events.types import LEADERSHIP
from voda.log.lease.polling import poll
from voda.log.postgres.database import PostgresDatabase
from voda.log.postgres.errors import translate_errors
from voda.log.postgres.session import LeaseSession
from voda.log.sql import schema

_MINE: Final = "voda leads: "
"""Begins the application_name of a session that holds a Lease, for administrators; the holder follows."""
_UNKNOWN: Final = "another replica"
"""A holder whose name this role may not see."""


class _Row(Struct, frozen=True, array_like=True):
    """What the server says of the lock."""

    server: str
    """Which run of the server it is: when it was started, which nobody else was at the same microsecond."""
    epoch: int
    """Highest that was claimed in the log."""
    session: str | None
    """Whose the lock is; None: it is free."""
    application: str | None


class PostgresLease:
    """See LeaseStore.

    Args:
        database: with the log; it is asked on connections of its own.
        name: of the Lease.
    """

    def __init__(self, database: PostgresDatabase, name: str) -> None:
        self.key = f"{name} in {database.place}"
        self._database = database
        # Two numbers: appends lock by one number, so they never meet.
        self._lock = f"{schema.APPLICATION_ID}, {zlib.crc32(name.encode()) & 0x7FFF_FFFF}"
        self._look = _look(self._lock)
        self._session: LeaseSession | None = None
        self._mine: Lease | None = None
        self._last = ("", "")
        """On which run of the server it was last seen held, and by whom else."""
        self._nudge = asyncio.Event()

    async def read(self) -> Lease | None:
        """See LeaseStore.read.

        Raises:
            StoreUnavailable: the server does not answer.
        """
        if self._session is not None and self._session.is_lost:
            # So much is known without the server, which may be away; whoever tries to take it will be told the rest.
            return _free(epoch=0, version="lost")
        (found,) = await self._database.fetch(self._look, {})
        return self._judged(_Row(*found))

    async def take(self, seen: Lease | None, *, holder: str, transitions: int, duration_s: float) -> Lease:
        """See LeaseStore.take.

        Raises:
            ChangedMeanwhile: another session holds it.
            InvalidInput: the server cannot judge who is silent.
            StoreUnavailable: it does not answer.
        """
        self._drop()
        session = await LeaseSession.open(self._database, name=f"{_MINE}{holder}", silence_s=duration_s)
        try:
            async with translate_errors(self._database.place):
                if not await session.fetch_value(f"SELECT pg_try_advisory_lock({self._lock})"):
                    raise ChangedMeanwhile(f"{self.key} is held by another session")
                row = _Row(*await session.fetch_row(self._look))
        except BaseException:
            session.abort()
            raise
        session.on_end(self._nudge.set)
        self._session, self._last = session, ("", "")
        self._mine = Lease(
            holder=holder,
            transitions=transitions,
            duration_s=duration_s,
            renewed_at="",
            version=f"{row.server} {row.session}",
            is_enforced=True,
        )
        return self._mine

    async def renew(self, mine: Lease) -> Lease:
        """See LeaseStore.renew."""
        session = self._held()
        async with translate_errors(self._database.place):
            row = _Row(*await session.fetch_row(self._look))
        if f"{row.server} {row.session}" != mine.version:
            # A pooler between here and the server has changed the session under us.
            self._drop()
            raise ChangedMeanwhile(f"{self.key} is not held by this session")
        return mine

    async def release(self, mine: Lease) -> None:
        """See LeaseStore.release."""
        try:
            session = self._held()
            async with translate_errors(self._database.place):
                await session.fetch_value(f"SELECT pg_advisory_unlock({self._lock})")
        finally:
            self._drop()

    def watch(self) -> AsyncGenerator[Lease | None, None]:
        """See LeaseStore.watch."""
        return poll(self.read, self._nudge)

    def _held(self) -> LeaseSession:
        if self._session is None or self._session.is_lost:
            raise ChangedMeanwhile(f"{self.key}: the session that held it has ended")
        return self._session

    def _drop(self) -> None:
        session, self._session, self._mine = self._session, None, None
        if session is not None:
            session.abort()

    def _judged(self, row: _Row) -> Lease:
        version = f"{row.server} {row.session}"
        if self._mine is not None:
            return self._mine if self._mine.version == version else _seen(row, version)
        server, holder = self._last
        if row.session is None and holder and server != row.server:
            # It may have been cut off from the server together with us, and not know that its session ended.
            return replace(_free(epoch=row.epoch, version=version), holder=holder, is_enforced=False)
        lease = _seen(row, version)
        self._last = (row.server, lease.holder)
        return lease


def _seen(row: _Row, version: str) -> Lease:
    free = _free(epoch=row.epoch, version=version)
    if row.session is None:
        return free
    return replace(free, holder=(row.application or "").removeprefix(_MINE) or _UNKNOWN)


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

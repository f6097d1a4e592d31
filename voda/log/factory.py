"""Opens a log by its path or URL: SQLite, PostgreSQL, NATS JetStream, or a folder of segments; finds its Lease.

Rules: what is not a voda log is refused in one sentence before anything is changed; a store's libraries are imported
with the first log of its kind, because the import takes more than half of a start. The store that decides who leads is
the one that refuses the decisions of a former leader.
"""

import asyncio
from pathlib import Path
from typing import Final

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from voda import config
from voda.clock import Clock
from voda.domain.errors import InvalidInput, NotALog
from voda.domain.lease import LeaseStore
from voda.log import jetstream
from voda.log.archive.archive import Archive
from voda.log.archive.archive_backed_store import ArchiveBackedStore, SegmentStore
from voda.log.sql import sqlite_file
from voda.log.sql.sqlite import SqliteDatabase
from voda.log.sql.store import SqlStore
from voda.log.store import DurableStore, EventStore

DEFAULT_TIMEOUT_S = 10.0


async def open_store(
    location: str | Path, *, read_only: bool = False, timeout_s: float = DEFAULT_TIMEOUT_S
) -> DurableStore:
    """Open the log for appending, or for reading only; the caller closes it.

    Args:
        location: a path or `sqlite:///path` (created, and migrated, as needed unless read-only), or
            `postgresql://user:password@host/database` or `nats://user:password@host/stream` (made and migrated by
            `voda log migrate` alone).
        timeout_s: longest wait for a database's answer or for another process's lock.

    Raises:
        InvalidInput: there is no such log, folder, database or user.
        NotALog, LogDamaged, LogTooNew: what was found there cannot be used.
        StoreNotWritable: it may only be read.
        StoreUnavailable: try again.
    """
    path = sqlite_path(location)
    store: DurableStore
    if jetstream.is_nats(location):
        store = await jetstream.open_store(str(location), read_only=read_only, timeout_s=timeout_s)
    elif path is None:
        config.require("postgres")
        from voda.log.sql.postgres import PostgresDatabase

        store = SqlStore(await PostgresDatabase.open(str(location), read_only=read_only, timeout_s=timeout_s))
    else:
        await asyncio.to_thread(_prepare_sqlite, path, read_only)
        store = SqlStore(await SqliteDatabase.open(path, timeout_s=timeout_s, read_only=read_only))
    if not read_only:
        try:
            await store.refuse_cut()
        except BaseException:
            await store.close()
            raise
    return store


async def migrate_log(location: str | Path) -> None:
    """Create or update the storage of a log: tables in PostgreSQL, streams in NATS, an existing SQLite file."""
    path = sqlite_path(location)
    if jetstream.is_nats(location):
        await jetstream.migrate(str(location))
    elif path is None:
        config.require("postgres")
        from voda.log.sql.postgres import PostgresDatabase

        await PostgresDatabase.migrate(str(location))
    elif not path.exists():
        raise InvalidInput(f"{path}: there is no such log; the first command that writes to it makes one")
    else:
        await (await open_store(path)).close()


async def open_log(location: str | Path, *, archive: Path | None = None) -> EventStore:
    """Open a log for reading: a database or a folder of segments.

    A log whose end was lost is opened too: see refuse_cut.

    Args:
        location: as in open_store, or a folder of segments.
        archive: folder of the log's archive; None = the one that VODA_ARCHIVE names, else the one that the log names.
    """
    path = sqlite_path(location)
    if path is not None and path.is_dir():
        return SegmentStore(open_archive(path))
    return ArchiveBackedStore(await open_store(location, read_only=True), archive or config.archive())


async def refuse_cut(store: EventStore) -> None:
    """Raise LogDamaged if the log that open_log returned once reached further than it does now.

    A folder of segments cannot tell.
    """
    if isinstance(store, ArchiveBackedStore):
        await store.refuse_cut()


def open_archive(path: Path) -> Archive:
    """Open a folder of segments; raises NotALog if it has none."""
    archive = Archive.open(path)
    if not archive.segments:
        raise NotALog(f"{path} is a directory without segments of a log: expected a log, or a copy of one")
    return archive


def sqlite_path(location: str | Path) -> Path | None:
    """Return the file of a path or an SQLite URL; None for PostgreSQL and NATS; raises InvalidInput for other URLs."""
    if isinstance(location, Path) or "://" not in location:
        return Path(location)
    if jetstream.is_nats(location):
        return None
    try:
        url = make_url(location)
    except ArgumentError as error:
        without_password = location.rpartition("@")[2]
        raise InvalidInput(f"{without_password!r} is no URL: expected postgresql://user@host/database") from error
    match url.get_backend_name():
        case "sqlite" if url.database:
            return Path(url.database)
        case "postgresql" | "postgres":
            return None
    raise InvalidInput(f"expected a log in SQLite, PostgreSQL or NATS, got {url.render_as_string()}")


def display_name(location: str | Path) -> str:
    """Return the name of a log for output: its path, or its URL without the password."""
    if jetstream.is_nats(location):
        return jetstream.display_name(str(location))
    return str(location) if sqlite_path(location) else make_url(str(location)).render_as_string()


def _prepare_sqlite(path: Path, read_only: bool) -> None:
    if not read_only and not path.exists():
        sqlite_file.create(path)
    sqlite_file.check(path)


NAME: Final = "leader"
"""Of the Lease of a log."""


def lease_of(store: EventStore, name: str = NAME, *, clock: Clock) -> LeaseStore:
    """Return a candidate's access to the Lease in the store of a log; nothing is opened or to be closed.

    Args:
        store: opened for appending; it must stay open while the Lease is used.
        name: the same for all candidates; of letters, digits, `-` and `.`.
        clock: dates renewals, for people to read.

    Raises:
        InvalidInput: the store has no Leases.
    """
    if not isinstance(store, SqlStore):
        if (lease := jetstream.lease_of(store, name, clock=clock)) is not None:
            return lease
    elif not isinstance(store.database, SqliteDatabase):
        from voda.log.lease.postgres import PostgresLease
        from voda.log.sql.postgres import PostgresDatabase

        assert isinstance(store.database, PostgresDatabase), store.database
        return PostgresLease(store.database, name)
    raise InvalidInput("leader.election: this log elects no leader, expected one in PostgreSQL or NATS JetStream")

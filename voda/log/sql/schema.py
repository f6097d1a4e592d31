"""The tables of the log, their migration, and the SQL that SQLite and PostgreSQL both understand.

Rules: `events.body` is the truth, the columns beside it only help to find it. Tables change by a new revision in
migrations/, every released revision stays in `REVISIONS`, and a migration never touches tables of a newer version or
of another application.
"""

from pathlib import Path
from threading import Lock

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

import voda
from voda.domain.errors import LogTooNew, NotALog

REVISIONS = ("0001", "0002", "0003")
"""Alembic revisions, oldest first; the last is the one that this version reads and writes."""
REVISION_TABLE = "voda_revision"
"""Alembic's own table, under a name that shows that the tables are voda's."""
APPLICATION_ID = 0x766F6461
"""The application id in the header of an SQLite file: the letters "voda"."""

# Alembic has its state in a module's globals.
_ONE_AT_A_TIME = Lock()

# SQLite takes only the word INTEGER for the number that a row is found by.
_position = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData()

events = Table(
    "events",
    metadata,
    Column("position", _position, primary_key=True, autoincrement=False),
    Column("stream", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("recorded_at", Double, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("hash", Text, nullable=False),
    Index("events_event_id", "event_id", unique=True),
    Index("events_stream_version", "stream", "version", unique=True),
)

streams = Table(
    "streams",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("name", Text, primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("pieces", BigInteger, nullable=False),
)
"""A row is written once all of its pieces are there, with the SHA-256 of them together."""

snapshot_pieces = Table(
    "snapshot_pieces",
    metadata,
    Column("name", Text, primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("hash", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
"""Two processes that write a snapshot of one position keep their pieces apart by the hash."""

archived = Table(
    "archived",
    metadata,
    Column("position", _position, primary_key=True, autoincrement=False),
    Column("base", LargeBinary, nullable=False),
    Column("hash", Text, nullable=False),
)
"""The last row is the log's base; no row = the log is whole."""

_revision_table = Table(
    REVISION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{REVISION_TABLE}_pkc"),
)
"""As Alembic makes it."""

# A log whose events were all archived ends where it begins.
_ENDS = "(SELECT max(position) AS position FROM events UNION ALL SELECT max(position) FROM archived)"
READ = "SELECT position, body, hash FROM events WHERE position > :after ORDER BY position LIMIT :limit"
READ_STREAM = (
    "SELECT position, body, hash FROM events WHERE stream = :stream AND position > :after ORDER BY version LIMIT :limit"
)
SIZES = "SELECT length(body), position FROM events WHERE position > :after ORDER BY position LIMIT :limit"
STREAM_SIZES = (
    "SELECT length(body) FROM events WHERE stream = :stream AND position > :after ORDER BY version LIMIT :limit"
)
POSITION_IN_STREAM = "SELECT position FROM events WHERE stream = :stream AND version = :version"
HASH_AT = "SELECT hash FROM events WHERE position = :position"
READ_ROWS = (
    "SELECT position, stream, version, event_id, type, recorded_at, body, hash FROM events"
    " WHERE position > :after ORDER BY position LIMIT :limit"
)
POSITION = f"SELECT coalesce(max(position), 0) FROM {_ENDS} AS ends"
# A subquery for the event: a join might scan all events where the database has no statistics.
STORED_HEADS = (
    "SELECT stream, version, hash, epoch, position,"
    " (SELECT body FROM events WHERE events.position = streams.position) AS body,"
    " (SELECT coalesce(max(position), 0) FROM archived) AS base FROM streams"
)
"""Columns of `voda.log.sql.rows.StoredHead`."""
HEAD = f"{STORED_HEADS} WHERE stream = :stream"
# A damaged SQLite file may hold text where its column promises a number; cast, it counts as nothing.
HEAD_POSITION = "SELECT CAST(version AS BIGINT), CAST(position AS BIGINT) FROM streams WHERE stream = :stream"
REPLACING_HEAD = (
    "ON CONFLICT (stream) DO UPDATE SET version = excluded.version, hash = excluded.hash, epoch = excluded.epoch,"
    " position = excluded.position"
)
HEADS = "SELECT stream, version, hash, epoch FROM streams"
ENDS = (
    "SELECT ends.position, streams.stream, streams.version, streams.hash, streams.epoch"
    f" FROM (SELECT coalesce(max(position), 0) AS position FROM {_ENDS} AS found) AS ends LEFT JOIN streams ON true"
)
SAVE_PIECE = (
    "INSERT INTO snapshot_pieces (name, position, hash, number, data)"
    " VALUES (:name, :position, :hash, :number, :data) ON CONFLICT DO NOTHING"
)
SAVE_SNAPSHOT = (
    "INSERT INTO snapshots (name, position, hash, pieces) VALUES (:name, :position, :hash, :pieces)"
    " ON CONFLICT (name, position) DO UPDATE SET hash = excluded.hash, pieces = excluded.pieces"
)
DROP_SNAPSHOTS = (
    "DELETE FROM snapshots WHERE name = :name AND position NOT IN"
    " (SELECT position FROM snapshots WHERE name = :name ORDER BY position DESC LIMIT :keep)"
)
# Also those of a process that was killed before it wrote the row.
DROP_PIECES = (
    "DELETE FROM snapshot_pieces WHERE name = :name"
    " AND position < (SELECT min(position) FROM snapshots WHERE name = :name)"
)
LATEST_SNAPSHOT = (
    "SELECT name, position, hash, pieces FROM snapshots"
    " WHERE name = :name AND position <= :at_most ORDER BY position DESC LIMIT 1"
)
PIECE = (
    "SELECT data FROM snapshot_pieces WHERE name = :name AND position = :position AND hash = :hash AND number = :number"
)
SNAPSHOTS = "SELECT name, position FROM snapshots ORDER BY position, name"
REACHED = (
    "SELECT coalesce(max(CAST(position AS BIGINT)), 0)"
    " FROM (SELECT position FROM streams UNION ALL SELECT position FROM snapshots) AS marks"
)
BASE_POSITION = "SELECT coalesce(max(position), 0) FROM archived"
BASE = "SELECT position, base, hash FROM archived ORDER BY position DESC LIMIT 1"
SAVE_BASE = "INSERT INTO archived (position, base, hash) VALUES (:position, :base, :hash) ON CONFLICT DO NOTHING"
DROP_BASES = "DELETE FROM archived WHERE position < (SELECT max(position) FROM archived)"
FIRST_POSITION = "SELECT coalesce(min(position), 0) FROM events"
DROP_EVENTS = "DELETE FROM events WHERE position > :after AND position <= :until"
KNOWN_REVISION = f"SELECT version_num FROM {REVISION_TABLE}"


def is_current(revision: str | None, place: str) -> bool:
    """Return whether a database's tables are those of this version; False means they are older.

    Raises:
        NotALog: it has no revision.
        LogTooNew: its revision is unknown here.
    """
    if revision is None:
        raise NotALog(f"{place} is not a voda log: it holds no {REVISION_TABLE}")
    if revision not in REVISIONS:
        raise LogTooNew(
            f"{place} was written by a newer voda (its tables are of revision {revision}, this version knows up to"
            f" {REVISIONS[-1]}): upgrade voda to open it"
        )
    return revision == REVISIONS[-1]


def create(connection: Connection) -> None:
    """Lay out an empty database as all revisions together do, without them; the caller commits."""
    # The way of the revisions imports much, which would be a third of a first start.
    metadata.create_all(connection)
    _revision_table.create(connection)
    connection.execute(_revision_table.insert().values(version_num=REVISIONS[-1]))


def upgrade(connection: Connection) -> None:
    """Run all revisions that the database lacks; the caller commits."""
    # Imported here: few starts migrate, and it takes long.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(revisions_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _ONE_AT_A_TIME:
        command.upgrade(config, "head")


def revisions_folder() -> Path:
    """Return the folder of the revisions: inside an installed package, beside it in a checkout."""
    package = Path(voda.__file__).parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"

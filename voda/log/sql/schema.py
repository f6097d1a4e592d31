"""The tables of the log, the same in SQLite and PostgreSQL, and the SQL that both understand.

Rule: `events.body` is the truth; the columns beside it only find it again. Tables change by a new revision in
migrations/, and every revision ever released stays in `REVISIONS`.
"""

from sqlalchemy import BigInteger, Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text

from voda.domain.errors import LogTooNew, NotALog

REVISIONS = ("0001", "0002")
"""Alembic revisions, oldest first; the last is the one that this version reads and writes."""
REVISION_TABLE = "voda_revision"
"""Alembic's own table, named so that its presence says whose tables these are."""
APPLICATION_ID = 0x766F6461
"""SQLite's mark of whose file it is: the letters "voda"."""

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
    Column("state", LargeBinary, nullable=False),
    Column("state_hash", Text, nullable=False),
    Column("heads", LargeBinary, nullable=False),
)

archived = Table(
    "archived",
    metadata,
    Column("position", _position, primary_key=True, autoincrement=False),
    Column("base", LargeBinary, nullable=False),
    Column("hash", Text, nullable=False),
)
"""Where the log begins: its last row; none = the log is whole."""

# A log whose events were all archived ends where it begins.
_ENDS = "(SELECT max(position) AS position FROM events UNION ALL SELECT max(position) FROM archived)"
READ = "SELECT position, body, hash FROM events WHERE position > :after ORDER BY position LIMIT :limit"
READ_STREAM = (
    "SELECT position, body, hash FROM events WHERE stream = :stream AND position > :after ORDER BY version LIMIT :limit"
)
POSITION_IN_STREAM = "SELECT position FROM events WHERE stream = :stream AND version = :version"
HASH_AT = "SELECT hash FROM events WHERE position = :position"
READ_ROWS = (
    "SELECT position, stream, version, event_id, type, recorded_at, body, hash FROM events"
    " WHERE position > :after ORDER BY position LIMIT :limit"
)
POSITION = f"SELECT coalesce(max(position), 0) FROM {_ENDS} AS ends"
# The event by a query of its own: a join might pass through all events where the database knows too little of them.
STORED_HEADS = (
    "SELECT stream, version, hash, epoch, position,"
    " (SELECT body FROM events WHERE events.position = streams.position) AS body,"
    " (SELECT coalesce(max(position), 0) FROM archived) AS base FROM streams"
)
"""Columns of `voda.log.sql.heads.StoredHead`."""
HEAD = f"{STORED_HEADS} WHERE stream = :stream"
# A damaged SQLite file may hold text where its column promises a number; cast, it counts as nothing.
HEAD_POSITION = "SELECT CAST(version AS BIGINT), CAST(position AS BIGINT) FROM streams WHERE stream = :stream"
HEADS = "SELECT stream, version, hash, epoch FROM streams"
ENDS = (
    "SELECT ends.position, streams.stream, streams.version, streams.hash, streams.epoch"
    f" FROM (SELECT coalesce(max(position), 0) AS position FROM {_ENDS} AS found) AS ends LEFT JOIN streams ON true"
)
SAVE_SNAPSHOT = (
    "INSERT INTO snapshots (name, position, state, state_hash, heads)"
    " VALUES (:name, :position, :state, :state_hash, :heads) ON CONFLICT (name, position)"
    " DO UPDATE SET state = excluded.state, state_hash = excluded.state_hash, heads = excluded.heads"
)
DROP_SNAPSHOTS = (
    "DELETE FROM snapshots WHERE name = :name AND position NOT IN"
    " (SELECT position FROM snapshots WHERE name = :name ORDER BY position DESC LIMIT :keep)"
)
LATEST_SNAPSHOT = (
    "SELECT name, position, state, state_hash, heads FROM snapshots"
    " WHERE name = :name AND position <= :at_most ORDER BY position DESC LIMIT 1"
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

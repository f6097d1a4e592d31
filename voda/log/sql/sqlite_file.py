"""The file of an SQLite log: checked, created and opened; SQLite's errors, in voda's words.

Rule: a file that voda did not make is never opened for writing, a new log appears under its name only when it is
complete, and opening for reading creates and changes nothing.
"""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, StaticPool, create_engine, event
from sqlalchemy.exc import DBAPIError

from voda.domain.errors import InvalidInput, LogDamaged, NotALog, StoreNotWritable, StoreUnavailable, VodaError
from voda.files import open_private, sync
from voda.log.sql import schema
from voda.log.sql.sqlite_journal import mark_path

# The low byte of an extended error code is the kind of error.
_KIND = 0xFF
# Python's own error, without a code; the rest of it quotes the bytes.
_NO_TEXT = "Could not decode to UTF-8"
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100

Stamp = tuple[int, int]
"""Time of the last change in nanoseconds, and size in bytes."""


def create(path: Path) -> None:
    """Create an empty log, whole or not at all, even if two processes create it at once."""
    if not path.parent.is_dir():
        raise InvalidInput(f"cannot create {path}: folder {path.parent} does not exist; create it first")
    # Another process that creates the log now creates its journal afterwards.
    if journal(path).exists() and not path.exists():
        raise LogDamaged(
            f"{path} is missing, but its journal {journal(path).name} is there: restore the log from a copy, or move"
            " the journal away to begin anew"
        )
    try:
        mark_path(path).unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            new = Path(folder) / "new"
            with translate_errors(path):
                _fill(new)
            _publish(new, path)
    except OSError as error:
        raise StoreNotWritable(
            f"cannot create {path}: {error.strerror}; choose a writable folder with free space"
        ) from error


def check(path: Path) -> None:
    """Raise InvalidInput, NotALog or LogDamaged if a file cannot be a log, by its first bytes, unopened by SQLite."""
    if path.exists() and not path.is_file():
        what = "a directory" if path.is_dir() else "no regular file"
        raise NotALog(f"{path} is {what}, expected the file of a voda log")
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
            size_bytes = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise InvalidInput(f"{path}: there is no such log") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    _check_header(path, header, size_bytes)


def open_writer(path: Path) -> sqlite3.Connection:
    """Open a log for writing, and migrate it if it is of an older revision."""
    with translate_errors(path):
        writer = _connect(path, "mode=rw")
        try:
            if not schema.is_current(_revision(writer, path), str(path)):
                _migrate(writer)
            writer.execute("PRAGMA journal_mode = WAL")
            writer.execute("PRAGMA synchronous = FULL")
            _refuse_read_only(writer)
        except BaseException:
            writer.close()
            raise
        return writer


def open_reader(path: Path) -> tuple[sqlite3.Connection, Stamp | None]:
    """Open a log for reading; if a stamp is returned, results are valid only while the file has this stamp."""
    frozen_at = stamp(path)
    with translate_errors(path):
        # Without a journal no process writes; immutable keeps SQLite from creating files of its own.
        reader = _connect(path, "mode=ro&immutable=1" if frozen_at else "mode=ro")
        try:
            if not schema.is_current(_revision(reader, path), str(path)):
                raise InvalidInput(f"{path} was written by an older voda: run 'voda log migrate {path}' first")
        except BaseException:
            reader.close()
            raise
        return reader, frozen_at


def stamp(path: Path) -> Stamp | None:
    """Return a stamp that changes with the file; None while a journal shows that a process writes, or died writing."""
    if journal(path).exists():
        return None
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def journal(path: Path) -> Path:
    """Return the path of the write-ahead log; the file exists while a process writes."""
    # SQLite creates it beside the file that a link leads to.
    found = path.resolve()
    return found.with_name(f"{found.name}-wal")


def _connect(path: Path, options: str) -> sqlite3.Connection:
    # One thread at a time uses it, but not always the same one.
    return sqlite3.connect(
        f"file:{quote(str(path))}?{options}", uri=True, isolation_level=None, check_same_thread=False, timeout=5
    )


def _revision(connection: sqlite3.Connection, path: Path) -> str | None:
    tables = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (schema.REVISION_TABLE,)).fetchall()
    if not tables:
        raise LogDamaged(f"{path}: the table {schema.REVISION_TABLE} is missing; restore the log from a copy")
    found = connection.execute(schema.KNOWN_REVISION).fetchone()
    return found[0] if found else None


def _migrate(connection: sqlite3.Connection, lay_out: Callable[[Connection], None] = schema.upgrade) -> None:
    engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)

    # Locked before the revision is read: of two processes that open an old log, the second finds it migrated.
    @event.listens_for(engine, "begin")
    def _lock(begun: object) -> None:
        connection.execute("BEGIN IMMEDIATE")

    with engine.begin() as migration:
        lay_out(migration)
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")


def _fill(path: Path) -> None:
    # Manifests may hold secrets. SQLite gives the files beside it the same mode.
    os.close(open_private(path, os.O_RDWR | os.O_CREAT))
    connection = _connect(path, "mode=rwc")
    try:
        _migrate(connection, schema.create)
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


def _publish(new: Path, path: Path) -> None:
    try:
        os.link(new, path)
    except FileExistsError:
        return
    except OSError:
        # A file system without hard links; a rename would replace a log that another process created meanwhile.
        if path.exists():
            return
        new.rename(path)
    sync(path.parent)


def _refuse_read_only(writer: sqlite3.Connection) -> None:
    try:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        # If another process is writing, the log can be written.
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise


def _check_header(path: Path, header: bytes, size_bytes: int) -> None:
    if not header:
        raise NotALog(f"{path} is empty, which a voda log never is: restore it from a copy, or remove it to begin anew")
    if not header.startswith(_MAGIC[: len(header)]):
        raise NotALog(f"{path} is not a voda log: expected an SQLite database, got a file that begins {header[:12]!r}")
    if len(header) < _HEADER_BYTES:
        raise LogDamaged(f"{path} is cut: it has {size_bytes} bytes; restore it from a copy")
    if (found := int.from_bytes(header[68:72])) != schema.APPLICATION_ID:
        raise NotALog(
            f"{path} is an SQLite database of another application:"
            f" expected application_id {schema.APPLICATION_ID:#x}, got {found:#x}"
        )
    # 1 means 65,536.
    page_bytes = int.from_bytes(header[16:18]) if header[16:18] != b"\0\1" else 65_536
    expected_bytes = page_bytes * int.from_bytes(header[28:32])
    if size_bytes < expected_bytes and not journal(path).exists():
        raise LogDamaged(f"{path} is cut: expected {expected_bytes} bytes, got {size_bytes}; restore it from a copy")


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as errors of voda that name the log."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate_error(error, path) from error
    except UnicodeDecodeError as error:
        # SQLite quotes bytes that are no text.
        raise LogDamaged(
            f"{path} is damaged (its schema is no text): run 'voda log verify {path}', restore it from a copy"
        ) from error
    except DBAPIError as error:
        # Of a migration, which Alembic runs through SQLAlchemy.
        if not isinstance(error.orig, sqlite3.Error):
            raise
        raise translate_error(error.orig, path) from error


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another process holds the lock."""
    return _kind(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def translate_error(error: sqlite3.Error, path: Path) -> VodaError:
    """Return voda's error for one of SQLite's."""
    if str(error).startswith(_NO_TEXT):
        return LogDamaged(f"{path} is damaged ({_NO_TEXT}): run 'voda log verify {path}', restore it from a copy")
    match _kind(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreUnavailable(f"{path} is locked by another process; try again")
        case sqlite3.SQLITE_FULL:
            return StoreNotWritable(f"{path} cannot grow: the disk is full; free some space")
        case sqlite3.SQLITE_READONLY:
            return StoreNotWritable(f"{path} cannot be written: the file or its folder is read-only")
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return StoreNotWritable(f"{path} cannot be opened: the file or its folder does not allow it ({error})")
        case sqlite3.SQLITE_IOERR:
            return StoreNotWritable(f"{path} cannot be read or written: {error}; check the disk and its free space")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_CONSTRAINT:
            return LogDamaged(f"{path} is damaged ({error}): run 'voda log verify {path}', restore it from a copy")
        case sqlite3.SQLITE_NOTADB:
            return NotALog(f"{path} is not a voda log: {error}")
        case _:
            return StoreUnavailable(f"{path}: SQLite says: {error}")


def _kind(error: sqlite3.Error) -> int:
    # Errors of Python's own (a closed connection) carry no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _KIND

"""Translates SQLite's errors to voda's."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from voda.domain.errors import LogDamaged, NotALog, StoreNotWritable, StoreUnavailable, VodaError

# The low byte of an extended error code is the kind of error.
_KIND = 0xFF
# Python's own error, without a code; the rest of it quotes the bytes.
_NO_TEXT = "Could not decode to UTF-8"


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

"""Translates PostgreSQL's errors to voda's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asyncpg import InterfaceError, InternalClientError, PostgresError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from voda.domain.errors import InvalidInput, LogDamaged, NotALog, StoreNotWritable, StoreUnavailable, VodaError

# The driver raises InternalClientError if it has not noticed yet that the server ended the connection.
_FORESEEN = (DBAPIError, PostgresError, InterfaceError, InternalClientError, PoolTimeout, OSError, TimeoutError)


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

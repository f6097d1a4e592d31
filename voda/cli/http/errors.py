"""Turns error answers of the server into voda's own errors.

Rule: the server's sentence is passed on unchanged, and so is whether a retry may succeed.
"""

import msgspec

from voda.api.schemas.service import Problem
from voda.domain.errors import (
    AlreadyExists,
    InvalidField,
    InvalidInput,
    NotAllowed,
    NotFound,
    PermanentError,
    StoreNotWritable,
    StoreUnavailable,
    TransientError,
    VersionConflict,
    VodaError,
)

_ERRORS: dict[int, type[VodaError]] = {
    400: InvalidInput,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    408: TransientError,
    409: AlreadyExists,
    412: VersionConflict,
    413: InvalidInput,
    415: InvalidInput,
    422: InvalidInput,
    # A retry succeeds once other jobs have ended.
    429: TransientError,
    502: TransientError,
    503: StoreUnavailable,
    504: TransientError,
    507: StoreNotWritable,
}


_TOKEN = " (on the command line: --token, or VODA_TOKEN)"


def error_of(status: int, body: bytes) -> VodaError:
    """Return the error for an answer of this status.

    Args:
        status: 400 or more.
        body: a problem as JSON; any other body is quoted in the message.
    """
    problem = _problem(body)
    if problem is None:
        said = " ".join(body[:200].decode("utf-8", "replace").split())
        return _ERRORS.get(status, PermanentError)(f"the server answered {status}{f': {said}' if said else ''}")
    if problem.field and status in (400, 422):
        return InvalidField(problem.field, problem.detail)
    told = problem.detail or problem.title
    return _ERRORS.get(status, PermanentError)(f"{told}{_TOKEN if status == 401 else ''}")


def _problem(body: bytes) -> Problem | None:
    try:
        return msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        return None

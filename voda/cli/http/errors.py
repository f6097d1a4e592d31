"""Refusals of the server, told as voda's own errors.

Rule: the server's sentence is passed on as it is; whether the same call may succeed later is kept.
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
    # Room for more jobs comes with the end of others.
    429: TransientError,
    502: TransientError,
    503: StoreUnavailable,
    504: TransientError,
    507: StoreNotWritable,
}


_TOKEN = " (on the command line: --token, or VODA_TOKEN)"


def error_of(status: int, body: bytes) -> VodaError:
    """Return the error that an answer of this status means.

    Args:
        status: 400 or more.
        body: a problem as JSON; anything else is quoted.
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

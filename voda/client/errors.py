"""Exceptions for refusals of the server, with its one sentence."""

import json
from collections.abc import Mapping
from typing import Final

from voda.domain import errors
from voda.domain.errors import ClusterUnavailable, InvalidField, PermanentError, StoreUnavailable, VodaError


class ServerUnreachable(ClusterUnavailable):
    """The server cannot be reached, or the connection was lost."""


class RetryLater(StoreUnavailable):
    """The server asks to be left alone for `retry_after_s`, 0 = it did not say: its log is away, or it has enough."""

    def __init__(self, message: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ClientClosed(PermanentError):
    """The client was closed, or the call canceled."""


class WaitTimeout(errors.TransientError, TimeoutError):
    """What was waited for has not happened in time."""


_ERRORS: Final[Mapping[int, type[VodaError]]] = {
    400: errors.InvalidInput,
    401: errors.NotAllowed,
    403: errors.NotAllowed,
    404: errors.NotFound,
    408: errors.TransientError,
    409: errors.AlreadyExists,
    412: errors.VersionConflict,
    413: errors.InvalidInput,
    415: errors.InvalidInput,
    422: errors.InvalidInput,
    # A retry succeeds once other jobs have ended.
    429: RetryLater,
    502: errors.TransientError,
    503: RetryLater,
    504: errors.TransientError,
    507: errors.StoreNotWritable,
}
_TOKEN: Final = " (on the command line: --token, or VODA_TOKEN)"
_LONGEST_PAUSE_S: Final = 86_400.0


def error_of(status: int, body: bytes, *, retry_after: str = "") -> VodaError:
    """Return the error for an answer of status 400 or more; a body that is no problem as JSON is quoted."""
    problem = _problem(body)
    if problem is None:
        said = " ".join(body[:200].decode("utf-8", "replace").split())
        message = f"the server answered {status}{f': {said}' if said else ''}"
    else:
        message = problem["detail"] or problem["title"]
        if problem["field"] and status in (400, 422):
            return InvalidField(problem["field"], message)
        message = f"{message}{_TOKEN if status == 401 else ''}"
    kind = _ERRORS.get(status, PermanentError)
    return RetryLater(message, _seconds(retry_after)) if kind is RetryLater else kind(message)


def _problem(body: bytes) -> Mapping[str, str] | None:
    """Return the texts of RFC 9457's application/problem+json."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("title"), str):
        return None
    return {name: str(found.get(name, "")) for name in ("title", "detail", "field")}


def _seconds(retry_after: str) -> float:
    """Return the seconds of a Retry-After; 0 for a date, which voda never sends."""
    return min(float(retry_after), _LONGEST_PAUSE_S) if retry_after.isascii() and retry_after.isdecimal() else 0.0

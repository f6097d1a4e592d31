"""Turns an answer of the API server that is no success into one of voda's errors, in one sentence. Pure.

Rule: the sentence names the verb, the path and the server's message, on one line and never longer than a screen; no
header of the request is ever in it, for one of them is the token.
"""

from typing import Final

import msgspec
from msgspec import Struct

from voda.domain.errors import ActionRefused, ChangedMeanwhile, ClusterUnavailable, VodaError

_MOST_CHARACTERS: Final = 400
_RETRY_AFTER_S: Final = 1.0
"""Where the server says when not to retry, but not when to."""
_LONGEST_RETRY_AFTER_S: Final = 3600.0


_NO_WEBHOOK: Final = "failed calling webhook"


class Unreachable(ClusterUnavailable):
    """There is no connection to the server, which has not seen the request."""


class Throttled(ClusterUnavailable):
    """429, or 503 with Retry-After: the server asks to be called `retry_after_s` later."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message, retry_after_s)


class Conflict(ClusterUnavailable, ChangedMeanwhile):
    """409: the object is not as expected: it changed, or it is there already; or 422: it has another uid."""


class Gone(ClusterUnavailable):
    """410: the server no longer keeps the version that a watch or a list was to go on from; list again."""


class NotServed(ClusterUnavailable):
    """404 for a whole kind: the server does not know it, or not yet: while it starts it forgets the custom ones."""


class Rejected(ActionRefused):
    """400, 403, 422 and the like, or a webhook that does not answer: the same request fails again."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Absent(Rejected):
    """404: the object of the request, or the one it belongs to, is not there."""


class _FieldCause(Struct, frozen=True):
    field: str = ""


class _Details(Struct, frozen=True, rename="camel"):
    name: str = ""
    causes: tuple[_FieldCause, ...] = ()
    retry_after_seconds: int = 0


class StatusBody(Struct, frozen=True):
    """The body of an answer that is no object: a Status, as far as it is one."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


def parse_status(code: int, body: bytes) -> StatusBody:
    """Return the Status in a body; of a page that some proxy wrote, its text."""
    try:
        read = msgspec.json.decode(body, type=StatusBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        read = StatusBody(message=body[: 4 * _MOST_CHARACTERS].decode("utf-8", "replace"))
    return msgspec.structs.replace(read, code=code or read.code)


def error_of(request: str, body: StatusBody, retry_after: str = "") -> VodaError:
    """Return the error that an answer to a request (verb and path) means; `retry_after` is the header of that name."""
    sentence = f"cannot {request}: the API server answers {body.code}{_described(body)}"
    match body.code:
        case 404:
            # Without a name the whole kind is not served (yet), rather than that the object is not there.
            is_about_an_object = body.details is not None and body.details.name
            return Absent(sentence, 404) if is_about_an_object else NotServed(sentence)
        case 409:
            return Conflict(sentence)
        case 422 if _is_about_another(body):
            return Conflict(sentence)
        case 410:
            return Gone(sentence)
        case 429:
            return Throttled(sentence, retry_after_s(body, retry_after))
        case 503 if retry_after:
            return Throttled(sentence, retry_after_s(body, retry_after))
        # A token may have run out a moment before its successor is read: the next try may well succeed.
        case 401 | 408:
            return ClusterUnavailable(sentence)
        case code if 300 <= code < 500:
            return Rejected(sentence, code)
        # The server itself is well: nothing of the kind is written until somebody mends the webhook or takes it away.
        case 500 if _NO_WEBHOOK in body.message:
            return Rejected(sentence, 500)
    return ClusterUnavailable(sentence)


def retry_after_s(body: StatusBody, retry_after: str) -> float:
    """Return after how many seconds the server allows a retry."""
    named = retry_after.strip()
    if named.isascii() and named.isdigit():
        return min(float(named[:9]), _LONGEST_RETRY_AFTER_S)
    if body.details is not None and body.details.retry_after_seconds > 0:
        return min(float(body.details.retry_after_seconds), _LONGEST_RETRY_AFTER_S)
    return _RETRY_AFTER_S


def one_line(text: str) -> str:
    """Return any text as a short part of a sentence."""
    line = "".join(each if each.isprintable() else " " for each in " ".join(text.split()))
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}..."


def _is_about_another(body: StatusBody) -> bool:
    """Say whether a patch named the uid of another object: a server takes that for a change of the uid."""
    return body.details is not None and any(cause.field == "metadata.uid" for cause in body.details.causes)


def _described(body: StatusBody) -> str:
    reason, message = one_line(body.reason), one_line(body.message).rstrip(".")
    return (f" {reason}" if reason else "") + (f": {message}" if message else "")

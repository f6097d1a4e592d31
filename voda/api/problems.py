"""Turns errors into answers: application/problem+json (RFC 9457).

Rule: the caller learns what is wrong, in which thing, what was expected, what came, and what to do next; nothing of the
server's inside is shown.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from voda.domain import errors
from voda.wire.base import Problem

_log = logging.getLogger(__name__)


class UnreadableBody(errors.PermanentError):
    """The body of a request is not of the format that it claims."""


class WrongMediaType(errors.PermanentError):
    """The body of a request is of a type that the server does not read."""


_STATUSES: Final[Mapping[type[errors.VodaError], HTTPStatus]] = {
    UnreadableBody: HTTPStatus.BAD_REQUEST,
    errors.Unauthorized: HTTPStatus.UNAUTHORIZED,
    errors.NotAllowed: HTTPStatus.FORBIDDEN,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.AlreadyExists: HTTPStatus.CONFLICT,
    errors.VersionConflict: HTTPStatus.CONFLICT,
    errors.WrongState: HTTPStatus.CONFLICT,
    errors.ActionRefused: HTTPStatus.CONFLICT,
    errors.PreconditionFailed: HTTPStatus.PRECONDITION_FAILED,
    WrongMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    errors.InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.LogArchived: HTTPStatus.GONE,
    errors.FolderGone: HTTPStatus.GONE,
    errors.TooManyJobs: HTTPStatus.TOO_MANY_REQUESTS,
    errors.TooManyRequests: HTTPStatus.TOO_MANY_REQUESTS,
    errors.QuotaExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    errors.TransientError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StoreNotWritable: HTTPStatus.INSUFFICIENT_STORAGE,
    errors.VodaError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
STATUS_MEANINGS: Final[Mapping[int, str]] = {
    HTTPStatus.BAD_REQUEST: "The request, or its body, cannot be read; the detail tells where.",
    HTTPStatus.UNAUTHORIZED: "No token, or one that is unknown or was revoked.",
    HTTPStatus.FORBIDDEN: "Not allowed with this token.",
    HTTPStatus.NOT_FOUND: "There is nothing of that name.",
    HTTPStatus.CONFLICT: "A live job has that name, or the job has ended.",
    HTTPStatus.GONE: "It was archived, and this server does not find the archive; or voda deleted it.",
    HTTPStatus.PRECONDITION_FAILED: "It is not what you saw (If-Match): get it again, decide again.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is of a type that is not read here.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "A field or parameter is wrong: `field` is its path.",
    HTTPStatus.UPGRADE_REQUIRED: "It is a WebSocket, and the request asks for none.",
    HTTPStatus.TOO_MANY_REQUESTS: (
        "You have as many live jobs, requests or streams as one may have, or have written as much to the log within an"
        " hour as one may: the detail tells."
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: (
        "The log does not answer at this moment, or the server is busy: try again, with the same Idempotency-Key."
    ),
    HTTPStatus.INSUFFICIENT_STORAGE: "The log cannot be written: the disk is full.",
}
"""Descriptions in the OpenAPI document."""
STATUS_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": 'Bearer realm="voda"'},
    HTTPStatus.UPGRADE_REQUIRED: {"Upgrade": "websocket"},
    HTTPStatus.TOO_MANY_REQUESTS: {"Retry-After": "30"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
    # Somebody has to free some space first.
    HTTPStatus.INSUFFICIENT_STORAGE: {"Retry-After": "30"},
}
_KEPT_HEADERS: Final = ("Allow", "Location", "WWW-Authenticate", "Retry-After")
_SENTENCES: Final[Mapping[int, str]] = {
    HTTPStatus.BAD_REQUEST: "the request cannot be read as HTTP",
    HTTPStatus.NOT_FOUND: "there is nothing at {path}; GET /openapi.json tells what there is, and /docs shows it",
    HTTPStatus.METHOD_NOT_ALLOWED: "{path} does not know {method}, expected {allowed}",
    HTTPStatus.REQUEST_TIMEOUT: "the request did not arrive in time: send it faster, or in smaller parts",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "the body is larger than this server takes",
    HTTPStatus.UPGRADE_REQUIRED: "{path} is a WebSocket: ask for an upgrade, with GET, or use `voda exec`",
    HTTPStatus.EXPECTATION_FAILED: "the header Expect asks for something unknown: leave it out",
}


def problems(new_id: Callable[[], str]) -> Middleware:
    """Return the middleware that answers every error with a problem; an unexpected one is logged under a new id."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _of_http(request, error)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            _break_off_if_begun(request, error)
            return response_of(request, error, new_id)

    return middleware


def response_of(request: web.BaseRequest, error: Exception, new_id: Callable[[], str]) -> web.Response:
    """Return the problem of an error; an error that is not the caller's fault is logged."""
    status = status_of(error)
    if not isinstance(error, errors.VodaError):
        error_id = new_id()
        _log.error("failed id=%s method=%s path=%r", error_id, request.method, request.path, exc_info=error)
        return problem_response(status, f"something went wrong inside voda; its log has the error as {error_id}")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.warning("refused method=%s path=%r status=%d reason=%s", request.method, request.path, status, error)
    later_s = error.retry_after_s if isinstance(error, errors.QuotaExceeded) else 1
    soon = {"Retry-After": str(math.ceil(later_s))} if isinstance(error, errors.TransientError) else {}
    field = error.field if isinstance(error, errors.InvalidField) else ""
    return problem_response(status, str(error), field=field, headers=soon)


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error."""
    for kind in type(error).__mro__:
        if (status := _STATUSES.get(kind)) is not None:
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


def problem_response(
    status: int, detail: str, *, field: str = "", headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a problem as a response."""
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=_plain(detail), field=_plain(field))
    content_type = {"Content-Type": "application/problem+json", **STATUS_HEADERS.get(status, {}), **(headers or {})}
    return web.Response(body=msgspec.json.encode(problem), status=status, headers=content_type)


def _of_http(request: web.Request, error: web.HTTPException) -> web.Response:
    """Return the problem of an error that aiohttp raises itself, such as an unknown path."""
    headers = {name: error.headers[name] for name in _KEPT_HEADERS if name in error.headers}
    if error.status < HTTPStatus.BAD_REQUEST:
        return web.Response(status=error.status, headers=headers)
    allowed = ", ".join(sorted(error.allowed_methods)) if isinstance(error, web.HTTPMethodNotAllowed) else ""
    sentence = _SENTENCES.get(error.status, error.reason)
    path = repr(request.rel_url.raw_path[:200])
    detail = sentence.replace("{method}", request.method).replace("{allowed}", allowed).replace("{path}", path)
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        detail = f"{detail}: {error.text}" if error.text else detail
    response = problem_response(error.status, detail, headers=headers)
    if error.status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE):
        # The rest of the request is not worth waiting for.
        response.force_close()
    return response


def _break_off_if_begun(request: web.Request, error: Exception) -> None:
    """Close the connection if a part of the answer was sent already: it cannot be taken back."""
    if request.writer.output_size == 0:
        return
    reason = f"{type(error).__name__}: {error}"
    _log.warning("answer broken off method=%s path=%r reason=%s", request.method, request.path, reason)
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("the answer was broken off") from error


def _plain(text: str) -> str:
    """Return the text without lone surrogates, which JSON cannot carry."""
    return text.encode("utf-8", "replace").decode()

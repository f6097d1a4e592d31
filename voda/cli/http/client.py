"""The HTTP client of the commands.

Rule: every request has a timeout; every failure becomes one of voda's own errors, one sentence each.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from voda import __version__
from voda.api.schemas import Problem
from voda.cli.http.target import Target, target
from voda.cli.options import ServerOptions
from voda.concurrency import single_error
from voda.domain import errors
from voda.domain.errors import ClusterUnavailable, InvalidField, PermanentError, VodaError

T = TypeVar("T")
Params = Mapping[str, str | int | list[str]]

_CONNECT_S = 5.0
_ANSWER_S = 30.0


class ServerUnreachable(ClusterUnavailable):
    """The server cannot be reached, or the connection was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    status: int
    body: bytes
    etag: str = ""
    """With its quotes."""


class Client:
    """A connection to one server, for the duration of a command."""

    def __init__(self, session: aiohttp.ClientSession, where: ServerOptions, found: Target) -> None:
        self.target = found
        self._where = where
        self._session = session

    async def get(self, path: str, params: Params | None = None) -> bytes:
        """Return the body of a resource."""
        return (await self.ask("GET", path, params=params)).body

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpAnswer:
        """Return the answer to one request; redirects are not followed, so the token stays with this server."""
        limit = aiohttp.ClientTimeout(total=_ANSWER_S, sock_connect=_CONNECT_S)
        async with self._response(method, path, params, headers, timeout=limit, data=body) as response:
            content = await response.read()
        return HttpAnswer(status=response.status, body=content, etag=response.headers.get("ETag", ""))

    async def stream(
        self,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        idle_s: float | None,
    ) -> AsyncIterator[bytes]:
        """Yield an answer piece by piece; after `idle_s` of silence the connection counts as lost, None = never."""
        limit = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=idle_s)
        async with self._response("GET", path, params, headers, timeout=limit) as response:
            async for piece in response.content.iter_any():
                yield piece

    @asynccontextmanager
    async def _response(
        self, method: str, path: str, params: Params | None, headers: Mapping[str, str] | None, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        # Quoted parts stay quoted: a name with a slash must not become another path.
        base = "http://localhost" if self.target.socket else self.target.url
        url = URL(f"{base}/api/v1{path}", encoded=True).update_query(params or {})
        token = {"Authorization": f"Bearer {self.target.token}"} if self.target.token else {}
        options |= {"headers": {**token, **(headers or {})}, "ssl": self.target.tls or True, "allow_redirects": False}
        try:
            with _translate_errors(self.target):
                async with self._session.request(method, url, **options) as response:
                    if response.status >= 300:
                        _raise_for_status(response.status, await response.read())
                    yield response
        except ServerUnreachable:
            # A restarted voda may listen on another port.
            with suppress(VodaError):
                found = target(self._where)
                self.target = found if found.socket == self.target.socket else self.target
            raise


@asynccontextmanager
async def open_client(where: ServerOptions) -> AsyncIterator[Client]:
    """Yield a client of the server that the options name."""
    headers, jar = {"User-Agent": f"voda/{__version__}"}, aiohttp.DummyCookieJar()
    found = target(where)
    connector = aiohttp.UnixConnector(found.socket) if found.socket else aiohttp.TCPConnector()
    async with aiohttp.ClientSession(headers=headers, cookie_jar=jar, connector=connector) as session:
        yield Client(session, where, found)


def call_server(where: ServerOptions, question: Callable[[Client], Awaitable[T]]) -> T:
    """Run a coroutine with a client of the server that the options name, and return its result."""

    async def ask() -> T:
        async with open_client(where) as client:
            return await question(client)

    try:
        return asyncio.run(ask())
    except BaseExceptionGroup as failures:
        raise single_error(failures) from failures


def resource_path(*parts: str) -> str:
    """Return the path of a resource; each part is one path segment, whatever characters it contains."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def decode(body: bytes, kind: type[T]) -> T:
    """Decode an answer; PermanentError where it has another form, perhaps that of another version."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise PermanentError(
            f"voda does not understand the server's answer ({error}); it may not be voda, or a version other than"
            f" {__version__}"
        ) from error


def _raise_for_status(status: int, body: bytes) -> None:
    if status >= 400:
        raise error_of(status, body)
    if status != 304:
        raise PermanentError(f"the server answered {status}, a redirect: give the final address of the server")


_NAMED = "is it running, and is it reachable from here, for instance through kubectl port-forward?"


@contextmanager
def _translate_errors(target: Target) -> Iterator[None]:
    where = f"{target.url} (from {target.source})"
    asked = "is `voda up` running?" if target.socket or target.source.endswith("server.json") else _NAMED
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise PermanentError(
            f"{where}: its certificate is not trusted ({error.certificate_error}); name the"
            " certificate to trust with --ca or VODA_CA"
        ) from error
    except TimeoutError as error:
        raise ServerUnreachable(f"{where} does not answer in time") from error
    except aiohttp.ClientConnectorError as error:
        number = error.os_error.errno
        reason = os.strerror(number) if number and number > 0 else error.os_error.strerror or error.os_error
        raise ServerUnreachable(f"{where} cannot be reached: {reason} ({asked})") from error
    except aiohttp.InvalidURL as error:
        raise PermanentError(f"{where} is not a valid address") from error
    except (aiohttp.ClientError, OSError) as error:
        raise ServerUnreachable(f"{where}: the connection was lost ({str(error) or type(error).__name__})") from error


_ERRORS: dict[int, type[VodaError]] = {
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
    429: errors.TransientError,
    502: errors.TransientError,
    503: errors.StoreUnavailable,
    504: errors.TransientError,
    507: errors.StoreNotWritable,
}
_TOKEN = " (on the command line: --token, or VODA_TOKEN)"


def error_of(status: int, body: bytes) -> VodaError:
    """Return the error for an answer of status 400 or more; a body that is no problem as JSON is quoted."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        said = " ".join(body[:200].decode("utf-8", "replace").split())
        return _ERRORS.get(status, PermanentError)(f"the server answered {status}{f': {said}' if said else ''}")
    if problem.field and status in (400, 422):
        return InvalidField(problem.field, problem.detail)
    message = problem.detail or problem.title
    return _ERRORS.get(status, PermanentError)(f"{message}{_TOKEN if status == 401 else ''}")

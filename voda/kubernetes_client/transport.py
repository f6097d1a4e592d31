"""HTTP to the API server: connections, credentials, time limits, and a few retries.

Rules: a request is sent again only where the server did not take it (429, 503 with Retry-After, no connection), a few
times, and never for longer than its time limit; no redirect is followed, for the token would go with it; the kernel's
probes notice within half a minute a peer that vanished silently, however long the stream may be silent.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
from aiohttp import (
    ClientConnectionResetError,
    ClientConnectorError,
    ClientError,
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ServerDisconnectedError,
)
from msgspec import Struct
from yarl import URL

from voda.clock import stopwatch
from voda.domain.errors import ClusterUnavailable
from voda.kubernetes_client.connections import Connections, tls_of
from voda.kubernetes_client.errors import (
    Rejected,
    Throttled,
    Unreachable,
    error_of,
    one_line,
    parse_status,
)
from voda.metrics import KUBERNETES_REQUEST_DURATION, KUBERNETES_REQUESTS, NO_TELEMETRY, Telemetry

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

_DATE_S: Final = 10.0
"""After which the date of an answer is read again."""
_TRIES: Final = 4
_RECONNECT_S: Final = 0.1
_SHORTEST_PAUSE_S: Final = 0.1
_ERROR_BYTES: Final = 64 << 10
_CHUNK_BYTES: Final = 256 << 10
_PATH: Final = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._:@~-]+)+")
_PROBES: Final = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""After 15 s of silence one probe every 5 s, at most 3."""
_FAILURES: Final = (ClientError, OSError, TimeoutError)


class Request(Struct, frozen=True, kw_only=True):
    verb: str
    """As RBAC and metrics call it: get, list, watch, create, patch, update, delete."""
    method: str
    path: str
    query: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None
    content: str = "application/json"
    accept: str = "application/json"

    @property
    def text(self) -> str:
        return f"{self.verb} {self.path[:300]}"


class TooLarge(ClusterUnavailable):
    """The answer has more bytes than were allowed for."""


class Transport:
    """Connections to one API server; made inside a running loop; InvalidInput: a certificate or key cannot be read.

    The time limit is for one answer, all tries and pauses included.
    """

    def __init__(
        self, configuration: "Configuration", *, timeout_s: float, telemetry: Telemetry = NO_TELEMETRY
    ) -> None:
        self.timeout_s = timeout_s
        self._dated_at: tuple[float, float] | None = None
        """Of the last answer whose date was read: the loop's time, and the server's, seconds since the epoch."""
        self._configuration = configuration
        self._telemetry = telemetry
        self._connections = Connections(tls_of(configuration), configuration.connection_pool_maxsize)
        self._session = ClientSession(
            connector=self._connections.connector, connector_owner=False, read_bufsize=_CHUNK_BYTES
        )
        self._proxy = configuration.proxy or _proxy(configuration.host or "")

    @property
    def server_time(self) -> float | None:
        """The server's time of day by now, to about a second; None where no answer has said it."""
        if self._dated_at is None:
            return None
        at, said = self._dated_at
        return said + asyncio.get_running_loop().time() - at

    async def close(self) -> None:
        await self._session.close()
        await self._connections.close()

    async def send(self, request: Request, *, most_bytes: int = 64 << 20) -> bytes:
        """Return the body of the answer.

        Raises:
            ClusterUnavailable, ActionRefused: see errors.py.
            TooLarge: the answer is larger than `most_bytes`.
        """
        left_s = self.timeout_s
        for left in reversed(range(_TRIES)):
            try:
                async with self.opened(request, total_s=self.timeout_s) as answer:
                    body = await _read(answer, most_bytes)
                if len(body) > most_bytes:
                    raise TooLarge(f"cannot {request.text}: the answer has more than {most_bytes} bytes")
                return body
            except (Throttled, Unreachable) as busy:
                pause_s = _pause_s(busy)
                if not left or pause_s > left_s:
                    raise
            left_s -= pause_s
            await asyncio.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    @asynccontextmanager
    async def opened(
        self, request: Request, *, total_s: float | None = None, silence_s: float | None = None
    ) -> AsyncGenerator[ClientResponse, None]:
        """Send a request once, and give its answer while the block lasts, for `total_s` at most; None = for ever.

        Between two pieces of the answer there may be `silence_s`; None = until the kernel's probes fail.

        Raises:
            ClusterUnavailable, ActionRefused: see errors.py; also where the answer breaks off in the block.
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                answer = await self._request(request, ClientTimeout(total=total_s, sock_read=silence_s))
        except (*_FAILURES, ValueError) as failed:
            raise _unanswered(request, failed) from failed
        try:
            if not 200 <= answer.status < 300:
                said = parse_status(answer.status, await _read(answer, _ERROR_BYTES))
                raise error_of(request.text, said, answer.headers.get("Retry-After", ""))
            _probe(answer)
            self._read_date(answer.headers.get("Date", ""))
            yield answer
        except _FAILURES as failed:
            raise ClusterUnavailable(f"cannot {request.text}: the answer broke off ({_failure(failed)})") from failed
        finally:
            _drop(answer)

    async def _request(self, request: Request, timeout: ClientTimeout) -> ClientResponse:
        with self._measured(request.verb) as codes:
            answer = await self._session.request(
                request.method,
                self._url(request),
                data=None if request.body is None else msgspec.json.encode(request.body),
                headers=await self._headers(request),
                timeout=timeout,
                allow_redirects=False,
                proxy=self._proxy,
                proxy_headers=self._configuration.proxy_headers,
                server_hostname=self._configuration.tls_server_name,
            )
            codes.append(answer.status)
            return answer

    def _read_date(self, date: str) -> None:
        now = asyncio.get_running_loop().time()
        if self._dated_at is None or now - self._dated_at[0] >= _DATE_S:
            with suppress(ValueError):
                # It is in whole seconds.
                self._dated_at = now, parsedate_to_datetime(date).timestamp() + 0.5

    @contextmanager
    def _measured(self, verb: str) -> Generator[list[int], None, None]:
        """Measure one request; the block appends the status of its answer."""
        laps: list[float] = []
        codes: list[int] = []
        try:
            with stopwatch(laps):
                yield codes
        finally:
            self._telemetry.count(KUBERNETES_REQUESTS, verb, str(codes[0]) if codes else "none")
            self._telemetry.observe(KUBERNETES_REQUEST_DURATION, laps[-1] if laps else 0.0, verb)

    def _url(self, request: Request) -> URL:
        # A name of somebody's choosing must not lead to another object.
        if not _PATH.fullmatch(request.path):
            raise Rejected(f"cannot {request.verb} {one_line(request.path)!r}: it is no path of an object", 400)
        query = f"?{urlencode(request.query)}" if request.query else ""
        return URL(f"{self._configuration.host}{request.path}{query}", encoded=True)

    async def _headers(self, request: Request) -> Mapping[str, str]:
        headers = {"Accept": request.accept, "Accept-Encoding": "identity", "User-Agent": "voda"}
        if request.body is not None:
            headers["Content-Type"] = request.content
        credentials = await self._configuration.auth_settings()
        if bearer := credentials.get("BearerToken", {}).get("value"):
            headers["Authorization"] = bearer
        return headers


def _proxy(host: str) -> str | None:
    """Return the proxy that the environment names for a server, as kubectl finds it too."""
    url = urlsplit(host)
    named = getproxies().get(url.scheme)
    return None if not named or proxy_bypass(url.netloc) else named


async def _read(answer: ClientResponse, most_bytes: int) -> bytes:
    """Return the whole body, or a little more than `most_bytes` of it."""
    read = bytearray()
    async for piece in answer.content.iter_any():
        read += piece
        if len(read) > most_bytes:
            break
    return bytes(read)


def _pause_s(busy: Throttled | Unreachable) -> float:
    return max(busy.retry_after_s, _SHORTEST_PAUSE_S) if isinstance(busy, Throttled) else _RECONNECT_S


def _unanswered(request: Request, failed: BaseException) -> ClusterUnavailable:
    sentence = f"cannot {request.text}: the API server does not answer ({_failure(failed)})"
    return Unreachable(sentence) if isinstance(failed, ClientConnectorError) else ClusterUnavailable(sentence)


def _failure(failed: BaseException) -> str:
    match failed:
        case TimeoutError():
            return "it takes too long"
        case ClientPayloadError():
            return "it ended in the middle"
        case ServerDisconnectedError() | ClientConnectionResetError():
            return "it closed the connection"
        case ssl.SSLError() | ClientConnectorError():
            return one_line(str(failed))
    return one_line(f"{type(failed).__name__}: {failed}".rstrip(": "))


def _drop(answer: ClientResponse) -> None:
    """Close an answer; a connection whose answer was not read to its end cannot be used again."""
    connection = answer.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    answer.close()


def _probe(answer: ClientResponse) -> None:
    """Let the kernel probe a connection that may be silent for long."""
    connection = answer.connection
    transport = None if connection is None else connection.transport
    peer: socket.socket | None = None if transport is None else transport.get_extra_info("socket")
    if peer is None:
        return
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        # Not every system knows all of them.
        if hasattr(socket, name):
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

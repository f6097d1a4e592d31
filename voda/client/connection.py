"""One exchange with a server: http.client over TCP, TLS or a Unix socket, within limits, ended from any thread.

Rules: every exchange has a time limit, and every failure becomes one of voda's own errors, one sentence each; a
redirect is never followed and no proxy is asked, so that the token stays with this server.
"""

import http.client
import os
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from voda import __version__
from voda.client.errors import ClientClosed, ServerUnreachable, error_of
from voda.client.exec import websocket
from voda.client.target import Target
from voda.domain.errors import PermanentError, VodaError

Params = Mapping[str, str | int | list[str]]
CONNECT_S: Final = 5.0
_MOST_BYTES: Final = 1 << 28
"""Of an answer that is kept in memory."""
_PIECE_BYTES: Final = 65_536
_PROBLEM_BYTES: Final = 1 << 20
_TIMEVAL: Final = struct.Struct("@ll")
_NAMED: Final = "is it running, and is it reachable from here, for instance through kubectl port-forward?"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """A request."""

    method: str = "GET"
    path: str
    """Below /api/v1; its parts are quoted already."""
    params: Params | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    status: int
    body: bytes
    etag: str = ""
    """With its quotes."""


class Cancellation:
    """Ends the exchanges and pauses of one caller, for good; any thread may cancel."""

    def __init__(self) -> None:
        self._canceled = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()

    @property
    def is_canceled(self) -> bool:
        return self._canceled.is_set()

    def cancel(self) -> None:
        self._canceled.set()
        with self._lock:
            for each in self._sockets:
                _shut(each)

    def pause(self, seconds: float) -> None:
        """Wait; raises ClientClosed once it is canceled."""
        if self._canceled.wait(seconds):
            raise _closed()

    @contextmanager
    def ends(self, connected: socket.socket) -> Iterator[None]:
        """Let a cancellation end the exchange on this socket while the block runs."""
        with self._lock:
            if self.is_canceled:
                raise _closed()
            self._sockets.add(connected)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(connected)


def ask(target: Target, call: HttpCall, cancellation: Cancellation, *, timeout_s: float) -> HttpAnswer:
    """Return the answer to one request; raises the error that it means, or ServerUnreachable."""
    with _exchange(target, call, cancellation, timeout_s) as (connected, response), _deadline(connected, timeout_s):
        _refuse(response)
        body = response.read(_MOST_BYTES)
        if len(body) == _MOST_BYTES:
            raise PermanentError(f"{target.url} answers with {_MOST_BYTES:,} bytes or more: that is not voda")
        if response.length:
            raise http.client.IncompleteRead(body, response.length)
        return HttpAnswer(status=response.status, body=body, etag=response.getheader("ETag", ""))


def stream(
    target: Target, call: HttpCall, cancellation: Cancellation, *, idle_s: float | None, timeout_s: float
) -> Iterator[bytes]:
    """Yield an answer piece by piece; after `idle_s` of silence the connection counts as lost, None = never."""
    with _exchange(target, call, cancellation, timeout_s) as (connected, response):
        _refuse(response)
        connected.settimeout(idle_s)
        while piece := response.read1(_PIECE_BYTES):
            yield piece


@contextmanager
def upgraded(
    target: Target, call: HttpCall, cancellation: Cancellation, *, protocol: str, timeout_s: float
) -> Iterator[socket.socket]:
    """Keep a WebSocket open for the block; the server says nothing on it before it is spoken to.

    Raises:
        VodaError: the one that the server's answer means, or ServerUnreachable; also where the block loses it.
    """
    key = websocket.new_key()
    asked = {"Sec-WebSocket-Key": key, "Sec-WebSocket-Version": "13", "Sec-WebSocket-Protocol": protocol}
    asked = {"Connection": "Upgrade", "Upgrade": "websocket", **asked}
    with _exchange(target, replace(call, headers=asked), cancellation, timeout_s) as (connected, response):
        _refuse(response)
        agreed = response.getheader("Sec-WebSocket-Accept"), response.getheader("Sec-WebSocket-Protocol")
        if response.status != 101 or agreed != (websocket.accept_of(key), protocol):
            raise PermanentError(
                f"{_where(target)} does not agree to a WebSocket of the protocol {protocol}: it is of another version,"
                " or a proxy before it takes none"
            )
        yield connected


@contextmanager
def _exchange(
    target: Target, call: HttpCall, cancellation: Cancellation, timeout_s: float
) -> Iterator[tuple[socket.socket, http.client.HTTPResponse]]:
    base = "" if target.socket else urlsplit(target.url).path
    query = f"?{urlencode(call.params, doseq=True, quote_via=quote)}" if call.params else ""
    token = {"Authorization": f"Bearer {target.token}"} if target.token else {}
    headers = {"User-Agent": f"voda/{__version__}", "Connection": "close", **token, **call.headers}
    cancellation.pause(0)
    connection = _connection(target, min(CONNECT_S, timeout_s))
    try:
        connected = _connect(target, connection)
        with cancellation.ends(connected), _translated_errors(target, cancellation):
            connected.settimeout(timeout_s)
            with _deadline(connected, timeout_s):
                connection.request(call.method, f"{base}/api/v1{call.path}{query}", call.body, headers)
                response = connection.getresponse()
            with response:
                yield connected, response
    finally:
        connection.close()


def _connect(target: Target, connection: http.client.HTTPConnection) -> socket.socket:
    try:
        connection.connect()
    except ssl.SSLCertVerificationError as error:
        raise PermanentError(
            f"{_where(target)}: its certificate is not trusted ({error}); name the certificate to trust with --ca or"
            " VODA_CA"
        ) from error
    except TimeoutError as error:
        raise ServerUnreachable(f"{_where(target)} does not answer in time") from error
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number and number > 0 else getattr(error, "strerror", None) or error
        is_here = target.socket or target.source.endswith("server.json")
        asked = "is `voda up` running?" if is_here else _NAMED
        raise ServerUnreachable(f"{_where(target)} cannot be reached: {reason} ({asked})") from error
    return connection.sock


@contextmanager
def _translated_errors(target: Target, cancellation: Cancellation) -> Iterator[None]:
    try:
        yield
    except VodaError:
        # One of them is a TimeoutError too.
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        if cancellation.is_canceled:
            raise _closed() from error
        if isinstance(error, TimeoutError):
            raise ServerUnreachable(f"{_where(target)} does not answer in time") from error
        if isinstance(error, ValueError):
            # What cannot be sent may be the token: it is not shown.
            raise PermanentError(f"{_where(target)}: the token or the request holds what HTTP cannot carry") from None
        reason = str(error) or type(error).__name__
        raise ServerUnreachable(f"{_where(target)}: the connection was lost ({reason})") from error


@contextmanager
def _deadline(connected: socket.socket, seconds: float) -> Iterator[None]:
    """End the exchange after so many seconds with TimeoutError, however slowly the answer comes."""
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        _shut(connected)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        if is_late.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
    if is_late.is_set():
        raise TimeoutError


def _refuse(response: http.client.HTTPResponse) -> None:
    """Raise the error that an answer of status 300 or more means."""
    if response.status >= 400:
        retry_after = response.getheader("Retry-After", "")
        raise error_of(response.status, response.read(_PROBLEM_BYTES), retry_after=retry_after)
    if response.status >= 300 and response.status != 304:
        raise PermanentError(f"the server answered {response.status}, a redirect: give the final address of the server")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path, self._timeout_s = path, timeout_s

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        whole, rest = divmod(self._timeout_s, 1)
        # Where others fill the server's backlog, a socket that blocks waits in line, and any other has EAGAIN at once.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(int(whole), int(rest * 1e6)))
        try:
            self.sock.connect(self._path)
        except BlockingIOError as error:
            raise TimeoutError from error
        self.sock.settimeout(self._timeout_s)


def _connection(target: Target, timeout_s: float) -> http.client.HTTPConnection:
    if target.socket:
        return _UnixConnection(target.socket, timeout_s)
    url = urlsplit(target.url)
    if url.scheme == "https":
        return http.client.HTTPSConnection(url.hostname or "", url.port, timeout=timeout_s, context=target.tls)
    return http.client.HTTPConnection(url.hostname or "", url.port or 80, timeout=timeout_s)


def _where(target: Target) -> str:
    return f"{target.url} (from {target.source})"


def _shut(connected: socket.socket) -> None:
    # Not SSLSocket's own method, which takes the connection apart while another thread reads from it.
    with suppress(OSError):
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _closed() -> ClientClosed:
    return ClientClosed("this client is closed, or the call was canceled")

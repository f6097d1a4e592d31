"""The way to NATS: one connection that is made again for as long as it takes.

Rule: every request has an end, and what fails is told in voda's words; nothing waits for a server that is away.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Self
from urllib.parse import ParseResult

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.js import JetStreamContext
from nats.js.errors import APIError

from voda.domain.errors import InvalidInput, StoreUnavailable
from voda.events.jetstream.errors import NotSecret, explain, explained
from voda.events.jetstream.location import Location

API = "$JS.API."
_CONNECT_S = 2
_BETWEEN_ATTEMPTS_S = 0.1
# A server that is frozen rather than gone is given up after about six seconds.
_PING_S = 2
_PINGS = 2
_CLOSE_S = 1.0
_FLUSH_S = 0.01
_FLUSHES = 50
_ANSWER_S = 2.5
"""Longest wait for one answer, where the question may be asked again."""
_NO_LIMIT = 0

_log = logging.getLogger(__name__)


class Connection:
    """A connection to a NATS server or cluster; made by `open`, and closed by whoever opened it.

    Args:
        location: of the log.
        timeout_s: longest wait for an answer, and for a connection that was lost.
    """

    def __init__(self, location: Location, *, timeout_s: float) -> None:
        self.location = location
        self.place = location.place
        self.timeout_s = timeout_s
        self._client = _Client()
        self._transport = _Transport(is_secret=False)
        self._has_client = False
        """Whether the client was ever connected; from then on it connects again by itself."""
        self._is_open = asyncio.Event()
        self._connecting = asyncio.Lock()
        self._is_closed = False
        self._grumbled = ""
        """Why the connection is not made again, as it was told last."""
        self._on_reconnect: list[Callable[[], None]] = []

    @classmethod
    async def open(cls, location: Location, *, timeout_s: float = 10.0) -> Self:
        """Connect.

        Raises:
            InvalidInput: the server refuses the user, or a file that the location names cannot be read.
            StoreUnavailable: no server answers.
        """
        connection = cls(location, timeout_s=timeout_s)
        await connection.client()
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def client(self) -> Client:
        """Return the client, connected; waits for a connection that is being made again.

        Raises:
            StoreUnavailable: there is none within the timeout.
            InvalidInput: see open.
        """
        self._refuse_closed()
        if not self._client.is_connected:
            async with explained(self.place), asyncio.timeout(self.timeout_s), self._connecting:
                # A client that the server has shown the door never comes back by itself.
                if not self._has_client or self._client.is_closed:
                    self._refuse_closed()
                    await self._connect()
                await self._is_open.wait()
        return self._client

    async def jetstream(self) -> JetStreamContext:
        """Return nats-py's own view of JetStream, over a live connection; wrap its calls in `explained(place)`.

        Raises:
            StoreUnavailable, InvalidInput: see client.
        """
        return (await self.client()).jetstream(timeout=self.timeout_s)

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        wait_s: float | None = None,
    ) -> Msg:
        """Send a request and return the answer.

        Args:
            subject: to whom.
            payload: what.
            headers: beside it.
            wait_s: longest wait for the answer; None = timeout_s.

        Raises:
            StoreUnavailable: there is none in time; whether the request was heard is not known.
            InvalidInput: it is larger than the server takes.
        """
        client = await self.client()
        async with explained(self.place):
            return await client.request(
                subject, payload, timeout=wait_s or self.timeout_s, headers=dict(headers) if headers else None
            )

    async def api(self, subject: str, body: object = None) -> dict[str, Any]:
        """Ask JetStream's interface, such as `STREAM.INFO.name`, and return the answer.

        Raises:
            APIError: JetStream says no; left to the caller, who knows what that means (see explain).
            StoreUnavailable: there is no answer in time.
        """
        answer = await self._asked(API + subject, b"" if body is None else msgspec.json.encode(body))
        found: dict[str, Any] = msgspec.json.decode(answer.data)
        if "error" in found:
            raise APIError.from_error(found["error"])
        return found

    async def _asked(self, subject: str, payload: bytes) -> Msg:
        """Ask again where nobody answers: whoever led may just have died, and all that is asked may be repeated."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_s
        while True:
            left_s = deadline - loop.time()
            try:
                return await self.request(subject, payload, wait_s=min(_ANSWER_S, self.timeout_s))
            except StoreUnavailable:
                if left_s < _ANSWER_S:
                    raise
            await asyncio.sleep(_BETWEEN_ATTEMPTS_S)

    async def subscribe(self, subject: str, on_message: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Call `on_message` for every message of a subject; lasts until the client is closed (see client).

        Raises:
            StoreUnavailable: not connected.
        """
        client = await self.client()
        async with explained(self.place):
            # No limits: what is heard here is small, and what nats-py drops it drops in silence.
            return await client.subscribe(
                subject, cb=on_message, pending_msgs_limit=_NO_LIMIT, pending_bytes_limit=_NO_LIMIT
            )

    def on_reconnect(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever a connection that was lost is there again: something may have been missed."""
        self._on_reconnect.append(wake)

    @property
    def max_payload_bytes(self) -> int:
        """Largest message that the server takes, headers included."""
        return self._client.max_payload

    @property
    def server_version(self) -> str:
        """Version of the server that answers."""
        return str(self._client._server_info.get("version", ""))

    @property
    def is_cluster(self) -> bool:
        """Whether the server that answers has others beside it."""
        return bool(self._client._server_info.get("cluster"))

    async def close(self) -> None:
        """Give the connection up. Safe to call twice."""
        self._is_closed = True
        if not self._has_client:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._client.close()
        except (TimeoutError, OSError, nats.errors.Error) as error:
            _log.debug("connection not closed cleanly place=%s reason=%s", self.place, error)
        finally:
            await self._transport.give_up()

    async def _connect(self) -> None:
        where = self.location
        # The client of before may still be trying.
        await self._transport.give_up()
        failures: list[Exception] = []

        async def on_error(error: Exception) -> None:
            failures.append(error)
            del failures[:-20]
            self._grumble(error)

        client = _Client()
        tls = where.tls()
        # The client's own waits for what a frozen server has not read yet, for ever.
        client._transport = transport = _Transport(is_secret=tls is not None)
        try:
            await client.connect(
                where.servers,
                name="voda",
                error_cb=on_error,
                disconnected_cb=self._disconnected,
                reconnected_cb=self._reconnected,
                connect_timeout=_CONNECT_S,
                reconnect_time_wait=_BETWEEN_ATTEMPTS_S,  # type: ignore[arg-type]  # any number will do
                max_reconnect_attempts=1,
                ping_interval=_PING_S,
                max_outstanding_pings=_PINGS,
                tls=tls,
                **_identity(where),
            )
        except (ImportError, FileNotFoundError) as error:
            raise InvalidInput(f"{self.place}: the credentials {where.creds} cannot be used: {error}") from error
        except BaseException as error:
            await transport.give_up()
            if not isinstance(error, Exception):
                raise
            raise _telling(failures, error, self.place) from error
        # From now on it tries for as long as it takes; the first time a wrong address should be told at once.
        client.options["max_reconnect_attempts"] = -1
        self._client, self._transport, self._has_client = client, transport, True
        if self._is_closed:
            await self.close()
            self._refuse_closed()
        self._is_open.set()
        for wake in self._on_reconnect:
            wake()

    def _grumble(self, error: Exception) -> None:
        """Tell why the connection is not made again, where that will not change by itself; once for each reason."""
        told = explain(error, self.place)
        if self._has_client and isinstance(told, InvalidInput) and str(told) != self._grumbled:
            self._grumbled = str(told)
            _log.warning("not connected again reason=%s", told)
        _log.debug("nats place=%s reason=%s", self.place, repr(error))

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise StoreUnavailable(f"{self.place} was closed")

    async def _disconnected(self) -> None:
        self._is_open.clear()
        if not self._is_closed:
            _log.warning("connection lost place=%s", self.place)

    async def _reconnected(self) -> None:
        self._is_open.set()
        self._grumbled = ""
        _log.info("connected again place=%s", self.place)
        for wake in self._on_reconnect:
            wake()


class _Client(Client):
    """A client that makes one connection at a time.

    nats-py begins to connect anew while it still connects, where a server breaks off in between: both attempts share
    what they find out, and the one that it cancels may go on, because up to Python 3.11 `wait_for` can swallow that.
    """

    def __init__(self) -> None:
        super().__init__()
        self._attempting = asyncio.Lock()

    async def _attempt_reconnect(self) -> None:
        async with self._attempting:
            # Whoever was before may have connected although it was cancelled.
            if not self.is_connected:
                await super()._attempt_reconnect()


class _Transport(TcpTransport):
    """A TCP connection that is given up in time, and closed before the next is made.

    Args:
        is_secret: nothing is to be written before TLS is spoken. nats-py goes by what the server says, and would send
            the password in the open to whoever says that there is no TLS.
    """

    def __init__(self, *, is_secret: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._is_secret = is_secret
        self._is_given_up = False

    def __bool__(self) -> bool:
        """Say that there is one: nats-py replaces by its own what is not connected yet."""
        return True

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Connect, and let go of a connection on which the server said nothing."""
        await self.drop()
        self._end_if_given_up()
        # Not wait_for, as nats-py has it: up to Python 3.11 it may lose a connection made as the time runs out.
        async with asyncio.timeout(connect_timeout):
            reader, writer = await asyncio.open_connection(uri.hostname, uri.port, limit=buffer_size)
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer
        self._end_if_given_up()

    def write(self, payload: bytes) -> None:
        """Write, but no secret in the open.

        Raises:
            NotSecret: the server did not ask for TLS.
        """
        self._refuse_open()
        super().write(payload)  # type: ignore[no-untyped-call]

    def writelines(self, payload: Iterable[bytes]) -> None:
        """Write several; see write."""
        self._refuse_open()
        super().writelines(payload)  # type: ignore[no-untyped-call]

    async def wait_closed(self) -> None:
        """Wait until all is written, for a moment at most, and let go of the connection.

        Not for asyncio's word that it is closed: where TLS failed that never comes, and whoever gives up waiting for it
        cancels it for all who wait.
        """
        for _ in range(_FLUSHES):
            if not any(writer.transport.get_write_buffer_size() for writer in self._writers()):
                break
            await asyncio.sleep(_FLUSH_S)
        await self.drop()

    async def give_up(self) -> None:
        """Let go of the connection, and of all that are made from now on."""
        self._is_given_up = True
        await self.drop()

    async def drop(self) -> None:
        """Let go of the connection at once; of none, nothing."""
        self._abort()
        # The loop closes the socket in its next round.
        await asyncio.sleep(0)

    def _end_if_given_up(self) -> None:
        """End an attempt that has outlived its being cancelled: nothing else does."""
        if self._is_given_up:
            self._abort()
            raise asyncio.CancelledError

    def _refuse_open(self) -> None:
        if self._is_secret and self._io_writer is self._bare_io_writer:
            raise NotSecret("the server does not speak TLS")

    def _abort(self) -> None:
        for writer in self._writers():
            writer.transport.abort()

    def _writers(self) -> Sequence[asyncio.StreamWriter]:
        # Up to Python 3.11, TLS that is broken off while it begins leaves a writer without a transport.
        writers = (self._io_writer, self._bare_io_writer)
        return [writer for writer in writers if writer is not None and writer.transport is not None]


def _identity(where: Location) -> dict[str, Any]:
    if where.creds:
        return {"user_credentials": where.creds}
    if where.token:
        return {"token": where.token}
    return {"user": where.user, "password": where.password} if where.user else {}


def _telling(failures: list[Exception], last: Exception, place: str) -> Exception:
    """Return the error that tells most: a refused password rather than the end of all attempts."""
    told = [explain(error, place) for error in [*failures, last]]
    return next((error for error in told if isinstance(error, InvalidInput)), told[0])

"""The connection to NATS, which reconnects until it succeeds.

Rule: every request has a timeout, and every failure is an error of voda.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.errors import APIError

from voda.domain.errors import InvalidInput, StoreUnavailable
from voda.log.jetstream.transport.client import (
    AbortableTransport,
    SerialReconnectClient,
    translate_error,
    translate_errors,
)
from voda.log.jetstream.transport.url import NatsLocation

API = "$JS.API."
_CONNECT_S = 2
_BETWEEN_ATTEMPTS_S = 0.1
# A server that is frozen rather than gone is disconnected after about six seconds.
_PING_S = 2
_PINGS = 2
_CLOSE_S = 1.0
_ANSWER_S = 2.5
"""Longest wait for one answer to a request that may be repeated."""
_NO_LIMIT = 0

_log = logging.getLogger(__name__)


class NatsConnection:
    """A connection to a NATS server or cluster; made by `open`, and closed by the code that opened it."""

    def __init__(self, location: NatsLocation, *, timeout_s: float) -> None:
        self.location = location
        self.place = location.place
        self.timeout_s = timeout_s
        self._client = SerialReconnectClient()
        self._transport = AbortableTransport(is_secret=False)
        self._has_client = False
        """Whether the client was ever connected; from then on it reconnects by itself."""
        self._is_open = asyncio.Event()
        self._connecting = asyncio.Lock()
        self._is_closed = False
        self._last_warning = ""
        """Reason of the last warning that the connection is not made again."""
        self._on_reconnect: list[Callable[[], None]] = []

    @classmethod
    async def open(cls, location: NatsLocation, *, timeout_s: float = 10.0) -> Self:
        """Connect; raises InvalidInput if the server refuses the user, StoreUnavailable if none answers."""
        connection = cls(location, timeout_s=timeout_s)
        await connection.client()
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def client(self) -> Client:
        """Return the connected client, or raise StoreUnavailable if it is not connected again within the timeout."""
        self._refuse_closed()
        if not self._client.is_connected:
            async with translate_errors(self.place), asyncio.timeout(self.timeout_s), self._connecting:
                # A client that the server has refused never reconnects by itself.
                if not self._has_client or self._client.is_closed:
                    self._refuse_closed()
                    await self._connect()
                await self._is_open.wait()
        return self._client

    async def jetstream(self) -> JetStreamContext:
        """Return nats-py's JetStream client; wrap its calls in `translate_errors(place)`."""
        return (await self.client()).jetstream(timeout=self.timeout_s)

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        wait_s: float | None = None,
    ) -> Msg:
        """Send a request and return the answer, or raise StoreUnavailable: it may have been received or not."""
        client = await self.client()
        async with translate_errors(self.place):
            return await client.request(
                subject, payload, timeout=wait_s or self.timeout_s, headers=dict(headers) if headers else None
            )

    async def api(self, subject: str, body: object = None) -> dict[str, Any]:
        """Call JetStream's API, such as `STREAM.INFO.name`; raises APIError if JetStream refuses."""
        answer = await self._repeated_request(API + subject, b"" if body is None else msgspec.json.encode(body))
        found: dict[str, Any] = msgspec.json.decode(answer.data)
        if "error" in found:
            raise APIError.from_error(found["error"])
        return found

    async def _repeated_request(self, subject: str, payload: bytes) -> Msg:
        """Repeat a request without an answer: the leader may just have died, and every API call may be repeated."""
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
        """Call `on_message` for every message of a subject, until the client is closed (see client)."""
        client = await self.client()
        async with translate_errors(self.place):
            # No limits: messages are few, and nats-py drops those above a limit without an error.
            return await client.subscribe(
                subject, cb=on_message, pending_msgs_limit=_NO_LIMIT, pending_bytes_limit=_NO_LIMIT
            )

    def on_reconnect(self, wake: Callable[[], None]) -> None:
        """Call `wake` after every reconnection: a notification may have been missed."""
        self._on_reconnect.append(wake)

    @property
    def max_payload_bytes(self) -> int:
        """Largest message that the server accepts, headers included."""
        return self._client.max_payload

    @property
    def server_version(self) -> str:
        return str(self._client._server_info.get("version", ""))

    @property
    def is_cluster(self) -> bool:
        return bool(self._client._server_info.get("cluster"))

    async def close(self) -> None:
        """End the connection. Safe to call twice."""
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
        # The former client may still be trying.
        await self._transport.give_up()
        failures: list[Exception] = []

        async def on_error(error: Exception) -> None:
            failures.append(error)
            del failures[:-20]
            self._warn(error)

        client = SerialReconnectClient()
        tls = where.tls()
        # nats-py's own transport would wait for ever for a frozen server to read.
        client._transport = transport = AbortableTransport(is_secret=tls is not None)
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
            raise _most_informative(failures, error, self.place) from error
        # From now on it reconnects without limit; at the first connection a wrong address is reported at once.
        client.options["max_reconnect_attempts"] = -1
        self._client, self._transport, self._has_client = client, transport, True
        if self._is_closed:
            await self.close()
            self._refuse_closed()
        self._last_warning = ""
        self._is_open.set()
        for wake in self._on_reconnect:
            wake()

    def _warn(self, error: Exception) -> None:
        """Warn of the reason why reconnection fails, if it is permanent; once for each reason."""
        reason = translate_error(error, self.place)
        is_lost = self._has_client and not self._is_open.is_set()
        if is_lost and isinstance(reason, InvalidInput) and str(reason) != self._last_warning:
            self._last_warning = str(reason)
            _log.warning("not connected again reason=%s", reason)
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
        self._last_warning = ""
        _log.info("connected again place=%s", self.place)
        for wake in self._on_reconnect:
            wake()


def _identity(where: NatsLocation) -> dict[str, Any]:
    if where.creds:
        return {"user_credentials": where.creds}
    if where.token:
        return {"token": where.token}
    return {"user": where.user, "password": where.password} if where.user else {}


def _most_informative(failures: list[Exception], last: Exception, place: str) -> Exception:
    """Return the most informative error: a refused password rather than the end of all attempts."""
    translated = [translate_error(error, place) for error in [*failures, last]]
    return next((error for error in translated if isinstance(error, InvalidInput)), translated[0])

"""The connection to NATS, made again whenever it is needed and was lost.

Rule: every request has a timeout, and every failure is an error of voda.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Self

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import APIError

from voda.domain.errors import InvalidInput, StoreNotWritable, StoreUnavailable, VodaError
from voda.log.jetstream.transport.client import SingleConnectionClient, is_refusal, translate_error, translate_errors
from voda.log.jetstream.transport.url import NatsLocation

API = "$JS.API."
_CONNECT_S = 2
_BETWEEN_ATTEMPTS_S = 0.1
# A server that is frozen rather than gone is disconnected after about six seconds.
_PING_S = 2
_PINGS = 2
_ANSWER_S = 2.5
"""Longest wait for one answer to a request that may be repeated."""

_log = logging.getLogger(__name__)


class NatsConnection:
    """A connection to a NATS server or cluster; made by `open`, and closed by the code that opened it.

    Once it is lost, whoever needs it next makes it again, to any server that is known.
    """

    def __init__(self, location: NatsLocation, *, timeout_s: float, read_only: bool = False) -> None:
        self.location = location
        self._read_only = read_only
        self.place = location.place
        self.timeout_s = timeout_s
        self._client = SingleConnectionClient(is_secret=location.is_secret)
        self._servers: dict[str, str | None] = dict.fromkeys(location.servers)
        """Server -> the name that its certificate is to have; None = its own. The next one to be tried comes first."""
        self.number = 0
        """Of the connection: so many were made."""
        self._connecting = asyncio.Lock()
        self._is_closed = False
        self._warned_of: type[VodaError] | None = None
        """Kind of the reason for which it was last warned that the connection is not made again."""
        self._on_reconnect: list[Callable[[], None]] = []
        self._subscriptions: dict[str, Callable[[Msg], Awaitable[None]]] = {}

    @classmethod
    async def open(cls, location: NatsLocation, *, timeout_s: float = 10.0, read_only: bool = False) -> Self:
        """Connect; raises InvalidInput if the server refuses the user, StoreUnavailable if none answers."""
        connection = cls(location, timeout_s=timeout_s, read_only=read_only)
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
                while not self._client.is_connected:
                    await self._connect()
        return self._client

    async def request(
        self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None, *, wait_s: float | None = None
    ) -> dict[str, Any]:
        """Send a request to JetStream and return the answer.

        Raises:
            StoreUnavailable: it may have been received or not.
            VodaError: JetStream refuses it; see translate_error.
        """
        client = await self.client()
        async with translate_errors(self.place):
            message = await client.request(subject, payload, timeout=wait_s or self.timeout_s, headers=headers)
            found: dict[str, Any] = msgspec.json.decode(message.data)
            if "error" in found:
                raise APIError.from_error(found["error"])
        return found

    async def api(self, subject: str, body: object = None) -> dict[str, Any]:
        """Call JetStream's API, such as `STREAM.INFO.name`; see `request`."""
        payload = b"" if body is None else msgspec.json.encode(body)
        # Repeated without an answer: the leader may just have died, and every API call may be repeated.
        last_at = asyncio.get_running_loop().time() + self.timeout_s - _ANSWER_S
        while True:
            try:
                return await self.request(API + subject, payload, wait_s=min(_ANSWER_S, self.timeout_s))
            except StoreUnavailable as error:
                if is_refusal(error) or asyncio.get_running_loop().time() > last_at:
                    raise
            await asyncio.sleep(_BETWEEN_ATTEMPTS_S)

    async def subscribe(self, subject: str, on_message: Callable[[Msg], Awaitable[None]]) -> None:
        """Call `on_message` for every message of a subject, also on later connections. Safe to call again."""
        client = await self.client()
        if subject in self._subscriptions:
            return
        self._subscriptions[subject] = on_message
        async with translate_errors(self.place):
            await client.subscribe(subject, cb=on_message)

    def on_reconnect(self, wake: Callable[[], None]) -> None:
        """Call `wake` after every reconnection: a notification may have been missed."""
        self._on_reconnect.append(wake)

    def refuse_read_only(self) -> None:
        if self._read_only:
            raise StoreNotWritable(f"{self.place} was opened for reading only")

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
        self._client.end()
        # The loop closes the socket in its next round.
        await asyncio.sleep(0)

    async def _connect(self) -> None:
        """Try each server once; the first time, raise the reason why none of them is connected."""
        failures: list[VodaError] = []
        for server in [*self._servers]:
            self._refuse_closed()
            try:
                await self._connect_to(server)
            except (InvalidInput, OSError, TimeoutError, nats.errors.Error) as error:
                failures.append(error if isinstance(error, InvalidInput) else translate_error(error, self.place))
                # Tried last from now on.
                self._servers[server] = self._servers.pop(server)
            else:
                self._refuse_closed()
                return
        # A refused password says more than a server that does not answer.
        reason = next((error for error in failures if isinstance(error, InvalidInput)), failures[0])
        if not self.number:
            raise reason
        if type(reason) is not self._warned_of:
            self._warned_of = type(reason)
            _log.warning("not connected again reason=%s", reason)
        await asyncio.sleep(_BETWEEN_ATTEMPTS_S)

    async def _connect_to(self, server: str) -> None:
        where = self.location
        self._client = client = SingleConnectionClient(is_secret=where.is_secret)
        is_connected = False
        try:
            await client.connect(
                server,
                name="voda",
                error_cb=_ignore,
                allow_reconnect=False,
                connect_timeout=_CONNECT_S,
                ping_interval=_PING_S,
                max_outstanding_pings=_PINGS,
                tls=where.tls(),
                tls_hostname=self._servers[server],
                **_identity(where),
            )
            for subject, on_message in self._subscriptions.items():
                await client.subscribe(subject, cb=on_message)
            is_connected = not self._is_closed
        except (ImportError, FileNotFoundError) as error:
            raise InvalidInput(f"{self.place}: the credentials {where.creds} cannot be used: {error}") from error
        finally:
            if not is_connected:
                client.end()
        name = self._servers[server]
        # Those that the server knows; nats-py gives a name to addresses without one, by the URL of this connection.
        found = {each.uri.geturl(): each.tls_name and (name or each.tls_name) for each in client._server_pool}
        self._servers = {**found, **dict.fromkeys(where.servers)}
        self._servers.pop(server, None)
        self._servers[server] = name
        _log.log(logging.INFO if self.number else logging.DEBUG, "connected place=%s", self.place)
        self.number, self._warned_of = self.number + 1, None
        for wake in self._on_reconnect:
            wake()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise StoreUnavailable(f"{self.place} was closed")


async def _ignore(error: Exception) -> None:
    """Whoever waits for an answer hears of it."""
    _log.debug("nats reason=%r", error)


def _identity(where: NatsLocation) -> dict[str, Any]:
    if where.creds:
        return {"user_credentials": where.creds}
    if where.token:
        return {"token": where.token}
    return {"user": where.user, "password": where.password} if where.user else {}

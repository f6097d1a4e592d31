"""nats-py's client and transport, corrected to make one connection at a time and to release each; its errors.

Rule: only gaps of nats-py are filled here, and its errors put into voda's words.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from urllib.parse import ParseResult

import nats.errors
from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from nats.js.errors import APIError, NoStreamResponseError

from voda.domain.errors import InvalidInput, NotALog, StoreNotWritable, StoreUnavailable, VodaError

_FLUSH_S = 0.01
_FLUSHES = 50
"""So many pauses for pending writes before a connection is aborted."""


class SerialReconnectClient(Client):
    """A client that makes one connection at a time, and none once it is closed.

    If a server disconnects while nats-py connects, nats-py starts a second attempt: both share their state, and the
    cancelled one may go on, because up to Python 3.11 `wait_for` can swallow a cancellation. An attempt that outlives
    `close` in this way would leave tasks that nobody ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self._attempting = asyncio.Lock()
        self._is_given_up = False

    async def close(self) -> None:
        self._is_given_up = True
        try:
            await super().close()
        finally:
            self._end_tasks()

    async def _process_connect_init(self) -> None:
        await super()._process_connect_init()
        if self._is_given_up:
            self._status = Client.CLOSED
            self._end_tasks()
            raise asyncio.CancelledError

    def _end_tasks(self) -> None:
        own = (self._reading_task, self._ping_interval_task, self._flusher_task)
        for task in (*own, *(subscription._wait_for_msgs_task for subscription in self._subs.values())):
            if task is not None:
                task.cancel()

    async def _attempt_reconnect(self) -> None:
        async with self._attempting:
            # The former attempt may have connected although it was cancelled.
            if self.is_connected:
                return
            try:
                await super()._attempt_reconnect()
            except Exception as error:  # an error that nats-py does not expect would end all attempts without a trace
                await self._error_cb(error)
                # The next caller finds this client closed, and makes another.
                await self.close()


class AbortableTransport(TcpTransport):
    """A TCP connection that can be aborted at any time, and is closed before the next is made.

    Args:
        is_secret: refuse to write before TLS is established. nats-py believes the server, and would send the password
            in clear text to a server that offers no TLS.
    """

    def __init__(self, *, is_secret: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._is_secret = is_secret
        self._is_given_up = False

    def __bool__(self) -> bool:
        """Return True: nats-py replaces a false transport by its own."""
        return True

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Connect, after dropping the former connection."""
        await self.drop()
        self._end_if_given_up()
        # Not wait_for, which nats-py uses: up to Python 3.11 it may lose a connection made as the time runs out.
        async with asyncio.timeout(connect_timeout):
            reader, writer = await asyncio.open_connection(uri.hostname, uri.port, limit=buffer_size)
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer
        self._end_if_given_up()

    def write(self, payload: bytes) -> None:
        """Write, but not in clear text if TLS is required; raises TlsMissing if the server offers no TLS."""
        self._refuse_clear_text()
        super().write(payload)  # type: ignore[no-untyped-call]

    def writelines(self, payload: Iterable[bytes]) -> None:
        self._refuse_clear_text()
        super().writelines(payload)  # type: ignore[no-untyped-call]

    async def wait_closed(self) -> None:
        """Wait a moment for pending writes, and drop the connection.

        asyncio's own wait_closed is not used: after a failed TLS handshake it never returns, and a caller that gives up
        cancels it for all others.
        """
        for _ in range(_FLUSHES):
            if not any(writer.transport.get_write_buffer_size() for writer in self._writers()):
                break
            await asyncio.sleep(_FLUSH_S)
        await self.drop()

    async def give_up(self) -> None:
        """Drop the connection, and every later one."""
        self._is_given_up = True
        await self.drop()

    async def drop(self) -> None:
        """Drop the connection at once, if there is one."""
        self._abort()
        # The loop closes the socket in its next round.
        await asyncio.sleep(0)

    def _end_if_given_up(self) -> None:
        """End an attempt that has survived its cancellation."""
        if self._is_given_up:
            self._abort()
            raise asyncio.CancelledError

    def _refuse_clear_text(self) -> None:
        if self._is_secret and self._io_writer is self._bare_io_writer:
            raise TlsMissing("the server does not speak TLS")

    def _abort(self) -> None:
        for writer in self._writers():
            writer.transport.abort()

    def _writers(self) -> Sequence[asyncio.StreamWriter]:
        # Up to Python 3.11, TLS that is broken off while it begins leaves a writer without a transport.
        writers = (self._io_writer, self._bare_io_writer)
        return [writer for writer in writers if writer is not None and writer.transport is not None]


# https://github.com/nats-io/nats-server/blob/main/server/errors.json
STREAM_NOT_FOUND = 10059
NOT_READY = 10163
"""A new leader does not know the last message yet; nothing was written."""
_CONFLICTS = (10071, 10164)
"""The second is of a replicated stream: another message for the subject is being written."""
_NO_JETSTREAM = (10039, 10076)
_NO_ROOM = (10023, 10028, 10047, 10077, 10110)
_NOT_WITH_THESE_SERVERS = (10005, 10074)
_TOO_LARGE = (10054,)
_SEALED = (10109,)
_DENIED = ("authorization", "permissions", "authentication")


class TlsMissing(nats.errors.Error):
    """A server offers no TLS, but TLS is required."""


def is_conflict(error: BaseException) -> bool:
    """Return whether a message was refused because another one is, or will be, in its place."""
    return isinstance(error, APIError) and error.err_code in _CONFLICTS


@asynccontextmanager
async def translate_errors(place: str) -> AsyncIterator[None]:
    """Raise errors of NATS and of the connection as errors of voda that name the log.

    A cancellation that nats-py swallows is raised again: up to Python 3.11 its `wait_for` swallows one that comes in
    the same round of the loop as the answer, so that an endless loop would not end.
    """
    task = asyncio.current_task()
    cancelled_before = task.cancelling() if task is not None else 0
    try:
        yield
    except Exception as error:
        if task is not None and task.cancelling() > cancelled_before:
            raise asyncio.CancelledError from error
        if isinstance(error, nats.errors.Error | OSError | TimeoutError):
            raise translate_error(error, place) from error
        raise
    if task is not None and task.cancelling() > cancelled_before:
        raise asyncio.CancelledError


def translate_error(error: Exception, place: str) -> VodaError:
    """Return voda's error for one of NATS."""
    said = _message(error)
    if isinstance(error, APIError) and (known := _explain_api(error, place, said)):
        return known
    if any(word in said.lower() for word in _DENIED):
        return InvalidInput(f"{place} refuses the user, password or token, or what they ask for: {said}")
    match error:
        case TlsMissing():
            return InvalidInput(
                f"{place}: the server does not speak TLS: give it a certificate (tls: in its settings), or begin the"
                " URL with nats://, where the traffic is readable on the way"
            )
        case ssl.SSLCertVerificationError():
            return InvalidInput(
                f"{place}: the server's certificate is not trusted ({error.verify_message}): it has to be valid, signed"
                " by the authority that ca=FILE names, and for the host that the URL names"
            )
        case nats.errors.MaxPayloadError():
            return InvalidInput(f"{place}: a message is larger than the server takes (max_payload)")
        case nats.errors.NoRespondersError() | NoStreamResponseError():
            return StoreUnavailable(
                f"{place} does not answer: the stream has no leader, or JetStream is off (jetstream: in the server's"
                " settings); try again"
            )
        case _:
            return StoreUnavailable(f"{place} does not answer: {said}; try again")


def _explain_api(error: APIError, place: str, said: str) -> VodaError | None:
    code = error.err_code
    if code == STREAM_NOT_FOUND:
        return NotALog(f"{place} holds no voda log yet: run 'voda log migrate {place}' first")
    if code in _NO_JETSTREAM:
        return InvalidInput(f"{place} offers no JetStream ({said}): switch it on, for the server and for the account")
    if code in _NO_ROOM:
        return StoreNotWritable(
            f"{place} cannot grow: {said}; free some space, or raise the server's or account's limit"
        )
    if code in _NOT_WITH_THESE_SERVERS:
        return InvalidInput(f"{place} cannot keep as many replicas as asked for: {said}")
    if code in _TOO_LARGE:
        return InvalidInput(f"{place}: a message is larger than the stream takes ({said})")
    if code in _SEALED:
        return StoreNotWritable(f"{place} may not be written: {said}")
    return None


def _message(error: Exception) -> str:
    if isinstance(error, APIError) and error.description:
        return f"{error.description}"
    return str(error).removeprefix("nats: ").splitlines()[0] if str(error) else type(error).__name__

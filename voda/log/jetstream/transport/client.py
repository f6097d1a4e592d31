"""nats-py's client and transport, corrected to end at once and whole; its errors.

Rule: only gaps of nats-py are filled here, and its errors put into voda's words.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from urllib.parse import ParseResult

import nats.errors
from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from nats.js.errors import APIError, NoStreamResponseError

from voda.domain.errors import (
    ChangedMeanwhile,
    InvalidInput,
    NotALog,
    NotFound,
    StoreNotWritable,
    StoreUnavailable,
    VodaError,
)


class SingleConnectionClient(Client):
    """A client of one connection to one server: once this is lost, the client ends with all its tasks and requests.

    nats-py's own reconnection may begin twice, and go on after `close`; and its end first writes what is pending, which
    may fail and leave the rest open.

    Args:
        is_secret: see AbortableTransport.
    """

    def __init__(self, *, is_secret: bool) -> None:
        super().__init__()
        # nats-py's own transport waits for ever for a frozen server to read.
        self._transport: AbortableTransport = AbortableTransport(is_secret=is_secret)

    def end(self) -> None:
        """End the connection, or the attempt to make one, at once. Safe to call twice."""
        self._status = Client.CLOSED
        own = (self._reading_task, self._ping_interval_task, self._flusher_task)
        for task in (*own, *(subscription._wait_for_msgs_task for subscription in self._subs.values())):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        for answer in [*self._resp_map.values()]:
            if not answer.done():
                answer.set_exception(nats.errors.ConnectionClosedError())
        self._transport.abort()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        self.end()

    async def _select_next_server(self) -> None:
        self._current_server = self._server_pool[0]
        await self._connect_to_server(self._current_server)


class AbortableTransport(TcpTransport):
    """A TCP connection that can be aborted at any time.

    Args:
        is_secret: refuse to write before TLS is established. nats-py believes the server, and would send the password
            in clear text to a server that offers no TLS.
    """

    def __init__(self, *, is_secret: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._is_secret = is_secret

    def __bool__(self) -> bool:
        """Return True: nats-py replaces a false transport by its own."""
        return True

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        # Not wait_for, which nats-py uses: up to Python 3.11 it may lose a connection made as the time runs out.
        async with asyncio.timeout(connect_timeout):
            reader, writer = await asyncio.open_connection(uri.hostname, uri.port, limit=buffer_size)
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer

    def write(self, payload: bytes) -> None:
        """Write, but not in clear text if TLS is required; raises TlsMissing if the server offers no TLS."""
        self._refuse_clear_text()
        super().write(payload)  # type: ignore[no-untyped-call]

    def writelines(self, payload: Iterable[bytes]) -> None:
        self._refuse_clear_text()
        super().writelines(payload)  # type: ignore[no-untyped-call]

    def abort(self) -> None:
        for writer in (self._io_writer, self._bare_io_writer):
            # Up to Python 3.11, TLS that is broken off while it begins leaves a writer without a transport.
            if writer is not None and writer.transport is not None:
                writer.transport.abort()

    def _refuse_clear_text(self) -> None:
        if self._is_secret and self._io_writer is self._bare_io_writer:
            raise TlsMissing("the server does not speak TLS")


_NOT_READY = 10163
"""A new leader does not know the last message yet; nothing was written."""
_UNAVAILABLE = 503
_DENIED = ("authorization", "permissions", "authentication")


class TlsMissing(nats.errors.Error):
    """A server offers no TLS, but TLS is required."""


def is_unwritten(error: StoreUnavailable) -> bool:
    """Return whether it is certain that nothing was written: no server was there to write it."""
    cause = error.__cause__
    if isinstance(cause, APIError):
        return cause.err_code == _NOT_READY
    return isinstance(cause, nats.errors.NoRespondersError)


def is_refusal(error: StoreUnavailable) -> bool:
    """Return whether a server said no, rather than nothing or that it cannot answer for the moment."""
    cause = error.__cause__
    return isinstance(cause, APIError) and cause.code != _UNAVAILABLE


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
    # The numbers: https://github.com/nats-io/nats-server/blob/main/server/errors.json
    match error:
        case APIError(err_code=10059):
            return NotALog(f"{place} holds no voda log yet: run 'voda log migrate {place}' first")
        case APIError(err_code=10037):
            return NotFound(f"{place}: there is no such message")
        # The second is of a replicated stream: another message for the subject is being written.
        case APIError(err_code=10071 | 10164):
            return ChangedMeanwhile(f"{place}: another process was faster; try again")
        case APIError(err_code=10039 | 10076):
            return InvalidInput(
                f"{place} offers no JetStream ({said}): switch it on, for the server and for the account"
            )
        case APIError(err_code=10023 | 10028 | 10047 | 10077 | 10110):
            return StoreNotWritable(
                f"{place} cannot grow: {said}; free some space, or raise the server's or account's limit"
            )
        case APIError(err_code=10005 | 10074):
            return InvalidInput(f"{place} cannot keep as many replicas as asked for: {said}")
        case APIError(err_code=10054) | nats.errors.MaxPayloadError():
            return InvalidInput(f"{place}: a message is larger than the server takes ({said})")
        case APIError(err_code=10109):
            return StoreNotWritable(f"{place} may not be written: {said}")
        case _ if any(word in said.lower() for word in _DENIED):
            return InvalidInput(f"{place} refuses the user, password or token, or what they ask for: {said}")
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
        case nats.errors.NoRespondersError() | NoStreamResponseError():
            return StoreUnavailable(
                f"{place} does not answer: the stream has no leader, or JetStream is off (jetstream: in the server's"
                " settings); try again"
            )
        case _:
            return StoreUnavailable(f"{place} does not answer: {said}; try again")


def _message(error: Exception) -> str:
    if isinstance(error, APIError) and error.description:
        return f"{error.description}"
    return str(error).removeprefix("nats: ").splitlines()[0] if str(error) else type(error).__name__

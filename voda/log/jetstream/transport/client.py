"""nats-py's client and transport, corrected to make one connection at a time and to release every connection.

Rule: only gaps of nats-py are filled here; nothing is specific to voda.
"""

import asyncio
from collections.abc import Iterable, Sequence
from urllib.parse import ParseResult

from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from voda.log.jetstream.transport.errors import TlsMissing

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
        """Close for good."""
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
        """Write, but not in clear text if TLS is required.

        Raises:
            TlsMissing: the server offers no TLS.
        """
        self._refuse_clear_text()
        super().write(payload)  # type: ignore[no-untyped-call]

    def writelines(self, payload: Iterable[bytes]) -> None:
        """Write several; see write."""
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

"""nats-py's client and its way to a server, made to let go of what they take hold of.

Rule: what is done here is what nats-py leaves out, and nothing of voda's.
"""

import asyncio
from collections.abc import Iterable, Sequence
from urllib.parse import ParseResult

from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from voda.log.jetstream.transport.errors import TlsMissing

_FLUSH_S = 0.01
_FLUSHES = 50
"""Pauses in which what is to be written may be, before a connection is let go of."""


class SerialReconnectClient(Client):
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
            if self.is_connected:
                return
            try:
                await super()._attempt_reconnect()
            except Exception as error:  # what nats-py does not expect would end all attempts, and nobody would know
                await self._error_cb(error)
                # Whoever asks for a connection next finds this one at its end, and makes another.
                await self.close()


class AbortableTransport(TcpTransport):
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
            raise TlsMissing("the server does not speak TLS")

    def _abort(self) -> None:
        for writer in self._writers():
            writer.transport.abort()

    def _writers(self) -> Sequence[asyncio.StreamWriter]:
        # Up to Python 3.11, TLS that is broken off while it begins leaves a writer without a transport.
        writers = (self._io_writer, self._bare_io_writer)
        return [writer for writer in writers if writer is not None and writer.transport is not None]

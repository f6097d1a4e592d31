"""A way to a server that can be cut: for what clients do when connections and answers are lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_PIECE = 65_536


class Relay:
    """Carries bytes to a server and back."""

    def __init__(self, url: str, *, loses: int) -> None:
        self.url = ""
        self.lost = 0
        """Answers that were thrown away."""
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._there = (host, int(port))
        self._loses = loses
        self._is_closed = False
        self._open: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()

    def close(self) -> None:
        """Cut all connections, and let nobody make new ones."""
        self._is_closed = True
        self.cut()

    def open(self) -> None:
        """Let new connections be made again."""
        self._is_closed = False

    def cut(self) -> None:
        """Cut all connections; new ones may be made."""
        for writer in tuple(self._open):
            writer.transport.abort()

    def hang(self) -> None:
        """Let nothing through, and tell nobody."""
        self._flows.clear()

    def flow(self) -> None:
        """Let through what was held up, and what comes."""
        self._flows.set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until one side ends it."""
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._there)
        except ConnectionError:
            writer.transport.abort()
            return
        if self._is_closed:
            writer.transport.abort()
            far_writer.transport.abort()
            return
        self._open |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pour(reader, far_writer, is_answer=False))
                group.create_task(self._pour(far_reader, writer, is_answer=True))
        finally:
            self._open -= {writer, far_writer}

    async def _pour(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(_PIECE):
                if is_answer and self.lost < self._loses:
                    self.lost += 1
                    break
                await self._flows.wait()
                writer.write(piece)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def relayed(url: str, *, loses: int = 0) -> AsyncIterator[Relay]:
    """Yield a relay to the server; the first `loses` answers do not arrive, and their connections end."""
    relay = Relay(url, loses=loses)
    listener = await asyncio.start_server(relay.carry, "127.0.0.1", 0)
    relay.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        listener.close()
        relay.cut()

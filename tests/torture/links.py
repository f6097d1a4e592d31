"""Links between voda and a server of the log, which can be cut, frozen, slowed down or made deaf on one side.

Rule: bytes are carried whole and in order or not at all; a connection that lost some is cut before it goes on.
"""

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

_PIECE_BYTES = 65_536
_CONNECT_S = 5.0
_SLOW_S = 0.15


class Trouble(enum.StrEnum):
    """What may be wrong with a link."""

    CUT = "cut"
    """Connections are reset; new ones, too."""
    HANG = "hang"
    """Nothing gets through, and nobody is told; later all of it does."""
    DEAF = "deaf"
    """Requests get through and answers do not: the outcome of all that is done is unknown. Then it is cut."""
    SLOW = "slow"
    """Every piece takes its time."""


class Connection:
    """One connection, both ways."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._writers = (near, far)
        self.trouble: Trouble | None = None
        self.is_over = asyncio.Event()
        """Set while there is no trouble."""
        self.is_over.set()
        self._has_lost = False

    def suffer(self, trouble: Trouble) -> None:
        """Have trouble from now on."""
        self.trouble = trouble
        self.is_over.clear()
        if trouble is Trouble.CUT:
            self.cut()

    def recover(self) -> None:
        """Go on, unless something was lost."""
        self.trouble = None
        self.is_over.set()
        if self._has_lost:
            self.cut()

    def cut(self) -> None:
        """Reset both sides."""
        for writer in self._writers:
            writer.transport.abort()

    async def pour(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        """Carry one way until it ends."""
        with suppress(ConnectionError):
            while piece := await reader.read(_PIECE_BYTES):
                if self.trouble is Trouble.HANG:
                    await self.is_over.wait()
                elif self.trouble is Trouble.SLOW:
                    await asyncio.sleep(_SLOW_S)
                if self.trouble is Trouble.DEAF and is_answer:
                    self._has_lost = True
                    continue
                writer.write(piece)
                await writer.drain()
        with suppress(ConnectionError, RuntimeError):
            writer.close()


class Link:
    """The way to one server; `url` of the log names `port` instead of the server's own."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.target = target
        self._connections: set[Connection] = set()
        self._trouble: tuple[Trouble, float, Random] | None = None
        self._carrying: set[asyncio.Task[None]] = set()

    def suffer(self, trouble: Trouble, *, share: float, chance: Random) -> None:
        """Have each connection, those to come included, be in trouble with a probability of `share`, 0 to 1."""
        self._trouble = (trouble, share, chance)
        for connection in tuple(self._connections):
            self._afflict(connection)

    def recover(self) -> None:
        """Be as good as new."""
        self._trouble = None
        for connection in tuple(self._connections):
            connection.recover()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until both sides ended it."""
        task = asyncio.current_task()
        assert task is not None, "started by a server"
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)
        try:
            async with asyncio.timeout(_CONNECT_S):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except (OSError, TimeoutError):
            writer.transport.abort()
            return
        connection = Connection(writer, far_writer)
        self._connections.add(connection)
        self._afflict(connection)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(connection.pour(reader, far_writer, is_answer=False))
                group.create_task(connection.pour(far_reader, writer, is_answer=True))
        finally:
            self._connections.discard(connection)
            connection.cut()

    async def close(self) -> None:
        """Cut all connections for good, and return once nothing is carried any more."""
        for connection in tuple(self._connections):
            connection.recover()
            connection.cut()
        if self._carrying:
            await asyncio.wait(self._carrying, timeout=_CONNECT_S)

    def _afflict(self, connection: Connection) -> None:
        if self._trouble is not None:
            trouble, share, chance = self._trouble
            if chance.random() < share:
                connection.suffer(trouble)


@asynccontextmanager
async def linked(target: int) -> AsyncIterator[Link]:
    """Yield a link to a port of this machine; it listens on another one."""
    link = Link(target)
    listener = await asyncio.start_server(link.carry, "127.0.0.1", 0)
    link.port = listener.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        listener.close()
        await link.close()

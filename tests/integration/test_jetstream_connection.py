"""A connection to a server that breaks off, says nothing or answers late, at moments drawn from a seed.

Rule: the server is a stand-in, because a real one cannot be made to do so at every step of a handshake.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from tests.nats import serving
from voda.domain.errors import StoreUnavailable
from voda.domain.rng import rng_at
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.url import parse_url

_INFO = b'INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"headers":true,"proto":1,"client_id":1}\r\n'
_LONG_S = 5.0


class Moody:
    """A server of which no connection lasts."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._talks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.create_task(self._talk(reader, writer))
        self._talks.add(talk)
        await asyncio.wait([talk])
        self._talks.discard(talk)
        writer.close()

    def hang_up(self) -> None:
        for talk in self._talks:
            talk.cancel()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await self._answer(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chance = self._chance
        mood = chance.random()
        if mood < 0.15:
            await asyncio.sleep(chance.uniform(0.0, 0.05))
            return
        await asyncio.sleep(_LONG_S if mood < 0.25 else chance.choice((0.0, 0.0, 0.01, 0.1)))
        writer.write(_INFO)
        while line := await reader.readline():
            if not line.startswith(b"PING"):
                continue
            await asyncio.sleep(_LONG_S if chance.random() < 0.2 else chance.choice((0.0, 0.0, 0.005, 0.05)))
            writer.write(b"PONG\r\n")
            if chance.random() < 0.3:
                await asyncio.sleep(chance.uniform(0.0, 0.05))
                return


@asynccontextmanager
async def moody(chance: Random) -> AsyncIterator[str]:
    """A server's URL."""
    server = Moody(chance)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield f"nats://127.0.0.1:{port},127.0.0.1:{port}/log"
    finally:
        listener.close()
        server.hang_up()


async def use(connection: NatsConnection, chance: Random) -> None:
    for _ in range(chance.randint(1, 3)):
        with suppress(StoreUnavailable):
            await connection.request("a", b"x", wait_s=chance.choice((0.01, 0.05)))
        await asyncio.sleep(chance.uniform(0.0, 0.2))


async def come_and_go(seed: int) -> None:
    """Use a connection twice at once, leave it or break the use off, and close it."""
    chance = rng_at(seed, "connection")
    async with moody(chance) as url:
        connection = NatsConnection(parse_url(url), timeout_s=0.4)
        users = [asyncio.ensure_future(use(connection, chance)) for _ in range(2)]
        await asyncio.wait(users, timeout=chance.uniform(0.0, 0.5) if chance.random() < 0.5 else None)
        for user in users:
            user.cancel()
        if chance.random() < 0.5:
            await asyncio.wait(users)
        # Nobody has canceled this one, whatever became of those it waits for.
        await connection.close()
        await asyncio.wait(users)


def left_open() -> list[str]:
    """Return the connections of this loop that nobody has closed."""
    gc.collect()
    loop = asyncio.get_running_loop()
    writers = [each for each in gc.get_objects() if isinstance(each, asyncio.StreamWriter)]
    return [repr(each) for each in writers if getattr(each, "_loop", None) is loop and not each.is_closing()]


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(3))
async def test_connection_when_closed_leaves_nothing_open_whatever_the_server_did(
    batch: int, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    async with asyncio.TaskGroup() as group:
        for seed in range(40):
            group.create_task(come_and_go(1_000 * batch + seed))
    left = {task for task in asyncio.all_tasks() - before if not task.done()}
    async with asyncio.timeout(30):
        while left := {task for task in left if not task.done()}:
            await asyncio.wait(left, timeout=0.1)
    assert left_open() == []
    # Such as an exception in a task that nobody waits for.
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.nats
async def test_connection_when_closed_while_it_is_being_made_says_so() -> None:
    with serving() as server:
        connection = NatsConnection(parse_url(server.url("log")), timeout_s=30.0)
        connecting = asyncio.ensure_future(connection.client())
        await asyncio.sleep(0)
        await connection.close()
        with pytest.raises(StoreUnavailable, match="was closed"):
            await connecting
        assert left_open() == []

"""Links of the torture do what they say: otherwise a torture with cut links would prove nothing of cut links."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.torture.links import Link, Trouble, linked
from tests.waiting import DEADLINE_S
from voda.domain.rng import rng_at

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """A server that answers with what it hears."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)
        try:
            while piece := await reader.read(1_000):
                self.heard.put_nowait(piece)
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def an_echo() -> AsyncIterator[tuple[Echo, Link, Streams]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with asyncio.timeout(DEADLINE_S), linked(server.sockets[0].getsockname()[1]) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        assert await said(reader, writer, b"hello") == b"hello"
        assert await echo.heard.get() == b"hello"
        try:
            yield echo, link, (reader, writer)
        finally:
            writer.close()
            await link.close()
            server.close()
            while echo.serving:
                await asyncio.wait(echo.serving)


async def asked(port: int, what: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await said(reader, writer, what)
    finally:
        writer.close()


async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: bytes) -> bytes:
    writer.write(what)
    return await reader.readexactly(len(what))


def suffer(link: Link, trouble: Trouble, share: float = 1.0) -> None:
    link.suffer(trouble, share=share, chance=rng_at(1))


async def test_link_when_cut_resets_what_is_open_and_what_is_opened() -> None:
    async with an_echo() as (_, link, (reader, writer)):
        suffer(link, Trouble.CUT)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await said(reader, writer, b"lost")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asked(link.port, b"lost")
        link.recover()
        assert await asked(link.port, b"again") == b"again"


async def test_link_when_deaf_carries_requests_and_no_answers_and_is_then_cut() -> None:
    async with an_echo() as (echo, link, (reader, writer)):
        suffer(link, Trouble.DEAF)
        writer.write(b"done")
        assert await echo.heard.get() == b"done"
        # The answer is on its way, or was dropped: one more round trip of the server shows that it is dropped.
        writer.write(b"too")
        assert await echo.heard.get() == b"too"
        link.recover()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(len(b"donetoo"))


async def test_link_when_it_hung_carries_all_of_it_later() -> None:
    async with an_echo() as (echo, link, (reader, writer)):
        suffer(link, Trouble.HANG)
        writer.write(b"late")
        await writer.drain()
        assert echo.heard.empty()
        link.recover()
        assert await reader.readexactly(4) == b"late"


async def test_link_when_slow_carries_all_of_it() -> None:
    async with an_echo() as (_, link, (reader, writer)):
        suffer(link, Trouble.SLOW)
        assert await said(reader, writer, b"slow") == b"slow"


async def test_link_when_no_connection_has_its_share_is_as_before() -> None:
    async with an_echo() as (_, link, (reader, writer)):
        suffer(link, Trouble.CUT, share=0.0)
        assert await said(reader, writer, b"well") == b"well"

"""What keeps the log while it is tortured: a file, PostgreSQL or a NATS cluster, each behind links that can be cut.

Rule: an ill is healed by its own `heal`, whatever happened meanwhile, so that everything is well once all are healed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests import nats, postgres
from tests.torture.links import Link, Trouble, linked

STORES: Sequence[str] = ("sqlite", "postgres", "jetstream")
_LOG = "torture"
_SHARES = (1.0, 0.5)
"""Of a link's connections that are in trouble together."""


@dataclass(frozen=True, slots=True)
class Ill:
    """Something that can happen to a server or to the way to it."""

    name: str
    strike: Callable[[], Awaitable[None]]
    heal: Callable[[], Awaitable[None]]
    longest_s: float


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the log is, and what may happen to it."""

    url: str
    """As voda is given it, through the links; empty = the file in its folder."""
    direct_url: str
    """The same without links, for the copy of the log."""
    ills: Sequence[Ill] = ()
    restart: Callable[[], Awaitable[None]] | None = None
    """Kills and starts whatever keeps the log."""


@asynccontextmanager
async def serving(store: str, home: Path, chance: Random) -> AsyncIterator[Servers]:
    """Run what keeps the log for the length of the block.

    Raises:
        RuntimeError: there are no binaries of it.
    """
    opened = {"sqlite": _sqlite, "postgres": _postgres, "jetstream": _jetstream}[store]
    async with opened(home, chance) as servers:
        yield servers


@asynccontextmanager
async def _sqlite(home: Path, _chance: Random) -> AsyncIterator[Servers]:
    yield Servers(url="", direct_url=str(home / "voda.db"))


@asynccontextmanager
async def _postgres(_home: Path, chance: Random) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, postgres.serving(is_durable=True))
        link = await stack.enter_async_context(linked(server.port))
        direct = await asyncio.to_thread(server.create_database)

        async def revive() -> None:
            await asyncio.to_thread(server.start)

        async def kill() -> None:
            await asyncio.to_thread(server.kill)

        async def restart() -> None:
            await kill()
            await revive()

        async def freeze() -> None:
            server.freeze()

        async def thaw() -> None:
            server.thaw()

        ills = [
            Ill("PostgreSQL is killed", kill, revive, 2.0),
            Ill("PostgreSQL stands still", freeze, thaw, 8.0),
            *_ills_of(link, "PostgreSQL", chance),
        ]
        url = direct.replace(f":{server.port}/", f":{link.port}/")
        yield Servers(url=url, direct_url=direct, ills=ills, restart=restart)


@asynccontextmanager
async def _jetstream(_home: Path, chance: Random) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, nats.serving(3))
        links = [await stack.enter_async_context(linked(node.port)) for node in server.nodes]

        async def restart() -> None:
            for node in server.nodes:
                await asyncio.to_thread(node.kill)
            await asyncio.to_thread(server.start)

        ills = [ill for node in server.nodes for ill in _ills_of_node(node)]
        for node, link in zip(server.nodes, links, strict=True):
            ills += _ills_of(link, f"NATS {node.name}", chance)
        direct = server.url(_LOG)
        url = direct
        for node, link in zip(server.nodes, links, strict=True):
            url = url.replace(f"127.0.0.1:{node.port}", f"127.0.0.1:{link.port}", 1)
        yield Servers(url=url, direct_url=direct, ills=ills, restart=restart)


def _ills_of_node(node: nats.Node) -> Sequence[Ill]:
    async def kill() -> None:
        await asyncio.to_thread(node.kill)

    async def revive() -> None:
        await asyncio.to_thread(node.start)

    async def freeze() -> None:
        node.freeze()

    async def thaw() -> None:
        node.thaw()

    return [
        Ill(f"NATS {node.name} is killed", kill, revive, 4.0),
        Ill(f"NATS {node.name} stands still", freeze, thaw, 8.0),
    ]


def _ills_of(link: Link, server: str, chance: Random) -> Sequence[Ill]:
    async def heal() -> None:
        link.recover()

    def ill(trouble: Trouble, share: float) -> Ill:
        async def strike() -> None:
            link.suffer(trouble, share=share, chance=chance)

        part = "the link" if share == 1 else "a part of the link"
        return Ill(f"{part} to {server}: {trouble}", strike, heal, 6.0)

    return [ill(trouble, share) for trouble in Trouble for share in _SHARES]

"""The logs that the contract suites ask: one of each store, to be opened as often as a test needs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.nats import NatsServer
from voda.log.factory import open_store
from voda.log.jetstream.store import JetStreamStore
from voda.log.memory import MemoryStore
from voda.log.sql.postgres import PostgresDatabase
from voda.log.store import DurableStore, EventStore

Store = TypeVar("Store", bound=EventStore)

KINDS: Sequence[Any] = [
    "memory",
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("jetstream", marks=pytest.mark.nats),
    pytest.param("jetstream-cluster", marks=[pytest.mark.nats, pytest.mark.slow]),
]


async def opener(kind: str, request: pytest.FixtureRequest, folder: Path) -> Callable[[], Awaitable[DurableStore]]:
    """Return what opens an empty log of that kind: once more each time, as another process would."""
    if kind == "memory":
        memory = MemoryStore()
        return lambda: asyncio.sleep(0, memory)
    if kind == "sqlite":
        return lambda: open_store(folder / "log.db")
    if kind == "postgres":
        url = str(request.getfixturevalue("postgres_database"))
        await PostgresDatabase.migrate(url)
    else:
        server: NatsServer = request.getfixturevalue("nats_cluster" if "cluster" in kind else "nats_server")
        url = server.url()
        await JetStreamStore.migrate(url)
    return lambda: open_store(url)


@asynccontextmanager
async def closing_all(make: Callable[[], Awaitable[Store]]) -> AsyncIterator[Callable[[], Awaitable[Store]]]:
    """Give what opens a log as `make` does; whatever it opened is closed in the end."""
    async with AsyncExitStack() as opened:

        async def open_again() -> Store:
            store = await make()
            opened.push_async_callback(store.close)
            return store

        yield open_again

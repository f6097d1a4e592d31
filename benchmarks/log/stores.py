"""One empty log of each kind, on a server of its own that waits for the disk as a server in earnest does."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests import nats, postgres
from voda.log.factory import migrate_log, open_store
from voda.log.store import DurableStore

STORES: Final = ("sqlite", "postgres", "jetstream")


@asynccontextmanager
async def place(name: str) -> AsyncIterator[str]:
    """Yield the path or URL of an empty log; it is gone after the block."""
    match name:
        case "sqlite":
            with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder:
                yield str(Path(folder) / "log.db")
        case "postgres":
            with postgres.serving(is_durable=True) as server:
                url = server.create_database()
                await migrate_log(url)
                yield url
        case "jetstream":
            with nats.serving() as nodes:
                await migrate_log(url := nodes.url("log"))
                yield url
        case _:
            raise ValueError(f"there is no store {name!r}: expected one of {', '.join(STORES)}")


@asynccontextmanager
async def opened(location: str) -> AsyncIterator[DurableStore]:
    """Open a log for the length of the block."""
    store = await open_store(location)
    try:
        yield store
    finally:
        await store.close()

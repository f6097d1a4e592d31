"""One empty log of each kind, on a server of its own that waits for the disk as a server in earnest does."""

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.log.options import Options
from tests import postgres
from voda.events.opening import open_store
from voda.events.sql.postgres import PostgresDatabase
from voda.events.store import EventStore

STORES = ("sqlite", "postgres", "jetstream")


@asynccontextmanager
async def places(options: Options) -> AsyncIterator[Mapping[str, str]]:
    """Yield store -> path or URL of an empty log, of the stores that are asked for."""
    wanted = options.stores or STORES
    found: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        if "sqlite" in wanted:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="voda-bench-"))
            found["sqlite"] = str(Path(folder) / "log.db")
        if "postgres" in wanted:
            found["postgres"] = stack.enter_context(postgres.serving(is_durable=True)).create_database()
            await PostgresDatabase.migrate(found["postgres"])
        yield found


@asynccontextmanager
async def opened(location: str) -> AsyncIterator[EventStore]:
    """Open a log for the length of the block."""
    store = await open_store(location)
    try:
        yield store
    finally:
        await store.close()

"""A tail that is told to end, at the very moment at which something to read comes."""

import asyncio
from pathlib import Path

from tests.builders import a_fact
from voda.events.envelope import ANY_VERSION
from voda.log.factory import open_store


async def test_tail_when_cancelled_as_the_log_grows_ends(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "voda.db")

    async def follow() -> None:
        async for _ in store.tail(0):
            pass

    try:
        for _ in range(20):
            reader = asyncio.create_task(follow())
            # It waits by the time it has read what there is.
            await asyncio.sleep(0.05)
            await store.append("job.a", ANY_VERSION, [a_fact()])
            reader.cancel()
            await asyncio.wait([reader], timeout=60.0)
            assert reader.cancelled(), "it goes on, or failed, though it was cancelled"
    finally:
        await store.close()

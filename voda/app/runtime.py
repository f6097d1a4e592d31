"""What every long-running voda process does at its start.

Rule: nothing of it knows which cluster it works on.
"""

import asyncio
import gc

from voda.domain.errors import LogArchived
from voda.log.store import EventStore


def tune_garbage_collector() -> None:
    """Let Python look for garbage less often: thousands of jobs are none, and each look holds everybody up."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


async def last_recorded_at(store: EventStore) -> float:
    """Return the instant of the log's last event: time goes on from there, whatever the wall clock shows.

    0 where there is none, or where all of them were archived: that took longer than a clock is put back.
    """
    try:
        events = await store.read(max(0, await store.position() - 1), 1)
    except LogArchived:
        return 0.0
    return events[-1].recorded_at if events else 0.0


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has come to its end; what it failed with its group tells."""
    task.cancel()
    await asyncio.wait({task})

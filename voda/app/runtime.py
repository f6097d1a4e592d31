"""What every long-running voda process does when it starts and ends, on any cluster."""

import asyncio
import gc

from voda.domain.errors import LogArchived
from voda.log.store import EventStore


def tune_garbage_collector() -> None:
    """Make Python collect garbage less often: thousands of live jobs make each collection slow, and all wait for it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


async def last_recorded_at(store: EventStore) -> float:
    """Return the instant of the log's last event, from which time goes on whatever the wall clock shows.

    0 where there is none, or all are archived: archiving takes longer than a clock is set back.
    """
    try:
        events = await store.read(max(0, await store.position() - 1), 1)
    except LogArchived:
        return 0.0
    return events[-1].recorded_at if events else 0.0


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end; its task group raises its error."""
    task.cancel()
    await asyncio.wait({task})

"""What every long-running voda process does on any cluster: how it starts and ends, and the snapshots it takes.

Rule: a snapshot is a convenience; a start without one, or with an old one, reads more of the log.
"""

import asyncio
import gc
import logging
from typing import Final

from voda.application.read_model import ReadModel
from voda.controller.follower import take_snapshots
from voda.domain.errors import LogArchived, VodaError
from voda.log.store import EventStore

_log = logging.getLogger(__name__)

_EVERY_EVENTS: Final = 50_000
"""A start reads so many in some seconds; writing a snapshot makes all tasks wait for a moment."""
_LOOK_S: Final = 20.0


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


class Snapshots:
    """Takes a snapshot whenever the log has grown by enough, and one at the end."""

    def __init__(self, store: EventStore, view: ReadModel) -> None:
        self._store = store
        self._view = view
        # Events since then were folded at this start; without a new snapshot every later start folds them again.
        self._taken = view.kept_at

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._view.position - self._taken >= _EVERY_EVENTS:
                await self.take()

    async def take(self) -> None:
        """Take a snapshot now, unless nothing happened since the last."""
        view, position = self._view, self._view.position
        if position == self._taken:
            return
        try:
            await take_snapshots(self._store, (view.live, view.job_registry), position)
        except VodaError as error:
            _log.warning("snapshot not taken position=%d reason=%s", position, error)
        else:
            self._taken = view.kept_at = position
            _log.info("snapshot position=%d", self._taken)

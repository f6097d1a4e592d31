"""What every long-running voda process does on any cluster: how it starts and ends, and the snapshots it takes.

Rule: a snapshot is a convenience; a start without one, or with an old one, reads more of the log. So it is made beside
all other work, and one that fails is tried ever more seldom.
"""

import asyncio
import errno
import gc
import importlib
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from voda.application.read_model import ReadModel
from voda.backoff import delay_s
from voda.controller.snapshots import dump_states, save_snapshots
from voda.domain.errors import LogArchived, StoreNotWritable, VodaError
from voda.log.store import EventStore

_log = logging.getLogger(__name__)

_EVERY_EVENTS: Final = 50_000
"""A start reads so many in some seconds; while the state is encoded for a snapshot, no event is folded."""
_LOOK_S: Final = 20.0
_SOLVER_S: Final = 3.0
"""After the start, which has enough to do."""
_LONGEST_PAUSE_S: Final = 3600.0
ROOM_AGAIN_S: Final = 5.0
"""Between two attempts to write on a full disk."""
_ROOM_BYTES: Final = 1 << 20
"""A disk with less is full."""
T = TypeVar("T")


def tune_garbage_collector() -> None:
    """Make Python collect garbage less often: thousands of live jobs make each collection slow, and all wait for it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


async def load_solver(after_s: float = _SOLVER_S) -> None:
    """Load what estimates need, a second's work, in a thread: everything would wait for it at a job's first report."""
    await asyncio.sleep(after_s)
    await asyncio.to_thread(importlib.import_module, "scipy.optimize")


async def last_recorded_at(store: EventStore) -> float:
    """Return the instant of the log's last event, from which time goes on whatever the wall clock shows.

    0 where there is none, or all are archived: archiving takes longer than a clock is set back.
    """
    try:
        events = await store.read(max(0, await store.position() - 1), 1)
    except LogArchived:
        return 0.0
    return events[-1].recorded_at if events else 0.0


async def when_there_is_room(act: Callable[[], Awaitable[T]], folder: Path) -> T:
    """Return what `act` does, tried again as long as it cannot write because the disk of a folder is full.

    Raises:
        StoreNotWritable, OSError: it cannot write, and there is room; or another error of the system.
    """
    is_told = False
    while True:
        try:
            return await act()
        except (StoreNotWritable, OSError) as error:
            if isinstance(error, OSError) and error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if await asyncio.to_thread(lambda: shutil.disk_usage(folder).free) >= _ROOM_BYTES:
                raise
            if not is_told:
                _log.warning("the disk of %s is full: the start waits for room (%s)", folder, error)
            is_told = True
            await asyncio.sleep(ROOM_AGAIN_S)


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
        self._failures = 0
        """In a row."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.pause_s)
            if self._view.position - self._taken >= _EVERY_EVENTS:
                await self.take()

    @property
    def pause_s(self) -> float:
        """Seconds until it is looked again whether one is due."""
        return delay_s(self._failures + 1, first_s=_LOOK_S, longest_s=_LONGEST_PAUSE_S)

    async def take(self) -> None:
        """Take a snapshot now, unless nothing happened since the last."""
        view = self._view
        if view.position == self._taken:
            return
        async with view.at_rest():
            position = view.position
            states = await asyncio.to_thread(dump_states, (view.live, view.job_registry), position)
        try:
            await save_snapshots(self._store, states)
        except VodaError as error:
            self._failures += 1
            pause = f"{self.pause_s:.0f} s"
            _log.warning("snapshot not taken position=%d tried_again_in=%s reason=%s", position, pause, error)
        else:
            self._failures, self._taken, view.kept_at = 0, position, position
            _log.info("snapshot position=%d", position)

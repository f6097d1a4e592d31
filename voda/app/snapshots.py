"""Takes snapshots of the folded state, so that a start reads the tail of the log and not the whole.

Rule: a snapshot is a convenience; a start without one, or with an old one, reads more of the log.
"""

import asyncio
import logging
from typing import Final

from voda.application.read_model import ReadModel
from voda.controller.follower import take_snapshots
from voda.domain.errors import VodaError
from voda.log.store import EventStore

_log = logging.getLogger(__name__)

_EVERY_EVENTS: Final = 50_000
"""A start reads so many in some seconds; writing a snapshot makes all tasks wait for a moment."""
_LOOK_S: Final = 20.0


class Snapshots:
    """Takes a snapshot now and then, and one at the end."""

    def __init__(self, store: EventStore, view: ReadModel) -> None:
        self._store = store
        self._view = view
        # Events since then were folded at this start; without a new snapshot every later start folds them again.
        self._taken = view.kept_at

    async def run(self) -> None:
        """Take a snapshot whenever the log has grown by enough."""
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

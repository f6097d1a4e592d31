"""Snapshots of what is folded from the log, so that a start costs the tail and not the whole log.

Rule: a snapshot is a convenience; whoever finds none, or an old one, reads more of the log.
"""

import asyncio
import logging
from typing import Final

from voda.api.view import View
from voda.controller.follower import take_snapshot
from voda.domain.errors import VodaError
from voda.events.store import EventStore

_log = logging.getLogger(__name__)

_EVERY_EVENTS: Final = 50_000
"""Reading that many takes a start some seconds; writing the state down holds everybody up for a moment."""
_LOOK_S: Final = 20.0


class Snapshots:
    """Takes a snapshot now and then, and one at the end."""

    def __init__(self, store: EventStore, view: View) -> None:
        self._store = store
        self._view = view
        self._taken = view.position

    async def run(self) -> None:
        """Take a snapshot whenever the log has grown by enough."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._view.position - self._taken >= _EVERY_EVENTS:
                await self.take()

    async def take(self) -> None:
        """Take one now, unless nothing happened since the last."""
        if self._view.position == self._taken:
            return
        try:
            for projection in (self._view.live, self._view.roster):
                await take_snapshot(self._store, projection, self._view.position)
        except VodaError as error:
            _log.warning("no snapshot position=%d reason=%s", self._view.position, error)
        else:
            self._taken = self._view.position
            _log.info("snapshot position=%d", self._taken)

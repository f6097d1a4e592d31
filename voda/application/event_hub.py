"""Live events for many watchers: the log is followed once, and every event is put into words once.

Rule: nobody is waited for. A watcher whose buffer is full is told so, and reads on from the log at its own pace.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property

from voda.api.presenters.events import framed
from voda.application.event_history import EventFilter
from voda.application.read_model import ReadModel
from voda.events.envelope import Event

MOST_WAITING = 10_000
"""Events that wait for one watcher: more than a burst of submits that comes at once."""


class Shown:
    """An event on its way to watchers."""

    def __init__(self, event: Event) -> None:
        self.event = event

    @cached_property
    def frame(self) -> bytes:
        """As a server-sent event, without a manifest."""
        return framed(self.event)

    @cached_property
    def full_frame(self) -> bytes:
        """As a server-sent event, with the manifest."""
        return framed(self.event, with_manifest=True)


class Watcher:
    """One stream's share of what happens."""

    def __init__(self, wanted: EventFilter) -> None:
        self.is_late = False
        """Whether it missed events, because too many waited for it."""
        self._wanted = wanted
        self._waiting: deque[Shown] = deque()
        self._woken = asyncio.Event()

    async def next(self, timeout_s: float) -> Sequence[Shown]:
        """Return what waits; empty if nothing came within the time, or the watcher is late."""
        if not self._waiting and not self.is_late:
            self._woken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._woken.wait()
        shown = tuple(self._waiting)
        self._waiting.clear()
        return shown

    def give(self, shown: Shown) -> None:
        """Show it an event, if it wants it."""
        if self.is_late or not self._wanted(shown.event):
            return
        if len(self._waiting) == MOST_WAITING:
            self._waiting.clear()
            self.is_late = True
        else:
            self._waiting.append(shown)
        self._woken.set()

    def wake(self) -> None:
        """Have `next` return."""
        self._woken.set()


class Hub:
    """Hands every event of the view to all who watch."""

    def __init__(self, view: ReadModel) -> None:
        self._view = view
        self._watchers: dict[Watcher, None] = {}
        view.each(self._publish)

    @property
    def position(self) -> int:
        """Position up to which watchers were shown the log."""
        return self._view.position

    @contextmanager
    def watcher(self, wanted: EventFilter) -> Iterator[Watcher]:
        """Yield a watcher that is given every event after `position`."""
        watcher = Watcher(wanted)
        self._watchers[watcher] = None
        try:
            yield watcher
        finally:
            del self._watchers[watcher]

    def wake(self) -> None:
        """Have all watchers look up; the server is about to end."""
        for watcher in self._watchers:
            watcher.wake()

    def _publish(self, event: Event) -> None:
        if self._watchers:
            shown = Shown(event)
            for watcher in self._watchers:
                watcher.give(shown)

"""Hands every new event to all who follow the log live: the log is followed once, for all of them.

Rule: the hub waits for nobody. A subscription whose buffer is full is marked late, and its owner reads on from the log
at its own pace.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from voda.application.event_history import EventFilter
from voda.application.read_model import ReadModel
from voda.events.envelope import Event

T = TypeVar("T")
MAX_WAITING = 10_000
"""Events that wait for one subscription: more than a burst of submits that comes at once."""


class Subscription(Generic[T]):
    """The events that one follower wants, as they come."""

    def __init__(self, wanted: EventFilter) -> None:
        self.is_late = False
        """Whether it missed events, because too many waited for it."""
        self._wanted = wanted
        self._waiting: deque[T] = deque()
        self._woken = asyncio.Event()

    async def next(self, timeout_s: float) -> Sequence[T]:
        """Return what waits; empty if nothing came within the time, or the subscription is late."""
        if not self._waiting and not self.is_late:
            self._woken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._woken.wait()
        taken = tuple(self._waiting)
        self._waiting.clear()
        return taken

    def offer(self, event: Event, prepared: T) -> None:
        """Add an event if the filter matches it."""
        if self.is_late or not self._wanted(event):
            return
        if len(self._waiting) == MAX_WAITING:
            self._waiting.clear()
            self.is_late = True
        else:
            self._waiting.append(prepared)
        self._woken.set()


class EventHub(Generic[T]):
    """Hands the events of a read model to subscriptions.

    Args:
        view: whose events are handed on, each once it is folded.
        prepare: is called once per event, for all subscriptions together; they get what it returns.
    """

    def __init__(self, view: ReadModel, prepare: Callable[[Event], T]) -> None:
        self._view = view
        self._prepare = prepare
        self._subscriptions: dict[Subscription[T], None] = {}
        view.subscribe(self._publish)

    @property
    def position(self) -> int:
        """Position up to which events were handed on."""
        return self._view.position

    @contextmanager
    def subscription(self, wanted: EventFilter) -> Iterator[Subscription[T]]:
        """Yield a subscription to the wanted events after `position`."""
        subscription = Subscription[T](wanted)
        self._subscriptions[subscription] = None
        try:
            yield subscription
        finally:
            del self._subscriptions[subscription]

    def _publish(self, event: Event) -> None:
        if self._subscriptions:
            prepared = self._prepare(event)
            for subscription in self._subscriptions:
                subscription.offer(event, prepared)

"""Keys that wait for work, and when each is due: at once, after a delay, or after its last failure.

Rules: a key waits once, for the earliest instant that was asked for, and never before the delay after its failures is
over; those that are due longest come first. So "why is it not tried?" has one answer, `DueKeys.due_at`.
"""

import asyncio
import heapq
import math
from collections.abc import Hashable
from itertools import count
from typing import Final, Generic, TypeVar

from voda.backoff import Backoff
from voda.clock import Clock
from voda.concurrency import within

_SHORTEST_S: Final = 0.001
"""A timer may come early: then there is another one, not a loop without pause."""
K = TypeVar("K", bound=Hashable)


class DueKeys(Generic[K]):
    """What is due when; pure, instants are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._waiting: dict[K, tuple[float, int]] = {}
        """Key -> when it is due, and the number of that entry of the heap."""
        self._heap: list[tuple[float, int, K]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K, at: float) -> None:
        """Have a key due at an instant, unless it is sooner."""
        if at < self.due_at(key):
            entry = (at, next(self._numbers))
            self._waiting[key] = entry
            heapq.heappush(self._heap, (*entry, key))

    def discard(self, key: K) -> None:
        """Let a key wait no more."""
        self._waiting.pop(key, None)

    def due_at(self, key: K) -> float:
        """Return when a key is due; infinity where it does not wait."""
        return self._waiting.get(key, (math.inf, 0))[0]

    def next_at(self) -> float:
        """Return when the next key is due; infinity where none waits."""
        heap = self._heap
        while heap and self._waiting.get(heap[0][2]) != heap[0][:2]:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def take(self, now: float) -> K | None:
        """Take the key that is due longest; None where none is due."""
        if self.next_at() > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._waiting[key]
        return key


class WorkQueue(Generic[K]):
    """The keys of one loop; on one event loop.

    Args:
        clock: of the service.
        backoff: delays keys that failed, by their text; without it none does.
    """

    def __init__(self, clock: Clock, backoff: Backoff | None = None) -> None:
        self._clock = clock
        self._backoff = backoff
        self._due = DueKeys[K]()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: K, *, after_s: float = 0.0) -> None:
        """Have a key taken after a delay, by default at once; later where it failed of late."""
        earliest = self._backoff.due_at(str(key)) if self._backoff is not None else 0.0
        self._due.add(key, max(self._clock.now() + after_s, earliest))
        self._wake.set()

    def discard(self, key: K) -> None:
        """Have a key not taken, unless it is added again."""
        self._due.discard(key)

    def failed(self, key: K, *, at_least_s: float = 0.0) -> int:
        """Have a key taken again after a delay that grows with each failure in a row, and return how many these are."""
        assert self._backoff is not None, "a queue without backoff has no failures"
        attempts = self._backoff.failed(str(key), self._clock.now(), at_least_s=at_least_s)
        self._due.discard(key)
        self.add(key)
        return attempts

    def due_at(self, key: K) -> float:
        """Return when a key is due; infinity where it does not wait."""
        return self._due.due_at(key)

    def forget(self, key: K) -> None:
        """Forget that a key failed."""
        if self._backoff is not None:
            self._backoff.reset(str(key))

    def is_delayed(self, key: K) -> bool:
        """Return whether a key failed of late, so that it is not to be tried yet."""
        return self._backoff is not None and not self._backoff.is_due(str(key), self._clock.now())

    def clear(self) -> None:
        """Forget all keys, and what failed."""
        self._due = DueKeys[K]()
        if self._backoff is not None:
            self._backoff.clear()

    async def take(self) -> K:
        """Wait for a key that is due, and take it; others get a turn first, however many are due."""
        await asyncio.sleep(0)
        while (key := self._due.take(self._clock.now())) is None:
            self._wake.clear()
            next_at, now = self._due.next_at(), self._clock.now()
            await within(None if math.isinf(next_at) else max(next_at - now, _SHORTEST_S), self._wake.wait())
        return key

"""What the API reads: the state folded from the log as it grows, and the forecasts made from it.

Rule: a caller that appends and waits with `wait_for` sees its own write (read your writes).
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from heapq import heappop, heappush
from itertools import count

from voda.controller.follower import Restorable, catch_up, restore
from voda.domain.errors import StoreUnavailable
from voda.domain.plan import ExpectedTimes
from voda.events.envelope import Event
from voda.log.store import EventStore
from voda.projections.jobs.registry import JobRegistry
from voda.projections.live import Live


class ReadModel:
    """The projections behind the API, moved by one task."""

    def __init__(self, store: EventStore) -> None:
        self.live = Live()
        self.cluster = self.live.cluster
        self.job_registry = JobRegistry()
        self.forecasts: Mapping[str, ExpectedTimes] = {}
        """job id -> forecast; replaced as a whole."""
        self.forecast_at: float | None = None
        self.kept_at = 0
        """Position of the snapshots that the next start begins from; 0 where there are none."""
        self._store = store
        self._seen: list[Callable[[Event], None]] = []
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        """A heap: position waited for, number of the waiter, answer."""
        self._waiters = count()
        self._folding = asyncio.Lock()

    @property
    def position(self) -> int:
        return self.live.position

    def subscribe(self, seen: Callable[[Event], None]) -> None:
        """Call `seen` with every event that is appended from now on, once it is folded."""
        self._seen.append(seen)

    async def open(self) -> None:
        """Load the newest snapshots and fold the log to its end."""
        with _uncollected():
            projections: tuple[Restorable, ...] = (self.live, self.job_registry)
            reached = [await restore(self._store, projection) for projection in projections]
            self.kept_at, level = min(reached), max(reached)
            for projection, after in zip(projections, reached, strict=True):
                await catch_up(self._store, [projection], after=after, until=level)
            await catch_up(self._store, projections, after=level)

    async def run(self) -> None:
        async for event in self._store.tail(self.position):
            async with self._folding:
                self._fold(event)

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Keep the state as it is for the length of the block; events that come meanwhile are folded after it."""
        async with self._folding:
            yield

    def _fold(self, event: Event) -> None:
        self.live.apply(event)
        self.job_registry.apply(event)
        for seen in self._seen:
            seen(event)
        self._wake()

    async def wait_for(self, position: int, *, timeout_s: float = 10.0) -> None:
        """Return once the log is folded up to `position`; raises StoreUnavailable where it is not in time."""
        if self.position >= position:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (position, next(self._waiters), future))
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError as error:
            raise StoreUnavailable(
                f"position {position} is recorded, but was not read back within {timeout_s:g} s: ask again"
            ) from error

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.position:
            _, _, future = heappop(self._waiting)
            if not future.done():
                future.set_result(None)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Stop the garbage collector for the block: nearly all objects stay, and collecting takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

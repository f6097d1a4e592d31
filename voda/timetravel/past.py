"""The cluster at any moment of the log, fast enough to drag a slider: states passed on the way to others are kept.

Rule: what is kept is bounded in bytes, saves time alone, and changes no answer.
"""

import asyncio
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeVar

import msgspec

from voda.controller.follower import restore
from voda.domain.errors import LogArchived
from voda.events.envelope import Event
from voda.log.store import EventStore
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.live import Live
from voda.timetravel.activity import Activity
from voda.timetravel.replay import PAGE_FOLDED, events_between

T = TypeVar("T")
_MOST_BYTES: Final = 24 * 1024 * 1024
_FIRST_APART: Final = 4_000
"""Events between two kept states at first: folding them takes some 50 ms."""


class ClusterOfLive:
    """The cluster as the snapshots of `Live` have it, without what was learned of jobs."""

    FORMAT: ClassVar[str] = Live.FORMAT

    def __init__(self) -> None:
        self.cluster = LiveCluster()

    def apply(self, event: Event) -> None:
        """Fold one event."""
        self.cluster.apply(event)

    def dump(self) -> bytes:
        return msgspec.msgpack.encode((self.cluster.dump(), b""))

    def load(self, state: bytes) -> None:
        cluster, _learning = msgspec.msgpack.decode(state, type=tuple[bytes, bytes])
        self.cluster.load(cluster)


class Past:
    """Reads one log."""

    def __init__(self, store: EventStore, *, most_bytes: int = _MOST_BYTES) -> None:
        self.activity = Activity()
        self._store = store
        self._kept = KeptStates(most_bytes)
        self._latest = LiveCluster()
        """Where the last question led."""
        self._asking = asyncio.Lock()
        self._reading = asyncio.Lock()

    async def at(self, position: int, see: Callable[[LiveCluster], T]) -> T:
        """Return what `see` makes of the cluster after the event at `position`; it must not hold on to it.

        Raises:
            LogArchived: the log is cut, and no state of that time was kept.
            LogDamaged: an event on the way is not what was written.
            StoreUnavailable: try again.
        """
        async with self._asking:
            return see(await self._move(position))

    async def walk(self, position: int, instants: Sequence[float], see: Callable[[LiveCluster, float], None]) -> None:
        """Let `see` see the cluster after the event at `position`, at the first of the instants, then at each of the
        others, later ones, until the log ends; raises what `at` raises.
        """
        async with self._asking:
            cluster = await self._move(position)
            # It is this walk's alone from now on, so that others need not wait until the walk ends.
            self._latest = LiveCluster()
        see(cluster, instants[0])
        later = list(reversed(instants[1:]))
        async for event in events_between(self._store, after=position, page=PAGE_FOLDED):
            while later and event.recorded_at > later[-1]:
                see(cluster, later.pop())
            if not later:
                break
            await self._fold(cluster, event)
        if later:
            see(cluster, later[-1])
        if not self._asking.locked():
            self._latest = cluster

    async def _move(self, position: int) -> LiveCluster:
        cluster = await self._nearest(position)
        async for event in events_between(self._store, after=cluster.position, until=position, page=PAGE_FOLDED):
            await self._fold(cluster, event)
        self._latest = cluster
        return cluster

    async def _fold(self, cluster: LiveCluster, event: Event) -> None:
        cluster.apply(event)
        if self._kept.lacks(event.position):
            await self._kept.add(event.position, cluster.dump())

    async def read_on(self, until: int) -> None:
        """Fold the activity up to `until`; whoever comes meanwhile sees how far it is."""
        async with self._reading:
            try:
                await self._read_activity(until)
            except LogArchived as error:
                await self._begin_behind(error)
                await self._read_activity(until)

    async def _read_activity(self, until: int) -> None:
        after = self.activity.position
        async for event in events_between(self._store, after=after, until=until, page=PAGE_FOLDED):
            self.activity.apply(event)

    async def _begin_behind(self, archived: LogArchived) -> None:
        """Let the activity begin where the log does; raises `archived` where no snapshot has the state there."""
        restored = ClusterOfLive()
        if await restore(self._store, restored, at_most=archived.base) != archived.base:
            raise archived
        self.activity = Activity()
        first = await self._store.read(archived.base, 1)
        if first:
            self.activity.begin_with(restored.cluster, first[0].recorded_at)

    async def _nearest(self, position: int) -> LiveCluster:
        """Return the newest cluster at or before a position that is at hand."""
        if (kept := self._kept.before(position)) is not None and kept[0] > self._latest.position <= position:
            return await _loaded(kept[1])
        if self._latest.position <= position and self._latest.position:
            return self._latest
        if kept is not None:
            return await _loaded(kept[1])
        restored = ClusterOfLive()
        await restore(self._store, restored, at_most=position)
        return restored.cluster


class KeptStates:
    """Dumped clusters by position, compressed, not nearer to each other than so many events."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._apart = _FIRST_APART
        self._bytes = 0
        self._positions: list[int] = []
        self._states: dict[int, bytes] = {}

    def lacks(self, position: int) -> bool:
        """Return whether a state at a position should be kept."""
        return position % self._apart == 0 and position not in self._states

    def before(self, position: int) -> tuple[int, bytes] | None:
        """Return the newest kept state at or before a position, compressed."""
        if not (number := bisect_right(self._positions, position)):
            return None
        found = self._positions[number - 1]
        return found, self._states[found]

    async def add(self, position: int, state: bytes) -> None:
        """Keep a state; where there are too many bytes, every other one goes."""
        packed = await asyncio.to_thread(zlib.compress, state, 1)
        if not self.lacks(position):
            # Another reader has kept it meanwhile, or states are further apart now.
            return
        self._states[position] = packed
        self._bytes += len(packed)
        while self._bytes > self._most_bytes and self._states:
            self._apart *= 2
            self._states = {at: kept for at, kept in self._states.items() if at % self._apart == 0}
            self._bytes = sum(map(len, self._states.values()))
        self._positions = sorted(self._states)


async def _loaded(packed: bytes) -> LiveCluster:
    cluster = LiveCluster()
    cluster.load(await asyncio.to_thread(zlib.decompress, packed))
    return cluster

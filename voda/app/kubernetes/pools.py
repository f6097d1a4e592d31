"""The loops of all pools: one each, made when the pool first appears, and led while this replica leads.

Rule: a standby's loops follow the log, so that it can lead at once; a pool that appears later is led from then on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

from voda.controller.pool_loop import PoolLoop
from voda.domain.errors import StoreNotWritable, TransientError
from voda.events.envelope import Event
from voda.projections.live import Live

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0


class Pools(Sequence[str]):
    """The pools that there are, by name, the one of jobs that name none first; and their loops.

    `settle` records the settings that a pool is to have.
    """

    def __init__(
        self,
        find: Callable[[], Sequence[str]],
        default: str,
        make: Callable[[str], PoolLoop],
        settle: Callable[[str], Awaitable[None]],
    ) -> None:
        self.loops: dict[str, PoolLoop] = {}
        self._find = find
        self._default = default
        self._make = make
        self._settle = settle

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # nobody cuts slices of pools
        return self._names()[index]

    def __len__(self) -> int:
        return len(self._names())

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def see(self, event: Event) -> None:
        for loop in self.loops.values():
            loop.see(event)

    def latest(self, live: Live) -> Live:
        """Return the state of the log as its latest reader has it: a loop, or the reader that has `live`."""
        # Called hundreds of times per event: no lists, no keys.
        for loop in self.loops.values():
            if loop.live.position > live.position:
                live = loop.live
        return live

    @property
    def failure(self) -> str:
        """Why a pool that is led stands still, one sentence; empty while none does."""
        for loop in self.loops.values():
            if loop.failure or not loop.is_leading:
                return loop.failure or f"pool {loop.pool}: the log is being brought level with the cluster"
        return ""

    async def follow(self) -> None:
        await self._each(lambda pool: self._loop(pool).follow())

    async def lead(self, leader: str, epoch: int) -> None:
        """Lead all pools until cancelled, or until Fenced (in an ExceptionGroup) by another replica."""

        async def lead(pool: str) -> None:
            await self._settled(pool)
            await self._loop(pool).run(leader, epoch)

        await self._each(lead)

    async def _settled(self, pool: str) -> None:
        while True:
            try:
                await self._settle(pool)
            except (TransientError, StoreNotWritable) as error:
                _log.warning("settings are not recorded pool=%s reason=%s", pool, error)
                await asyncio.sleep(_LOOK_S)
            else:
                return

    async def _each(self, work: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        async with asyncio.TaskGroup() as group:
            started: set[str] = set()
            while True:
                for pool in self._find():
                    if pool not in started:
                        started.add(pool)
                        group.create_task(work(pool))
                await asyncio.sleep(_LOOK_S)

    def _loop(self, pool: str) -> PoolLoop:
        if pool not in self.loops:
            self.loops[pool] = self._make(pool)
        return self.loops[pool]

    def _names(self) -> Sequence[str]:
        names = self._find()
        first = [self._default] if self._default in names or not names else []
        return [*first, *(name for name in names if name not in first)]

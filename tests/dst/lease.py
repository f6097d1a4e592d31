"""The Lease that all replicas campaign for, and each one's faulty way to it.

Rule: what is promised of it is what voda.domain.lease.LeaseStore promises. Depending on the seed its keeper only
compares and swaps, as Kubernetes does, or frees it by a clock of its own, as databases do.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncGenerator, Callable
from random import Random
from typing import Final

from msgspec.structs import replace

from tests.dst.wire import Trouble, Wire
from voda.domain.errors import ChangedMeanwhile, ClusterUnavailable
from voda.domain.lease import Lease

_TOLD_S: Final = 0.02


class SharedLease:
    """Who really holds it.

    Args:
        now: the keeper's clock, seconds.
        is_enforced: whether the keeper frees it once its holder was silent for the duration that it promised.
        note: is told of every change but renewals.
    """

    def __init__(self, now: Callable[[], float], *, is_enforced: bool, note: Callable[[str], None]) -> None:
        self.watchers: list[Callable[[Lease | None], None]] = []
        self._now = now
        self._is_enforced = is_enforced
        self._note = note
        self._lease: Lease | None = None
        self._silent_since = now()
        self._changes = 0

    @property
    def holder(self) -> str:
        """Who holds it now; empty where nobody does."""
        lease = self.look()
        return lease.holder if lease else ""

    def look(self) -> Lease | None:
        """Return the Lease as it is now."""
        lease = self._lease
        if not self._is_enforced or lease is None or not lease.holder:
            return lease
        if self._now() - self._silent_since < lease.duration_s:
            return lease
        self._note(f"lease expired {lease.holder} {lease.transitions}")
        return self._put(replace(lease, holder=""))

    def take(self, seen: Lease | None, lease: Lease) -> Lease:
        """See LeaseStore.take."""
        now = self.look()
        if _version(now) != _version(seen) or (self._is_enforced and now and now.holder not in ("", lease.holder)):
            raise ChangedMeanwhile("the lease is not as it was seen")
        self._note(f"lease taken {lease.holder} {lease.transitions}")
        return self._put(lease)

    def renew(self, mine: Lease) -> Lease:
        """See LeaseStore.renew."""
        self._refuse_changed(mine)
        return self._put(replace(mine, renewed_at=f"{self._now():.6f}"))

    def release(self, mine: Lease) -> None:
        """See LeaseStore.release."""
        self._refuse_changed(mine)
        self._note(f"lease released {mine.holder} {mine.transitions}")
        self._put(replace(mine, holder="", duration_s=1.0))

    def _refuse_changed(self, mine: Lease) -> None:
        if _version(self.look()) != mine.version:
            raise ChangedMeanwhile("the lease is not as its holder left it")

    def _put(self, lease: Lease) -> Lease:
        self._changes += 1
        kept = self._lease = replace(lease, version=str(self._changes), is_enforced=self._is_enforced)
        self._silent_since = self._now()
        for told in self.watchers:
            told(kept)
        return kept


class LeaseConnection:
    """A LeaseStore: one life of one replica's way to the Lease."""

    key: Final = "dst/voda"

    def __init__(self, lease: SharedLease, loop: asyncio.AbstractEventLoop, chance: Random, trouble: Trouble) -> None:
        self.wire = Wire(loop, chance, trouble, "lease", lambda why: ClusterUnavailable(f"the lease's keeper: {why}"))
        self._lease = lease
        self._loop = loop
        self._chance = chance
        self._news: deque[Lease | None] = deque()
        self._coming: deque[Lease | None] = deque()
        self._is_news = asyncio.Event()
        self._nobody = contextvars.Context()
        lease.watchers.append(self._tell)

    async def read(self) -> Lease | None:
        """See LeaseStore.read."""
        return await self.wire.ask(self._lease.look)

    async def take(self, seen: Lease | None, *, holder: str, transitions: int, duration_s: float) -> Lease:
        """See LeaseStore.take."""
        wished = Lease(holder=holder, transitions=transitions, duration_s=duration_s, renewed_at="", version="")
        return await self.wire.ask(lambda: self._lease.take(seen, wished), is_change=True)

    async def renew(self, mine: Lease) -> Lease:
        """See LeaseStore.renew."""
        return await self.wire.ask(lambda: self._lease.renew(mine), is_change=True)

    async def release(self, mine: Lease) -> None:
        """See LeaseStore.release."""
        await self.wire.ask(lambda: self._lease.release(mine), is_change=True)

    async def watch(self) -> AsyncGenerator[Lease | None, None]:
        """See LeaseStore.watch."""
        self._news.clear()
        yield await self.read()
        while True:
            while self._news:
                yield self._news.popleft()
            if self.wire.is_cut:
                raise ClusterUnavailable("the watch of the lease broke")
            self._is_news.clear()
            await self._is_news.wait()

    def stir(self) -> None:
        """Have a watcher notice that the connection broke, or is there again."""
        self._is_news.set()

    def sever(self) -> None:
        """Let nothing pass any more."""
        self.wire.is_dead = True
        if self._tell in self._lease.watchers:
            self._lease.watchers.remove(self._tell)

    def _tell(self, lease: Lease | None) -> None:
        self._coming.append(lease)
        self._loop.call_later(_TOLD_S * self._chance.random(), self._hear, context=self._nobody)

    def _hear(self) -> None:
        # In their order, whichever of the alarms rings first.
        lease = self._coming.popleft()
        if not self.wire.is_cut:
            self._news.append(lease)
        self._is_news.set()


def _version(lease: Lease | None) -> str:
    return lease.version if lease else ""

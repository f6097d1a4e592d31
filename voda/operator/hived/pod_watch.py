"""Sees which scheduled pods are gone, and when a replica begins to lead, which pods were bound before.

Rule: a pod that the mirror has never shown may be new: it counts as gone only after `_UNSEEN_S`.
"""

import asyncio
import logging
from typing import Final

from voda.concurrency import log_unexpected
from voda.domain.errors import InvalidInput, VodaError
from voda.domain.reasons.pods import PodGone
from voda.operator.hived.pod_scheduler import PodScheduler

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_UNSEEN_S: Final = 30.0
_RECLAIM_AGAIN_S: Final = 5.0
_MOST_PENDING: Final = 20
"""Pending pods that are looked at in one round, a few milliseconds each."""


class PodWatch:
    """The leader's watch over the pods of a scheduler."""

    def __init__(self, scheduler: PodScheduler) -> None:
        self.scheduler = scheduler
        self._seen: set[str] = set()
        """Uids of pods that the mirror has shown."""
        self._asked_at: dict[str, float] = {}
        """Uid of a pod that was not shown -> since when."""

        self._again_at: dict[str, float] = {}
        """Uid of a pending pod -> when it is looked at again."""

    async def run(self) -> None:
        """Watch until cancelled: while this replica leads."""
        scheduler = self.scheduler
        scheduler.forget()
        try:
            while True:
                with log_unexpected("watching pods", "all"):
                    await self._step()
                await asyncio.sleep(_LOOK_S)
        finally:
            scheduler.forget()

    async def reclaim(self) -> None:
        """Let jobs leave the cells of pods that kube-scheduler cannot ask for, since jobs fill their nodes.

        Where only pods are in the way of one that was refused, or nobody any more, kube-scheduler is to ask again.
        """
        now = self.scheduler.clock.now()
        pending = {pod.metadata.uid: pod for pod in self.scheduler.pods.pending()}
        self._again_at = {uid: at for uid, at in self._again_at.items() if uid in pending}
        self.scheduler.refused &= pending.keys()
        due = [pod for uid, pod in pending.items() if now >= self._again_at.get(uid, now)]
        for pod in due[:_MOST_PENDING]:
            uid = pod.metadata.uid
            self._again_at[uid] = now + _RECLAIM_AGAIN_S
            if await self.scheduler.reclaim(pod) and uid in self.scheduler.refused:
                await self.scheduler.pods.wake(pod.key, uid, now)
                self.scheduler.refused.discard(uid)

    async def _step(self) -> None:
        try:
            if not self.scheduler.is_ready:
                await self.adopt()
                self.scheduler.is_ready = True
            await self.look()
            await self.reclaim()
        except VodaError as error:
            _log.warning("cannot record which pods are there and which are gone reason=%s", error)

    async def adopt(self) -> None:
        """Let pods that were bound before, perhaps by HiveD itself, have their cells."""
        for pod, node in self.scheduler.pods.bound():
            try:
                await self.scheduler.adopt(pod, node)
            except InvalidInput as error:
                _log.warning("pod is not adopted pod=%s reason=%s", pod.key, error)

    async def look(self) -> None:
        """Release the pods that are gone."""
        for uid in self._gone():
            self._seen.discard(uid)
            self._asked_at.pop(uid, None)
            await self.scheduler.release(uid, PodGone())
            # Others may have its cells.
            self._again_at.clear()

    def _gone(self) -> list[str]:
        now, gone = self.scheduler.clock.now(), []
        for uid, key in self.scheduler.known_pods().items():
            if self.scheduler.pods.uid(key) == uid:
                self._seen.add(uid)
            elif uid in self._seen or now - self._asked_at.setdefault(uid, now) > _UNSEEN_S:
                gone.append(uid)
        return gone

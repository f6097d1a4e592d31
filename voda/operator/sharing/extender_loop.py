"""What the leader does for pods that ask for GPUs by extended resources: accounts, annotations, and pods that wait.

Level-triggered: a round looks at all there is about a node, whatever happened.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from voda.application.journal import Journal
from voda.cluster.kubernetes.pod_binding import PodBinding
from voda.cluster.kubernetes.state.sharing_pods import GpuPods
from voda.operator.sharing.annotated_shares import AnnotatedShares, ClosedNodes, lost_annotations
from voda.operator.sharing.share_reconciler import ShareReconciler, succeeds
from voda.operator.sharing.waiting_pods import PodWaker
from voda.sharing.rating import GpuChooser, Rater

_log = logging.getLogger(__name__)

_LOOK_ANYWAY_S: Final = 10.0
"""Also where nothing has changed: time passes, and calls fail."""


@dataclass(kw_only=True)
class ExtenderLoop:
    """Runs while this replica leads."""

    journal: Journal
    binding: PodBinding
    pods: GpuPods
    rater: Rater
    look_s: float = 1.0
    """From one round to the next."""

    def __post_init__(self) -> None:
        self._source = AnnotatedShares(journal=self.journal, binding=self.binding, pods=self.pods)
        self._reconciler = ShareReconciler(journal=self.journal, source=self._source, rater=self.rater)
        self._closed = ClosedNodes(self.pods)
        self._waiting = PodWaker(binding=self.binding, pods=self.pods, chooser=GpuChooser(self.rater))

    async def run(self) -> None:
        """Look at nodes whenever something about them has changed, and at all of them now and then, until cancelled."""
        accounts, seen, looked_at = self._reconciler.accounts, (0, 0), 0.0
        while True:
            now = self.journal.clock.now()
            of_nodes, of_pods = self._reconciler.accounts.changes.since(seen[0]), self.pods.changes.since(seen[1])
            is_new = accounts is not self._reconciler.accounts or of_nodes is None or of_pods is None
            changed = {*(of_nodes or ()), *(of_pods or ())}
            if is_new or now - looked_at >= _LOOK_ANYWAY_S:
                accounts, looked_at = self._reconciler.accounts, now
                changed = {*accounts.nodes, *self.pods.by_node}
                self._source.forget_gone(accounts.nodes)
            seen = accounts.changes.count, self.pods.changes.count
            if changed:
                await self._look(changed)
            await asyncio.sleep(self.look_s)

    async def _look(self, nodes: Collection[str]) -> None:
        """Put nodes right, and wake pods; what fails is tried again in a later round."""
        failed = await self._reconciler.correct(nodes)
        for node in sorted({*nodes} - {*failed}):
            account = self._reconciler.accounts.nodes.get(node)
            if account is not None and self._source.follows(node, account):
                for pod, annotations in list(lost_annotations(account, self.pods.on(node))):
                    if await succeeds(self.binding.name_gpus(pod, annotations), pod.metadata.key):
                        _log.info("annotations restored pod=%s", pod.metadata.key)
        await succeeds(self._wake(), "pods that wait")

    async def _wake(self) -> None:
        accounts = self._reconciler.accounts
        closed, position = self._closed.now(accounts), self.journal.view.position
        await self._waiting.wake(accounts, closed, position, self.journal.clock.now())

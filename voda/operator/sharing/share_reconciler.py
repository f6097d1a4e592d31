"""What the leader does about shares: compares the account of every node with the cluster, and puts right what differs.

Level-triggered: a round looks at all there is about a node, whatever happened. Rules: facts are appended at the version
of the account that they follow from; a share is taken from a pod that is not there, or has no node, only once the API
server has said so, and refuses whoever was about to bind it.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from voda.application.journal import Journal
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.pod_binding import PodBinding
from voda.cluster.kubernetes.state.sharing_pods import GpuPods
from voda.concurrency import log_unexpected
from voda.domain.errors import (
    ActionRefused,
    ChangedMeanwhile,
    NotFound,
    StoreNotWritable,
    TransientError,
    VersionConflict,
)
from voda.domain.gpus import ContainerGpus
from voda.domain.shares import SharingNode
from voda.extender.share_verbs import ExtenderPod, ShareVerbs
from voda.operator.sharing.share_corrections import (
    GONE_S,
    ClosedNodes,
    NodeToCorrect,
    StaleShare,
    has_lost_gpus,
    lost_annotations,
    node_facts,
    stale_shares,
    unrecorded,
)
from voda.operator.sharing.waiting_pods import PodWaker
from voda.projections.shares import ShareAccounts
from voda.sharing.rating import GpuChooser, Rater

_log = logging.getLogger(__name__)

ACTOR: Final = "shares"
_LOOK_ANYWAY_S: Final = 10.0
"""Also where nothing has changed: time passes, and calls fail."""
_NODES_AT_ONCE: Final = 20
"""Then others get a turn: kube-scheduler waits for answers."""


@dataclass(kw_only=True)
class ShareReconciler:
    """Runs while this replica leads."""

    journal: Journal
    binding: PodBinding
    pods: GpuPods
    rater: Rater
    look_s: float = 1.0
    """From one round to the next."""
    _lost_since: dict[str, float] = field(default_factory=dict, init=False)
    """Node -> when it was first seen without GPUs of which pods have shares."""
    _refused: dict[str, str] = field(default_factory=dict, init=False)
    """Uid of a pod that cannot be adopted -> why not, as it was logged."""

    def __post_init__(self) -> None:
        self._closed = ClosedNodes(self.pods)
        self._waiting = PodWaker(binding=self.binding, pods=self.pods, chooser=GpuChooser(self.rater))

    async def run(self) -> None:
        """Look at nodes whenever something about them has changed, and at all of them now and then, until cancelled."""
        accounts, seen, looked_at = self._accounts, (0, 0), 0.0
        while True:
            now = self.journal.clock.now()
            changed = {*self._accounts.changes.since(seen[0]), *self.pods.changes.since(seen[1])}
            if accounts is not self._accounts or now - looked_at >= _LOOK_ANYWAY_S:
                accounts, looked_at, changed = self._accounts, now, {*self._accounts.nodes, *self.pods.by_node}
            seen = accounts.changes.count, self.pods.changes.count
            if changed:
                await self._look(changed)
            await asyncio.sleep(self.look_s)

    async def _look(self, nodes: Collection[str]) -> None:
        """Put nodes right, one after the other, and wake pods; what fails is tried again in a later round."""
        for number, node in enumerate(sorted(nodes)):
            if number % _NODES_AT_ONCE == 0:
                await asyncio.sleep(0)
            with log_unexpected("reconciling shares", node):
                try:
                    await self._reconcile(node)
                except (VersionConflict, ChangedMeanwhile):
                    continue
                except (TransientError, ActionRefused, StoreNotWritable) as error:
                    _log.warning("shares not reconciled node=%s reason=%s", node, error)
        with log_unexpected("waking pods", "shares"):
            await self._wake()

    async def _wake(self) -> None:
        closed = self._closed.now(self._accounts)
        try:
            await self._waiting.wake(self._accounts, closed, self.journal.view.position, self.journal.clock.now())
        except (TransientError, ActionRefused) as error:
            _log.warning("waiting pods not woken reason=%s", error)

    async def _reconcile(self, node: str) -> None:
        account = self._accounts.nodes.get(node)
        if account is None or account.is_claimed:
            return
        version, now = account.version, self.journal.clock.now()
        # A list first: while the API server is asked, accounts and mirror go on.
        stale = list(stale_shares(node, account, self.pods.by_uid, now))
        stale = [each for each in stale if await self._is_confirmed(each)]
        lacking = unrecorded(account, self.pods.on(node), self.pods.names) if account.devices else ()
        lost = self._are_gone(node, account, now)
        names, choose = self.pods.names, self._choose
        wrong = NodeToCorrect(name=node, account=account, names=names, choose=choose, drops_lost=lost)
        found = node_facts(wrong, stale=stale, lacking=lacking)
        self._tell_refused(node, found.refused)
        if found.facts:
            await self.journal.record(*found.facts, actor=ACTOR, version=version)
        for pod, annotations in list(lost_annotations(account, self.pods.on(node))):
            await self._restore(pod, annotations)

    async def _is_confirmed(self, share: StaleShare) -> bool:
        """Say whether a share may be taken away; of a pod without a node, whoever was about to bind it is refused."""
        if share.certainty == "certain":
            return True
        namespace, _, name = share.pod.partition("/")
        pod = await self.binding.get(namespace, name)
        if pod is None or pod.metadata.uid != share.pod_uid:
            return True
        if share.certainty == "if gone" or pod.spec.node_name:
            return False
        await self.binding.withdraw(pod, self.journal.clock.new_id())
        return True

    async def _restore(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        try:
            await self.binding.name_gpus(pod, annotations)
            _log.info("annotations restored pod=%s", pod.metadata.key)
        except NotFound:
            return

    def _are_gone(self, node: str, account: SharingNode, now: float) -> bool:
        if not has_lost_gpus(account):
            self._lost_since.pop(node, None)
            return False
        return now - self._lost_since.setdefault(node, now) >= GONE_S

    def _choose(self, account: SharingNode, pod: ExtenderPod) -> Mapping[str, ContainerGpus] | str:
        return ShareVerbs(GpuChooser(self.rater), {"": account}, {}).gpus(pod, "")

    def _tell_refused(self, node: str, refused: Mapping[str, str]) -> None:
        for uid, reason in refused.items():
            if self._refused.get(uid) != reason:
                self._refused[uid] = reason
                _log.warning(
                    "pod not recorded, so its node takes no others node=%s uid=%s reason=%s", node, uid, reason
                )
        self._refused = {uid: reason for uid, reason in self._refused.items() if uid in self.pods.by_uid}

    @property
    def _accounts(self) -> ShareAccounts:
        return self.journal.view.live.cluster.shares

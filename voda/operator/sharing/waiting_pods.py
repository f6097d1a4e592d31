"""Wakes pods that kube-scheduler has put aside, once GPUs for them are free.

kube-scheduler looks again at a pod that its extender refused when something changes in the cluster: when a pod has
ended, say, and before the leader has released its share. Then nothing may change for long. So the leader changes an
annotation of pods that fit now, which is a reason to look again.

Rule: a pod is woken only where the log has changed since, and the more seldom, the oftener it was in vain.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from voda.backoff import Backoff
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.pod_binding import PodBinding
from voda.cluster.kubernetes.state.shared_gpus import share_requests
from voda.cluster.kubernetes.state.sharing_pods import GpuPods
from voda.domain.errors import ChangedMeanwhile, InvalidInput, NotFound
from voda.extender.share_verbs import ExtenderPod, ShareVerbs
from voda.projections.cluster.shares import ShareAccounts
from voda.sharing.rating import GpuChooser, PodRequest

_AT_ONCE: Final = 20
"""The oldest ones: once they are placed, the others are looked at again."""
_FIRST_BACKOFF_S: Final = 5.0
_LONGEST_BACKOFF_S: Final = 60.0
"""Of a pod that is woken in vain again and again: CPU may be what it lacks."""


@dataclass(kw_only=True)
class PodWaker:
    """The pods of the mirror that kube-scheduler has put aside."""

    binding: PodBinding
    pods: GpuPods
    chooser: GpuChooser
    _woken: dict[str, int] = field(default_factory=dict, init=False)
    """Uid -> position of the log when it was woken last."""
    _backoff: Backoff = field(
        default_factory=lambda: Backoff(first_s=_FIRST_BACKOFF_S, longest_s=_LONGEST_BACKOFF_S), init=False
    )
    """By uid of pods that were woken."""

    async def wake(self, accounts: ShareAccounts, closed: Mapping[str, str], position: int, now: float) -> None:
        """Wake the oldest pods for which GPUs are free on a node that is not closed."""
        placement = ShareVerbs(self.chooser, accounts.nodes, closed, accounts.changes)
        has_room, woken = dict[PodRequest, bool](), 0
        for pod in sorted(self._put_aside(accounts), key=_age):
            if woken == _AT_ONCE:
                break
            asking = self._asking(pod)
            if asking is None or not self._is_due(asking.uid, position, now):
                continue
            # Many pods ask for the same.
            if asking.request not in has_room:
                has_room[asking.request] = placement.has_room(asking)
            if has_room[asking.request]:
                woken += 1
                self._woken[asking.uid] = position
                self._backoff.failed(asking.uid, now)
                await self._touch(pod, position)
        for uid in self._woken.keys() - self.pods.by_uid.keys():
            del self._woken[uid]
            self._backoff.reset(uid)

    def _put_aside(self, accounts: ShareAccounts) -> Iterator[Pod]:
        for uid, pod in self.pods.by_uid.items():
            is_over = pod.spec.node_name or pod.is_leaving or pod.is_over or accounts.node_of(uid)
            if not is_over and any(
                each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions
            ):
                yield pod

    def _is_due(self, uid: str, position: int, now: float) -> bool:
        return self._woken.get(uid, -1) != position and self._backoff.is_due(uid, now)

    def _asking(self, pod: Pod) -> ExtenderPod | None:
        """Return what a pod asks for; None where that can never be."""
        try:
            requests = share_requests(pod, self.pods.names)
        except InvalidInput:
            return None
        return ExtenderPod(uid=pod.metadata.uid, key=pod.metadata.key, requests=requests) if requests else None

    async def _touch(self, pod: Pod, position: int) -> None:
        try:
            await self.binding.touch(pod, str(position))
        except (ChangedMeanwhile, NotFound):
            return


def _age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp, pod.metadata.key

"""Which shares of claimed GPUs are stale: those of pods that ended, are gone, or were given other GPUs. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Literal

from voda.cluster.kubernetes.objects import Pod
from voda.domain.reasons.pods import GivenElsewhere, IsWorker, NoneGiven, PodEnded, PodGone, PodLeaving
from voda.domain.shares import SharingNode
from voda.operator.sharing.share_corrections import StaleShare

Standing = Literal["nothing", "elsewhere", "lost", "planned"]
"""What the claims of a pod have that have nothing of a node: nothing at all, GPUs of another node, GPUs that no
driver publishes any more, or those of a worker, which plans count."""
UNALLOCATED_S: Final = 60.0
"""For so long a pod on a node may have shares of which its claims know nothing: watches are behind one another."""


def stale_claimants(
    account: SharingNode,
    given: Collection[str],
    pods: Mapping[str, Pod],
    standing: Callable[[str], Standing],
    now: float,
) -> Iterator[StaleShare]:
    """Yield the shares that no claim has any more.

    Args:
        account: of one node.
        given: uids that have something of the node.
        pods: those that voda places, by uid.
        standing: says what the claims of the others have.
        now: seconds since the epoch.
    """
    for uid, shares in account.pods.items():
        if uid in given:
            continue
        pod, has = pods.get(uid), standing(uid)
        if has == "planned":
            yield StaleShare(uid, shares.pod, IsWorker())
        elif has == "elsewhere":
            yield StaleShare(uid, shares.pod, GivenElsewhere())
        elif pod is None:
            yield StaleShare(uid, shares.pod, PodGone(), "if gone")
        elif pod.is_over:
            yield StaleShare(uid, shares.pod, PodEnded())
        elif has == "nothing" and pod.is_leaving and not pod.spec.node_name:
            # No scheduler places it any more, and a finalizer may keep it for ever.
            yield StaleShare(uid, shares.pod, PodLeaving(), "if gone")
        elif has == "nothing" and pod.spec.node_name and now - shares.assigned_at > UNALLOCATED_S:
            yield StaleShare(uid, shares.pod, NoneGiven())

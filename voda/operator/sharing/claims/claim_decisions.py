"""What follows from claims for the accounts of nodes: the facts that put them right. Pure.

1. What claims were given is what their pods have: an account that says something else is corrected.
2. Shares of pods that ended, are gone, or were given other GPUs are released.

Rule: the API server gives no GPU twice; where a share that is only meant is in the way of one that was given, it goes.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from voda.cluster.kubernetes.objects import Pod
from voda.domain.gpus import ContainerGpus
from voda.domain.shares import PodShares, SharingNode
from voda.events.types import ShareAssigned, ShareReleased

Standing = Literal["nothing", "elsewhere", "lost", "planned"]
"""What the claims of a pod have that have nothing of a node: nothing at all, GPUs of another node, GPUs that no
driver publishes any more, or those of a worker, which plans count."""
UNALLOCATED_S: Final = 60.0
"""For so long a pod on a node may have shares of which its claims know nothing: watches are behind one another."""


class GivenShares(Struct, frozen=True, kw_only=True):
    """What the claims of a pod, or a claim of its own, have of a node."""

    key: str
    """`namespace/name` of the pod, or of the claim."""
    containers: Mapping[str, ContainerGpus]


def node_corrections(
    node: str,
    account: SharingNode,
    given: Mapping[str, GivenShares],
    stale: Mapping[str, str],
) -> Sequence[ShareReleased | ShareAssigned]:
    """Return the facts by which an account comes to say what claims were given.

    Args:
        node: its name.
        account: what the log has.
        given: uid of a pod or claim -> what it has of the node, by the API server.
        stale: uids of the account that have nothing there any more -> why.
    """
    trial, facts = account.copy(), list[ShareReleased | ShareAssigned]()

    def release(uid: str, reason: str) -> None:
        facts.append(ShareReleased(node=node, pod_uid=uid, pod=trial.pods.pop(uid).pod, reason=reason))

    for uid, reason in stale.items():
        release(uid, reason)
    wrong = [uid for uid, each in given.items() if not _is_recorded(trial, uid, each)]
    for uid in [uid for uid in wrong if uid in trial.pods]:
        release(uid, "its claims were given other GPUs, or another part of them")
    for uid in wrong:
        shares = given[uid].containers
        if trial.refusal(shares):
            gpus = {gpu for each in shares.values() for gpu in each.gpus}
            for other in [other for other in trial.pods if other not in given and _uses(trial.pods[other], gpus)]:
                release(other, f"kube-scheduler has given its GPU to {given[uid].key}")
        if not trial.refusal(shares):
            facts.append(ShareAssigned(node=node, pod_uid=uid, pod=given[uid].key, containers=shares))
            trial.pods[uid] = PodShares(pod=given[uid].key, containers=shares, assigned_at=0.0)
    return facts


def stale_claimants(
    account: SharingNode,
    given: Collection[str],
    pods: Mapping[str, Pod],
    standing: Callable[[str], Standing],
    now: float,
) -> Iterator[tuple[str, str, bool]]:
    """Yield uid, reason, and whether that is certain without the API server, of shares that no claim has any more.

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
            yield uid, "the pod is a job's worker", True
        elif has == "elsewhere":
            yield uid, "its claims were given GPUs of another node", True
        elif pod is None:
            yield uid, "the pod has ended or is gone", False
        elif pod.is_over:
            yield uid, "the pod has ended", True
        elif has == "nothing" and pod.is_leaving and not pod.spec.node_name:
            # No scheduler places it any more, and a finalizer may keep it for ever.
            yield uid, "the pod is being deleted", False
        elif has == "nothing" and pod.spec.node_name and now - shares.assigned_at > UNALLOCATED_S:
            yield uid, "its claims have no GPUs", True


def _is_recorded(account: SharingNode, uid: str, given: GivenShares) -> bool:
    found = account.pods.get(uid)
    return found is not None and found.containers == given.containers


def _uses(shares: PodShares, gpus: Iterable[int]) -> bool:
    return any(gpu in gpus for share in shares.containers.values() for gpu in share.gpus)

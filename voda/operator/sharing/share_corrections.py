"""Where the account of a node and the cluster differ, and the facts that put it right. Pure.

1. Shares of pods that are to have nothing of the node are released.
2. What pods were given is what they have: an account that says something else is corrected.
3. Pods on the node that name no GPUs get those that the rater chooses of what is left.

Rule: nothing is recorded that would give more of a GPU than it has; a share that its pod has not come to use goes where
one that was given needs its GPU.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from voda.domain.gpus import ContainerGpus
from voda.domain.reasons.pods import GivenAway, OtherGpus, ShareLoss
from voda.domain.shares import PodShares, SharingNode
from voda.events.types import ShareAssigned, ShareReleased
from voda.extender.share_verbs import ExtenderPod

Choose = Callable[[SharingNode, ExtenderPod], Mapping[str, ContainerGpus] | str]
"""Returns the GPUs of a pod by the rater, on a node with that account, or why there are none."""


class StaleShare(Struct, frozen=True):
    """A share that its pod should not have."""

    pod_uid: str
    pod: str
    reason: ShareLoss
    certainty: Literal["certain", "if gone", "if unbound"] = "certain"
    """Whether the mirror is enough, or the API server has to be asked first."""


class GivenShares(Struct, frozen=True, kw_only=True):
    """What a pod, or a claim of its own, has of a node."""

    key: str
    """`namespace/name` of the pod, or of the claim."""
    containers: Mapping[str, ContainerGpus]
    instead: ShareLoss = OtherGpus()
    """Why the log has something else of it, where it does."""


class SeenShares(Struct, frozen=True, kw_only=True):
    """What the cluster says of the GPUs of one node."""

    stale: Sequence[StaleShare] = ()
    given: Mapping[str, GivenShares] = {}
    """By uid of the pod or claim."""
    meant: Collection[str] = ()
    """Uids of pods that have not come to use what they have in the log."""
    unnamed: Sequence[ExtenderPod] = ()
    """Pods on the node that use some of its GPUs, nobody knows which."""
    refused: Mapping[str, str] = {}
    """Uid of a pod that cannot be recorded -> why not."""


class NodeFacts(Struct, frozen=True):
    """The facts that put the account of a node right, in order."""

    facts: Sequence[ShareReleased | ShareAssigned]
    refused: Mapping[str, str]
    """Pods that cannot be recorded, by uid, and why not."""


def node_facts(node: str, account: SharingNode, seen: SeenShares, choose: Choose) -> NodeFacts:
    """Return what is to be recorded of a node.

    Args:
        node: its name.
        account: what the log has.
        seen: what the cluster has, without stale shares of which the API server has said otherwise.
        choose: for pods that name no GPUs.
    """
    trial, facts, refused = account.copy(), list[ShareReleased | ShareAssigned](), dict(seen.refused)

    def release(uid: str, reason: ShareLoss) -> None:
        facts.append(ShareReleased(node=node, pod_uid=uid, pod=trial.pods.pop(uid).pod, reason=reason))

    def assign(uid: str, key: str, found: Mapping[str, ContainerGpus] | str) -> None:
        if isinstance(found, str):
            refused[uid] = found
            return
        facts.append(ShareAssigned(node=node, pod_uid=uid, pod=key, containers=found))
        trial.pods[uid] = PodShares(pod=key, containers=found, assigned_at=0.0)

    for stale in seen.stale:
        release(stale.pod_uid, stale.reason)
    gone = {each.pod_uid for each in seen.stale}
    wrong = {uid: each for uid, each in seen.given.items() if uid not in gone and not _is_recorded(trial, uid, each)}
    for uid in [uid for uid in wrong if uid in trial.pods]:
        release(uid, wrong[uid].instead)
    for uid, each in wrong.items():
        if trial.refusal(each.containers):
            gpus = {gpu for share in each.containers.values() for gpu in share.gpus}
            for other in [other for other in trial.pods if other in seen.meant and _uses(trial.pods[other], gpus)]:
                release(other, GivenAway(to=each.key))
        assign(uid, each.key, trial.refusal(each.containers) or each.containers)
    for pod in seen.unnamed:
        assign(pod.uid, pod.key, choose(trial, pod))
    return NodeFacts(facts, refused)


def _is_recorded(account: SharingNode, uid: str, given: GivenShares) -> bool:
    found = account.pods.get(uid)
    return found is not None and found.containers == given.containers


def _uses(shares: PodShares, gpus: Iterable[int]) -> bool:
    return any(gpu in gpus for share in shares.containers.values() for gpu in share.gpus)

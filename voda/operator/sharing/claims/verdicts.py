"""What kube-scheduler says of pods that claim GPUs. Pure."""

from typing import Final

from voda.cluster.kubernetes.objects import KubeCondition, Pod
from voda.domain.reasons.pods import GpusGone, NothingNew, NotPlaced, Unseen

UNSEEN_S: Final = 300.0
"""For so long no scheduler may have looked at a pod: kube-scheduler may be away, or have very many pods to look at."""
_GATED: Final = "SchedulingGated"


def verdict(pod: Pod) -> KubeCondition | None:
    """Return what kube-scheduler says of a pod that it could not place; None: it has not looked at it yet."""
    found = (each for each in pod.status.conditions if each.type == "PodScheduled" and each.status == "False")
    return next((each for each in found if each.reason != _GATED), None)


def verdict_on(pod: Pod, node: str, former: KubeCondition | None) -> KubeCondition | None:
    """Return what kube-scheduler says of a pod where its GPUs are; None: nothing yet, as far as one can tell.

    Where it says the same of two nodes, it writes nothing but to take the name of the second one away.

    Args:
        pod: with GPUs.
        node: where these are.
        former: what was said of the pod before it had them.
    """
    found = verdict(pod)
    is_looked_at = pod.spec.preemption_policy != "Never" and pod.status.nominated_node_name != node
    return found if found != former or is_looked_at else None


def is_unschedulable(found: KubeCondition | None) -> bool:
    """Say whether a verdict is that kube-scheduler finds no place for a pod."""
    return found is not None and found.reason == "Unschedulable"


def scheduler_of(pod: Pod) -> str:
    """Return the name of the scheduler that is to place a pod."""
    return pod.spec.scheduler_name or "default-scheduler"


def unseen(pod: Pod) -> Unseen:
    """Return that no scheduler looks at a pod."""
    return Unseen(scheduler=scheduler_of(pod), for_s=UNSEEN_S)


def move_reason(pod: Pod, node: str, former: KubeCondition | None) -> NotPlaced | GpusGone:
    """Return why a pod loses GPUs for which it gets others."""
    found = verdict_on(pod, node, former)
    return NotPlaced(text=found.message) if found is not None and is_unschedulable(found) else GpusGone()


def give_back_reason(pod: Pod, node: str, former: KubeCondition | None) -> NotPlaced | NothingNew | Unseen:
    """Return why a pod loses GPUs that it has not come to use."""
    if (found := verdict_on(pod, node, former)) is not None:
        return NotPlaced(text=found.message)
    return NothingNew(for_s=UNSEEN_S) if verdict(pod) is not None else unseen(pod)

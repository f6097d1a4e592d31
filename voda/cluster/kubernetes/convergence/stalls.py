"""Why a job gets no further though voda has done its part: what its pods, its operator or its nodes wait for.

Rules: pure; a sentence holds nothing that changes by itself (counts, times, messages of retries), so that what lasts is
told once.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from voda.cluster.kubernetes.convergence.steps import Desired, DesiredHalt, DesiredRun, DesiredStop, Situation
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.resources.objects import ContainerStatus, Pod
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.cluster.kubernetes.state.job_outcome import outcome_of

_NO_IMAGE: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
"""A kubelet tells them by turns."""
_STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


class Stall(Struct, frozen=True):
    """What a job waits for."""

    reason: str = ""
    """One sentence; empty: for nothing."""
    may_take_long: bool = False
    """Whether minutes of it are nothing special."""


NONE: Final = Stall()


def stall_of(desired: Desired, at: Situation, unbound_reasons: str = "") -> Stall:
    """Return what a job waits for; of several things the first one, and what may take long only where all does.

    Args:
        desired: of the job.
        at: what there is of it.
        declined: why its workers were not bound last, where no node was told to refuse them.
    """
    seen = at.seen
    if seen is None or seen.object.metadata.deletion_timestamp is not None:
        return NONE
    if outcome_of(seen, tuple(at.pods.values()), at.job_id) is not None:
        return NONE
    match desired:
        case DesiredRun(nodes):
            found = list(_starting(nodes, at, seen, unbound_reasons))
        case DesiredHalt():
            found = list(_halting(at, seen))
        case DesiredStop():
            found = []
    return min(found, key=lambda stall: stall.may_take_long, default=NONE)


def _starting(nodes: Sequence[str], at: Situation, seen: KubeJob, unbound_reasons: str) -> Iterator[Stall]:
    workers = {at.indices[key]: pod for key, pod in at.workers.items()}
    yield from _leaving(at)
    if seen.object.spec.run_policy.suspend:
        return
    if not all(index in workers for index in range(len(nodes))):
        yield Stall(
            f"not all of its workers have a pod: see whether {_operator(seen.kind)} runs, and what it says of the"
            f" {seen.kind.name} (kubectl describe)"
        )
    for index, pod in sorted(workers.items()):
        yield from _of_pod(f"worker {index}", pod)
    if unbound_reasons and not all(pod.spec.node_name for pod in workers.values()):
        yield Stall(unbound_reasons)
    for pod in at.pods.values():
        if seen.kind.is_launcher(pod):
            yield from _of_launcher(pod)


def _halting(at: Situation, seen: KubeJob) -> Iterator[Stall]:
    yield from _leaving(at)
    if any(not pod.is_leaving for pod in at.workers.values()):
        yield Stall(f"it is suspended and its workers are still there: see whether {_operator(seen.kind)} runs")


def _leaving(at: Situation) -> Iterator[Stall]:
    for pod in {**at.workers, **at.pods}.values():
        if pod.is_leaving and at.now >= pod.leaves_at:
            yield Stall(
                f"pod {pod.metadata.name} was deleted and does not go: its node {pod.spec.node_name or '(none)'}"
                " has not confirmed its end, or a finalizer keeps it"
            )


def _of_launcher(pod: Pod) -> Iterator[Stall]:
    if pod.spec.node_name:
        yield from _of_pod("its launcher", pod)
    elif not pod.is_over and not pod.is_leaving:
        yield Stall(f"its launcher {pod.metadata.name} has no node: kube-scheduler finds none (kubectl describe pod)")


def _of_pod(who: str, pod: Pod) -> Iterator[Stall]:
    """Yield what keeps a pod from running."""
    if pod.is_over or pod.is_leaving:
        return
    if not pod.spec.node_name:
        if pod.spec.scheduling_gates:
            gates = ", ".join(sorted(str(gate.get("name", "?")) for gate in pod.spec.scheduling_gates))
            yield Stall(f"{who} is not to be placed yet: scheduling gates {gates} are closed")
        return
    where = f"{who} on {pod.spec.node_name}"
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        yield from _of_container(where, status)
    if pod.status.phase == "Pending":
        yield Stall(f"{where} has not started yet", may_take_long=True)


def _of_container(where: str, status: ContainerStatus) -> Iterator[Stall]:
    waiting = status.state.waiting
    if waiting is None or waiting.reason in _STARTING:
        return
    what = "cannot pull its image" if waiting.reason in _NO_IMAGE else f"does not start: {waiting.reason}"
    yield Stall(f"{where}: container {status.name} {what}")


def _operator(kind: JobKind) -> str:
    return "mpi-operator" if kind.api_version.endswith("/v2beta1") else "training-operator"

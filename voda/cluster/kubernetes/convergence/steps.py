"""What is to be done next about one job, told from what is wanted of it and what its object and pods show.

Rules: pure; level, not edge: asked again after anything changed, it says what is still missing; what was done and not
yet seen is said again, which harms nobody because every step can be repeated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from voda.cluster.kubernetes.kinds.base import Patch
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import Pod
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.cluster.kubernetes.state.job_outcome import outcome_of
from voda.cluster.kubernetes.state.pod_owners import index, worker_of
from voda.domain.job import JobSpec

FORCE_AFTER_S: Final = 30.0
"""After a pod's grace is over on a node that does not answer, its name is taken from it."""


class DesiredRun(Struct, frozen=True):
    """The job shall run; worker i on nodes[i], which is empty where it was not said yet."""

    nodes: tuple[str, ...]


class DesiredHalt(Struct, frozen=True):
    """The job shall have no pods, and keep its object."""


class DesiredStop(Struct, frozen=True):
    """The job is over for the log."""

    is_unwanted: bool
    """Whether its object shall go too: it was canceled."""


Desired = DesiredRun | DesiredHalt | DesiredStop


class Situation(Struct, frozen=True, kw_only=True):
    """What there is of a job."""

    job_id: str
    uid: str
    """Of its object, as the log has it; empty: none is registered."""
    spec: JobSpec | None
    """None: the job is not live."""
    seen: KubeJob | None
    workers: Mapping[str, Pod]
    """Its worker pods by key."""
    indices: Mapping[str, int]
    """key -> replica index, of the workers."""
    logged_workers: Mapping[int, str]
    """Replica index -> node, of the workers that are at work as the log has it."""
    pods: Mapping[str, Pod]
    """All pods of its object, launchers too."""
    dead_nodes: Mapping[str, bool]
    """Nodes of its pods that do not answer; True: the node is gone altogether."""
    now: float


class PatchObject(Struct, frozen=True):
    """Change the job object."""

    patch: Patch


class DeleteObject(Struct, frozen=True):
    """Delete the job object, and by that all it owns."""


class Unregister(Struct, frozen=True):
    """Tell the log that the job's object is to be made anew: before it is deleted, so that nobody takes its absence
    for a wish to cancel.
    """


class DeletePods(Struct, frozen=True):
    """Delete pods; their successors come under the same names, if the job object asks for them."""

    keys: tuple[str, ...]
    why: Literal["misplaced", "left over", "ended", "lost"]
    is_forced: bool = False
    """At once, though the node cannot confirm it."""


class BindPods(Struct, frozen=True):
    """Give pods their nodes, all or none."""

    nodes: Mapping[str, str]
    """key -> node."""


Step = PatchObject | DeleteObject | Unregister | DeletePods | BindPods


def steps(desired: Desired, at: Situation) -> Sequence[Step]:
    """Return what can be done now, in this order; empty when all is as wanted or has to be waited for."""
    return (*_forced(at), *_steps(desired, at))


def _steps(desired: Desired, at: Situation) -> Iterator[Step]:
    match desired:
        case DesiredRun(nodes):
            yield from _run(nodes, at)
        case DesiredHalt():
            yield from _halt(at)
        case DesiredStop(is_unwanted):
            yield from _stop(at, is_unwanted=is_unwanted)


def _run(nodes: Sequence[str], at: Situation) -> Iterator[Step]:
    seen = at.seen
    if seen is None or seen.object.metadata.deletion_timestamp is not None or _has_ended(at, seen):
        # Whoever submits jobs makes their objects; what has ended, the log is about to hear of.
        return
    if seen.object.metadata.annotations.get(well_known.JOB_ID) != at.job_id:
        # Taken into the log, but not made ready to be run yet.
        return
    if seen.kind.is_broken(seen.object, tuple(at.pods.values())):
        yield from _made_anew(at, seen)
    elif seen.object.spec.run_policy.suspend:
        yield from _resume(nodes, at, seen)
    elif any(_is_of_before(pod, seen) for pod in at.pods.values()):
        # Its operator had not heard yet that the job was suspended to be taken in.
        yield PatchObject(seen.kind.halted())
    elif seen.kind.replicas(seen.object) == len(nodes):
        yield from _settle(nodes, at)
    elif seen.kind.can_resize(seen.object, len(nodes)):
        yield PatchObject(seen.kind.resized(seen.object, len(nodes)))
        yield from _settle(nodes, at)
    else:
        # Its programs were started for other bounds: once its pods are gone it starts anew.
        yield PatchObject(seen.kind.halted())


def _resume(nodes: Sequence[str], at: Situation, seen: KubeJob) -> Iterator[Step]:
    # Pods of before would be taken for those of the new start, with their old sizes and places.
    if at.workers or any(_is_at_work(pod) for pod in at.pods.values()):
        yield from _halt(at)
    elif at.spec is not None:
        yield PatchObject(seen.kind.resumed(seen.object, at.spec, len(nodes)))


def _settle(nodes: Sequence[str], at: Situation) -> Iterator[Step]:
    """Bring the worker pods of a job that is not suspended to their nodes."""
    wanted = {key: nodes[index] for key, index in at.indices.items() if index < len(nodes) and nodes[index]}
    done = tuple(key for key in wanted if _is_done_with(key, at))
    if done:
        yield DeletePods(done, "ended")
    misplaced = tuple(
        key
        for key, node in wanted.items()
        if (pod := at.workers[key]).spec.node_name not in ("", node) and not pod.is_over and not pod.is_leaving
    )
    if misplaced:
        yield DeletePods(misplaced, "misplaced")
    pending = {key: node for key, node in wanted.items() if _is_to_be_bound(at.workers[key])}
    settled = [key for key, node in wanted.items() if at.workers[key].spec.node_name == node]
    # Together or not at all: a job of which one worker has no pod yet would hold GPUs and wait.
    if pending and len(pending) + len(settled) == len(nodes):
        yield BindPods(dict(sorted(pending.items())))


def _halt(at: Situation) -> Iterator[Step]:
    seen = at.seen
    if seen is None or seen.object.metadata.deletion_timestamp is not None:
        yield from _left_over(at)
    elif _is_given_up(at, seen):
        # What has ended holds nothing: whether its pods and their output stay is cleanPodPolicy's matter.
        yield from _left_over(at, of=lambda pod: not pod.is_over)
    elif not seen.object.spec.run_policy.suspend:
        yield PatchObject(seen.kind.halted())
    elif seen.object.status.condition("Suspended") is not None:
        # The operator is done; workers of indices that it did not know of would stay for ever.
        yield from _left_over(at)


def _stop(at: Situation, *, is_unwanted: bool) -> Iterator[Step]:
    seen = at.seen
    has_object = seen is not None and seen.object.metadata.deletion_timestamp is None
    if seen is not None and has_object and is_unwanted and not _has_ended(at, seen):
        yield DeleteObject()
    else:
        yield from _halt(at)


def _made_anew(at: Situation, seen: KubeJob) -> Iterator[Step]:
    if at.uid == seen.object.metadata.uid:
        yield Unregister()
    else:
        yield DeleteObject()


def _left_over(at: Situation, of: Callable[[Pod], bool] = lambda pod: True) -> Iterator[Step]:
    left = tuple(key for key, pod in at.workers.items() if not pod.is_leaving and of(pod))
    if left:
        yield DeletePods(left, "left over")


def _forced(at: Situation) -> Iterator[Step]:
    """Yield the end of pods that no kubelet will confirm."""
    # A launcher that has ended stays: without it, its operator would not know how the job ended, and begin anew.
    held = {key: pod for key, pod in at.pods.items() if _is_at_work(pod)} | dict(at.workers)
    lost = tuple(key for key, pod in held.items() if _is_lost(pod, at))
    if lost:
        yield DeletePods(lost, "lost", is_forced=True)


def _is_lost(pod: Pod, at: Situation) -> bool:
    is_gone = at.dead_nodes.get(pod.spec.node_name)
    if is_gone is None:
        return False
    # A node that was deleted is no machine any more; one that is silent may only be cut off.
    return is_gone or (pod.is_leaving and at.now >= pod.leaves_at + FORCE_AFTER_S)


def _has_ended(at: Situation, seen: KubeJob) -> bool:
    return outcome_of(seen, tuple(at.pods.values()), at.job_id) is not None


def _is_given_up(at: Situation, seen: KubeJob) -> bool:
    """Say whether the operator does no more about the job; one that voda alone calls failed it goes on with."""
    pods = tuple(at.pods.values())
    return seen.kind.end(seen.object, pods, at.job_id) is not None or seen.kind.is_broken(seen.object, pods)


def _is_at_work(pod: Pod) -> bool:
    return not pod.is_over or pod.is_leaving


def _is_of_before(pod: Pod, seen: KubeJob) -> bool:
    """Say whether a replica's pod was made of the templates that the object had before it was made ready."""
    is_own = any(reference.uid == seen.object.metadata.uid for reference in pod.metadata.owner_references)
    return is_own and index(pod) is not None and not worker_of(pod) and not pod.is_over and not pod.is_leaving


def _is_done_with(key: str, at: Situation) -> bool:
    """Say whether a worker has failed and the log knows: with its pod goes what tells why."""
    pod = at.workers[key]
    is_known = at.logged_workers.get(at.indices[key]) != pod.spec.node_name
    return pod.status.phase == "Failed" and not pod.is_leaving and is_known


def _is_to_be_bound(pod: Pod) -> bool:
    return not pod.spec.node_name and not pod.is_over and not pod.is_leaving and not pod.spec.scheduling_gates

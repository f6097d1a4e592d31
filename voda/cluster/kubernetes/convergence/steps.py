"""The next steps for one job, from its desired state and what its object and pods show.

Rules: pure; level, not edge: called again after every change, `steps` returns what is still missing; a step that was
done and not yet seen is returned again, which is harmless because every step can be repeated.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from msgspec.structs import replace

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.convergence.desired import (
    DeleteObject,
    DeletePods,
    Desired,
    DesiredHalt,
    DesiredRun,
    DesiredStop,
    LiftGates,
    ObservedJob,
    ReportObstacle,
    StartUnready,
    Step,
    Unregister,
)
from voda.cluster.kubernetes.kinds.base import object_size
from voda.cluster.kubernetes.kinds.first_start import is_ready_by_start
from voda.cluster.kubernetes.kinds.operator_pods import (
    has_succeeded,
    index,
    is_launcher,
    is_taken,
    leaves_unfinished,
)
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.job_objects import KubeJob, outcome_of
from voda.cluster.kubernetes.state.job_pods import worker_of
from voda.domain.reasons.failures import FirstIsDone, ObjectVoid, VoidSuccess

KILL_GRACE_S: Final = 1
"""Grace of a pod that is killed: with 0, its name would be free before its kubelet has ended it."""
KILL_S: Final = 5.0
"""After this long, a pod that an admin wants killed is gone for the cluster, whatever its kubelet says."""
FORCE_AFTER_S: Final = 30.0
"""After a pod's grace is over on a node that does not answer, its name is taken from it."""


def steps(desired: Desired, at: ObservedJob) -> Sequence[Step]:
    """Return what can be done now, in this order; empty when all is as desired or something has to be awaited."""
    match desired:
        case DesiredRun(nodes):
            todo = iter(()) if at.job is not None and at.job.has_lost_run else _run(nodes, at)
        case DesiredHalt(is_kill):
            todo = chain(_halt(at), _overdue(at)) if is_kill else _halt(at)
        case DesiredStop(is_unwanted, is_kill):
            stop = tuple(_stop(at, is_unwanted=is_unwanted))
            todo = chain(_forced(at, after_s=KILL_S), stop, _overdue(at, stop)) if is_kill else iter(stop)
    return (*_forced(at), *_slow(at), *todo)


def launcher_steps(at: ObservedJob) -> Sequence[Step]:
    """Return what can be done now for the launcher of a job of whose workers no plan misses any.

    It may be made after they are at work, or anew, while nothing is desired yet under a new leader.
    """
    kube_job = at.kube_job
    if kube_job is None or at.job is None or not at.job.workers or not at.launcher_node:
        return ()
    is_at_work = not (at.job.is_canceling or at.job.has_lost_run or kube_job.object.is_suspended)
    if not is_at_work or kube_job.object.metadata.deletion_timestamp or _has_ended(at, kube_job):
        return ()
    launchers = {key: pod for key, pod in at.pods.items() if is_launcher(pod) and _is_unbound(pod)}
    return tuple(_let_launchers_go(launchers, at))


def to_untrack(pods: Iterable[Pod]) -> Sequence[Pod]:
    """Return the pods that others delete while their programs run, and whose ends their Job is about to count.

    A program that saves and exits with 0 on SIGTERM has not finished.
    """
    return [pod for pod in pods if leaves_unfinished(pod) and pod.is_tracked]


def _why_void(at: ObservedJob, kube_job: KubeJob) -> ObjectVoid | None:
    if not kube_job.object.is_void:
        return None
    if 0 in kube_job.done_indices and not kube_job.object.void:
        return FirstIsDone()
    has_launcher = kube_job.kind.kind.role_names.count("Launcher")
    return VoidSuccess(
        operator=kube_job.kind.operator,
        replica=None if has_launcher else min(kube_job.object.void, default=0),
        was_deleted=any(is_taken(pod) for pod in at.pods.values()),
    )


def _run(nodes: Sequence[str], at: ObservedJob) -> Iterator[Step]:
    kube_job = at.kube_job
    if kube_job is None or kube_job.object.metadata.deletion_timestamp is not None or _has_ended(at, kube_job):
        # The registrar makes objects; an end is about to reach the log.
        return
    if not _is_ready(at, kube_job) and not is_ready_by_start(*kube_job):
        # Adopted; the registrar is about to make it ready.
        return
    if kube_job.is_broken(at.pods):
        is_registered = at.job is not None and at.job.uid == kube_job.object.metadata.uid
        yield Unregister(_why_void(at, kube_job)) if is_registered else DeleteObject()
    elif kube_job.object.is_suspended:
        yield from _resume(nodes, at, kube_job)
    elif any(_is_of_old_template(pod, kube_job) for pod in at.pods.values()):
        # Its operator made pods before it saw that the job was suspended for its adoption.
        yield kube_job.kind.suspend_patch()
    elif kube_job.object.void:
        # Shrunk below a replica, a Job forgets its success; then it grows again.
        below = min(kube_job.object.void)
        if kube_job.kind.replicas(kube_job.object) > below:
            yield kube_job.kind.resize_patch(kube_job.object, below)
    elif kube_job.starts_together and _is_torn(len(nodes), at, kube_job):
        yield from _start_anew(at, kube_job)
    elif kube_job.kind.replicas(kube_job.object) == object_size(kube_job.kind, kube_job.object, len(nodes)):
        yield from _settle(nodes, at, kube_job)
    elif kube_job.kind.can_resize(kube_job.object, len(nodes)):
        yield from _resize(len(nodes), at, kube_job)
        yield from _settle(nodes, at, kube_job)
    else:
        # Its programs were started with other bounds: once its pods are gone it starts anew.
        yield kube_job.kind.suspend_patch()


def _resize(size: int, at: ObservedJob, kube_job: KubeJob) -> Iterator[Step]:
    kind, now = kube_job.kind, kube_job.kind.replicas(kube_job.object)
    if size >= now or not kind.kind.has_lasting_success:
        yield kind.resize_patch(kube_job.object, size)
        return
    # Shrunk below a replica, a Job forgets that it is done, and runs it again once it grows.
    done = {at.indices[key] for key in at.indices if has_succeeded(kube_job.object, at.workers[key])}
    least = 1 + max(kube_job.done_indices | done, default=-1)
    if (kept := max(size, least)) < now:
        yield replace(kind.resize_patch(kube_job.object, kept), if_unchanged=True)


def _resume(nodes: Sequence[str], at: ObservedJob, kube_job: KubeJob) -> Iterator[Step]:
    # Earlier pods would be taken for those of the new start, with their old sizes and nodes.
    if any(not _is_kept(pod, kube_job) for pod in at.workers.values()) or any(map(_is_at_work, at.pods.values())):
        yield from _halt(at)
    elif kube_job.starts_together and (least := min(kube_job.done_indices | kube_job.object.void, default=0)):
        # A replica that has succeeded gets no pod, and those that start would wait for it. A smaller Job forgets it.
        if kube_job.kind.replicas(kube_job.object) > least:
            yield kube_job.kind.resize_patch(kube_job.object, least)
    elif at.obstacle:
        yield ReportObstacle(at.obstacle)
    elif at.job is not None and not _is_ready(at, kube_job):
        yield StartUnready(len(nodes))
    elif at.job is not None:
        if kube_job.object.child is not None:
            yield kube_job.kind.resize_patch(kube_job.object, len(nodes))
        yield kube_job.kind.resume_patch(kube_job.object, at.job.spec, len(nodes))


def _is_torn(size: int, at: ObservedJob, kube_job: KubeJob) -> bool:
    """Say whether replicas that have to start together are at work, and others than the plan has."""
    placed = {index: at.workers[key] for key, index in at.indices.items() if _is_placed(at.workers[key])}
    if not any(pod.status.phase == "Running" for pod in placed.values()):
        return False
    done = {at.indices[key] for key in at.indices if has_succeeded(kube_job.object, at.workers[key])}
    is_other = placed.keys() != set(range(size)) - done - kube_job.done_indices
    return is_other or any(map(kube_job.was_restarted, placed.values()))


def _start_anew(at: ObservedJob, kube_job: KubeJob) -> Iterator[Step]:
    """End all replicas of a job that have to start together, as one failure where some have failed."""
    failed = [key for key, pod in at.workers.items() if _has_failed(pod)]
    if kube_job.kind.replaces_failed_pods:
        # The Job controller counts them.
        failed = []
    elif not all(_is_done_with(key, at) for key in failed):
        # The log is about to have it.
        return
    restarted = [
        key for key, pod in at.workers.items() if _is_placed(pod) and kube_job.failed_in_place(pod) is not None
    ]
    if ended := (*failed, *restarted):
        yield DeletePods(ended, "ended")
    yield kube_job.kind.suspend_patch()


def _settle(nodes: Sequence[str], at: ObservedJob, kube_job: KubeJob) -> Iterator[Step]:
    """Bring the worker pods of a job that is not suspended to their nodes."""
    desired = {key: nodes[index] for key, index in at.indices.items() if index < len(nodes) and nodes[index]}
    if spare := _at_work_beyond(len(nodes), at, kube_job):
        yield DeletePods(spare, "left over")
    failed = [key for key in desired if _has_failed(at.workers[key]) and not kube_job.kind.replaces_failed_pods]
    done = tuple(key for key in failed if _is_done_with(key, at))
    # Where they start together, they are one failure, counted once the log has all of it.
    if done and not (kube_job.starts_together and len(done) < len(failed)):
        yield DeletePods(done, "ended")
    elsewhere = [key for key, node in desired.items() if _is_elsewhere(at.workers[key], node)]
    ungated = tuple(key for key in elsewhere if at.workers[key].is_ungated)
    launchers = {key: pod for key, pod in at.pods.items() if is_launcher(pod) and _is_unbound(pod)}
    astray = [key for key, pod in launchers.items() if at.launcher_node not in ("", pod.placed_on) and pod.placed_on]
    misplaced = (*(key for key in elsewhere if key not in ungated), *astray)
    if misplaced:
        yield DeletePods(misplaced, "misplaced")
    if ungated:
        yield DeletePods(ungated, "ungated")
    pending = {key: node for key, node in desired.items() if _is_to_be_placed(at.workers[key], at, at.indices[key])}
    together = kube_job.starts_together
    settled = [
        key
        for key, node in desired.items()
        if at.workers[key].placed_on == node and (at.workers[key].is_active or not together)
    ]
    ready = {at.indices[key] for key in (*pending, *settled)} | kube_job.done_indices
    if settled and not together and kube_job.kind.replaces_failed_pods:
        # Its controller pauses before it makes their successors.
        ready.update(index for key, index in at.indices.items() if _has_failed(at.workers[key]))
    # All or none: a job of which one worker has no pod yet would hold GPUs and wait.
    if settled or not pending:
        yield from _let_launchers_go(launchers, at)
    if pending and together and kube_job.done_indices:
        # They would wait for those that are done.
        yield kube_job.kind.suspend_patch()
    elif pending and at.obstacle:
        yield ReportObstacle(at.obstacle)
    elif pending and ready.issuperset(range(len(nodes))):
        if not settled:
            yield from _let_launchers_go(launchers, at)
        yield LiftGates(dict(sorted(pending.items())), replicas=len(nodes) if together else 0)


def _let_launchers_go(launchers: Mapping[str, Pod], at: ObservedJob) -> Iterator[Step]:
    """Yield the lifting of the gates of launchers, for the node that the plan has for them."""
    gated = {key: at.launcher_node for key, pod in launchers.items() if {*pod.gates} == {well_known.GATE}}
    if gated and (at.launcher_node or not (at.job and at.job.spec.launcher_gpus)):
        yield LiftGates(gated)


def _at_work_beyond(size: int, at: ObservedJob, kube_job: KubeJob) -> tuple[str, ...]:
    """Return the pods that their operator keeps though the plan has no use for them, and that hold GPUs."""
    asked = object_size(kube_job.kind, kube_job.object, size)
    spare = [key for key, index in at.indices.items() if size <= index < asked]
    return tuple(key for key in spare if at.workers[key].placed_on and at.workers[key].is_active)


def _halt(at: ObservedJob) -> Iterator[Step]:
    kube_job = at.kube_job
    if kube_job is None or kube_job.object.metadata.deletion_timestamp is not None:
        yield from _left_over(at)
    elif _is_given_up(at, kube_job):
        has_ended = kube_job.object.has_finished
        # Pods that have ended hold nothing: cleanPodPolicy says whether they and their output stay. An operator that
        # has not seen the end yet makes workers anew, which hold nothing until they have a node.
        yield from _left_over(at, of=lambda pod: not pod.is_over and (has_ended or bool(pod.placed_on)))
    elif not kube_job.object.is_suspended:
        yield kube_job.kind.suspend_patch()
    elif kube_job.object.status.condition("Suspended") is not None:
        # The operator is done; workers of indices that it did not see would stay for ever.
        yield from _left_over(at, of=lambda pod: not _is_kept(pod, kube_job))


def _overdue(at: ObservedJob, before: Sequence[Step] = ()) -> Iterator[Step]:
    """Yield the deletion of pods whose grace is longer than the time that is left; `before` is done by then."""
    kube_job, pods = at.kube_job, {**at.pods, **at.workers}
    if kube_job is not None and not kube_job.object.is_suspended and not kube_job.object.metadata.deletion_timestamp:
        # Before it is suspended or deleted, its operator would make them anew. Once it is gone, nothing says whose the
        # launchers are: they go with it.
        pods = {key: pod for key, pod in at.pods.items() if key not in at.workers and DeleteObject() in before}
    until = at.now + KILL_GRACE_S
    late = tuple(key for key, pod in pods.items() if pod.leaves_at > until and not pod.is_over)
    if late:
        yield DeletePods(late, "overdue")


def _slow(at: ObservedJob) -> Iterator[Step]:
    """Yield the deletion of pods that leave with more grace than counts, whoever deleted them."""
    pods, most_s = {**at.pods, **at.workers}, max(KILL_GRACE_S, at.most_grace_s)
    slow = tuple(key for key, pod in pods.items() if pod.metadata.deletion_grace_period_seconds > most_s)
    if slow:
        yield DeletePods(slow, "slow")


def _stop(at: ObservedJob, *, is_unwanted: bool) -> Iterator[Step]:
    kube_job = at.kube_job
    has_object = kube_job is not None and kube_job.object.metadata.deletion_timestamp is None
    if kube_job is not None and has_object and is_unwanted and not _has_ended(at, kube_job):
        yield DeleteObject()
    else:
        yield from _halt(at)


def _left_over(at: ObservedJob, of: Callable[[Pod], bool] = lambda pod: True) -> Iterator[Step]:
    left = tuple(key for key, pod in at.workers.items() if not pod.is_leaving and of(pod))
    if left:
        yield DeletePods(left, "left over")


def _forced(at: ObservedJob, *, after_s: float = math.inf) -> Iterator[Step]:
    """Yield the deletion of pods whose end no kubelet will confirm, or has not confirmed so long after their grace."""
    # A launcher that has ended stays: without it, its operator would not know how the job ended, and start it again.
    held = {key: pod for key, pod in at.pods.items() if _is_at_work(pod)} | dict(at.workers)
    lost = tuple(key for key, pod in held.items() if _is_lost(pod, at) or at.now >= pod.leaves_at + after_s)
    if lost:
        yield DeletePods(lost, "lost")


def _is_lost(pod: Pod, at: ObservedJob) -> bool:
    is_gone = at.dead_nodes.get(pod.spec.node_name)
    if is_gone is None:
        return False
    # A node that was deleted is no machine any more; a silent one may only be cut off.
    return is_gone or (pod.is_leaving and at.now >= pod.leaves_at + FORCE_AFTER_S)


def _has_ended(at: ObservedJob, kube_job: KubeJob) -> bool:
    return outcome_of(kube_job, tuple(at.pods.values()), at.job_id) is not None


def _is_given_up(at: ObservedJob, kube_job: KubeJob) -> bool:
    """Say whether the operator has finished with the job; it goes on with one that only voda counts as failed."""
    end = kube_job.kind.end(kube_job.object, tuple(at.pods.values()), at.job_id)
    return end is not None or kube_job.is_broken(at.pods)


def _is_ready(at: ObservedJob, kube_job: KubeJob) -> bool:
    """Say whether the object was made ready to run."""
    return kube_job.object.metadata.annotations.get(well_known.JOB_ID) == at.job_id


def _is_kept(pod: Pod, kube_job: KubeJob) -> bool:
    """Say whether a pod has failed by which the Job controller counts the failures of its index."""
    return _has_failed(pod) and kube_job.starts_together and kube_job.kind.replaces_failed_pods


def _is_unbound(pod: Pod) -> bool:
    return pod.is_active and not pod.spec.node_name


def _is_placed(pod: Pod) -> bool:
    return bool(pod.placed_on) and pod.is_active


def _is_at_work(pod: Pod) -> bool:
    return not pod.is_over or pod.is_leaving


def _is_of_old_template(pod: Pod, kube_job: KubeJob) -> bool:
    """Say whether a replica's pod was made from the templates that the object had before its adoption."""
    # They name no job, or where the object is a copy, another one.
    job_id = kube_job.object.metadata.annotations.get(well_known.JOB_ID)
    is_old = index(pod) is not None and worker_of(pod) != job_id
    return is_old and kube_job.object.owns(pod) and pod.is_active


def _is_done_with(key: str, at: ObservedJob) -> bool:
    """Say whether a worker has failed and the log has it: the pod alone says why, so it stays until then."""
    pod = at.workers[key]
    is_known = at.job is None or at.job.workers.get(at.indices[key]) != pod.spec.node_name
    return _has_failed(pod) and is_known


def _has_failed(pod: Pod) -> bool:
    return pod.status.phase == "Failed" and not pod.is_leaving


def _is_elsewhere(pod: Pod, node: str) -> bool:
    """Say whether a pod is on another node, or was let go to another one, or to any."""
    return well_known.GATE not in pod.gates and pod.placed_on != node and pod.is_active


def _is_to_be_placed(pod: Pod, at: ObservedJob, index: int) -> bool:
    # The successor of a worker whose loss the log is about to have; gates of others are theirs to lift.
    is_second = at.job is not None and not at.job.spec.is_restartable and index in at.job.workers
    return {*pod.gates} == {well_known.GATE} and pod.is_active and not is_second

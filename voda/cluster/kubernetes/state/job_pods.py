"""Which pods belong to which job, which of its workers hold GPUs and where, and why others hold none any more.

Rules: pure; labels and annotations of a pod prove nothing alone, because anybody can write or copy them: a worker of a
job is in the job's namespace, belongs to an object of the job's name, and is named as its replicas are. A worker holds
its GPUs from its binding until its pod has ended or is gone, also while it is being deleted; a worker that was deleted
did not fail, whatever its exit code says.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.operator_pods import (
    DISRUPTED,
    OWN_FAULT,
    index,
    is_over_limit,
    leaves_unfinished,
    owner_name,
)
from voda.cluster.kubernetes.objects import NodeObject, Pod
from voda.cluster.kubernetes.state.nodes import is_ready
from voda.domain.job import Job
from voda.events.types import ExitCause, JobCompleted, JobFailed, WorkerExited, WorkerStarted

Exit = tuple[ExitCause, int | None]
"""Cause and exit code; None where there was no code, or it means nothing."""
SUCCESS: Final[Exit] = ("finished", 0)
OVER_LIMIT: Final[Exit] = ("failed", None)
"""Of a worker that its kubelet evicted for its own limits, whatever its operator did with the pod then."""
FAILED_FOR_GOOD: Final[Exit] = ("failed_for_good", None)

_NODE_LOST: Final = frozenset({"NodeLost", "DeletionByPodGC"})
"""Reasons of a pod, or of its condition DisruptionTarget, that mean its machine is gone."""
_BY_TAINT: Final = "DeletionByTaintManager"
"""A reason of that condition: the node was tainted, by an administrator or because it does not answer."""
_REFUSED: Final = frozenset({"NodeAffinity", "NodePorts", "TopologyAffinityError", "UnexpectedAdmissionError"})
_REFUSED_PREFIXES: Final = ("OutOf",)
TERMINATED: Final = frozenset({137, 143})
"""128 + SIGKILL or SIGTERM."""
_NONE: Final[Mapping[str, Pod]] = {}


class PodOwners:
    """Pods by job object, and worker pods by job; `job` returns a job of the log, live or ended."""

    def __init__(self, job: Callable[[str], Job | None]) -> None:
        self._job = job
        self._workers: defaultdict[str, dict[str, dict[str, Pod]]] = defaultdict(dict)
        """job id -> namespace/name of an object -> its pods that carry the job's id, by key."""
        self._pods: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        """namespace/name of an object -> its pods, launchers too, by key."""

    def add(self, key: str, pod: Pod) -> None:
        owner = owner_key(pod)
        if owner:
            self._pods[owner][key] = pod
        if job_id := worker_of(pod):
            self._workers[job_id].setdefault(owner, {})[key] = pod

    def drop(self, key: str, pod: Pod) -> None:
        job_id, owner = worker_of(pod), owner_key(pod)
        _remove(self._pods, owner, key)
        _remove(self._workers.get(job_id, {}), owner, key)
        if not self._workers.get(job_id, True):
            del self._workers[job_id]

    def pods(self, owner: str) -> Mapping[str, Pod]:
        """Return the pods of an object (namespace/name), by key."""
        return self._pods.get(owner, _NONE)

    def workers(self, job_id: str) -> Mapping[str, Pod]:
        """Return the workers of a job, by key; of a job that the log does not have, all that carry its id."""
        owners = self._workers.get(job_id)
        if not owners:
            return _NONE
        if (job := self._job(job_id)) is not None:
            return owners.get(object_key(job), _NONE)
        return {key: pod for pods in owners.values() for key, pod in pods.items()}

    def job_of(self, pod: Pod) -> str:
        """Return the id of the job that a pod is a worker of; empty where it is none."""
        job_id = worker_of(pod)
        if not job_id or (job := self._job(job_id)) is None:
            return job_id
        return job_id if owner_key(pod) == object_key(job) else ""

    def job_ids(self) -> Sequence[str]:
        """Return the ids that pods carry, some perhaps in vain."""
        return list(self._workers)


def worker_of(pod: Pod) -> str:
    """Return the id of the job that a pod carries as a worker; empty where voda does not place it."""
    if index(pod) is None:
        return ""
    return pod.metadata.annotations.get(well_known.JOB_ID, "")


def owner_key(pod: Pod) -> str:
    """Return namespace/name of the object that a pod's label names; empty without the label."""
    owner = owner_name(pod)
    return f"{pod.metadata.namespace}/{owner}" if owner else ""


def object_key(job: Job) -> str:
    """Return namespace/name of a job's object."""
    return f"{job.spec.namespace}/{job.spec.name or job.spec.job_id}"


def _remove(pods: dict[str, dict[str, Pod]], owner: str, key: str) -> None:
    if pods.get(owner, {}).pop(key, None) is not None and not pods[owner]:
        del pods[owner]


def is_refusal(reason: str) -> bool:
    """Say whether that reason of a pod's failure means that its kubelet refused it: OutOfcpu, NodePorts, ..."""
    return reason.startswith(_REFUSED_PREFIXES) or reason in _REFUSED


def holders(pods: Iterable[Pod]) -> Mapping[int, Pod]:
    """Return index -> pod, of the workers of one job that hold what they request, in the order of the indices."""
    held = (pod for pod in pods if pod.spec.node_name and not pod.is_over)
    found = {number: pod for pod in held if (number := index(pod)) is not None}
    return dict(sorted(found.items()))


def gpu_nodes(pods: Iterable[Pod]) -> Mapping[int, str]:
    """Return index -> node, of these workers."""
    return {number: pod.spec.node_name for number, pod in holders(pods).items()}


def exit_cause(
    before: Pod,
    now: Pod | None,
    *,
    node: NodeObject | None,
    wanted: str | None,
    ended: JobCompleted | JobFailed | None = None,
) -> Exit:
    """Return why a worker holds nothing any more.

    Args:
        before: as it was when it held GPUs.
        now: the same pod, over; None: it is gone, or a successor has its name.
        node: where it was; None: the node is gone too.
        wanted: name of the node where the plan has a worker of that index; None: nowhere.
        ended: how the job ended, if it has.
    """
    pod = now if now is not None and now.metadata.uid == before.metadata.uid else before
    if by_others := _external_cause(pod, node):
        return by_others, None
    if is_over_limit(pod):
        return OVER_LIMIT
    if pod.is_over and not leaves_unfinished(pod):
        return SUCCESS if pod.status.phase == "Succeeded" else ("failed", exit_code(pod))
    if ended is not None:
        return ("finished" if isinstance(ended, JobCompleted) else "failed"), None
    return _exit_of_taken_pod(pod, node, wanted)


def worker_facts(
    job_id: str, before: Mapping[int, str], now: Mapping[int, str], exits: Mapping[int, Exit]
) -> list[WorkerExited | WorkerStarted]:
    """Return the facts that lead from the holders before to those now: exits first, one for each cause and code.

    Workers that left their nodes for no known reason migrated if they are elsewhere now, and were stopped if not.
    """
    by_exit: dict[Exit, list[int]] = {}
    for number in sorted(before):
        if now.get(number) != before[number]:
            default: Exit = ("migrated" if number in now else "stopped", None)
            by_exit.setdefault(exits.get(number, default), []).append(number)
    facts: list[WorkerExited | WorkerStarted] = [
        WorkerExited(job_id=job_id, workers=tuple(indices), cause=why, exit_code=code)
        for (why, code), indices in by_exit.items()
    ]
    come = {index: now[index] for index in sorted(now) if before.get(index) != now[index]}
    return [*facts, WorkerStarted(job_id=job_id, workers=come)] if come else facts


def _external_cause(pod: Pod, node: NodeObject | None) -> ExitCause | None:
    """Return the cause if the pod says that neither its program nor its deletion ended it."""
    disruptions = {each.reason for each in pod.status.conditions if each.type == DISRUPTED and each.status == "True"}
    if _NODE_LOST & {*disruptions, pod.status.reason}:
        return "node_lost"
    if _BY_TAINT in disruptions and not _is_there(node):
        return "node_lost"
    return "evicted" if disruptions or pod.status.reason not in OWN_FAULT else None


def _exit_of_taken_pod(pod: Pod, node: NodeObject | None, wanted: str | None) -> Exit:
    """Return why a worker went that was deleted, or whose pod went without a status."""
    if not _is_there(node):
        # No kubelet confirmed its end.
        return "node_lost", None
    if wanted is None:
        return "stopped", None
    if wanted != pod.spec.node_name:
        return "migrated", None
    code = exit_code(pod)
    if pod.status.phase == "Failed" and code is not None and code not in TERMINATED:
        # Its operator removed the pod before anybody looked.
        return "failed", code
    return "evicted", None


def _is_there(node: NodeObject | None) -> bool:
    return node is not None and is_ready(node)


def exit_code(pod: Pod) -> int | None:
    """Return the first exit code of a container that failed; None where none has ended badly."""
    states = [each for status in pod.status.container_statuses for each in (status.state, status.last_state)]
    ends = (state.terminated for state in states)
    return next((end.exit_code for end in ends if end is not None and end.exit_code), None)

"""Resync: the facts that the log lacks, from a comparison of its state with the cluster.

Rule: pure. It repairs a log after a restart or a missed notice; where the log agrees with the cluster it returns
nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from voda.cluster.port import Notice, Observed
from voda.domain.job import Job, Phase
from voda.domain.node import Node
from voda.domain.reasons.pods import WorkerGone
from voda.domain.reasons.requests import ObjectGone
from voda.domain.shares import SharingNode
from voda.domain.state import ClusterState
from voda.events import types as facts

_PHASE_CAUSES: Final[Mapping[Phase, facts.ExitCause]] = {Phase.COMPLETED: "finished", Phase.FAILED: "failed"}
_END_CAUSES: Final[Mapping[type, facts.ExitCause]] = {facts.JobCompleted: "finished", facts.JobFailed: "failed"}


class Sighting(Struct, frozen=True):
    """A fact that the log lacks, as one observation shows it.

    Two in a row confirm each other only where both are about the same object: the next one of a job may be as invisible
    for a moment as the former one was for good.
    """

    fact: Notice
    uid: str
    """The object of the fact's job, as the log had it; empty: it had none, or the fact is about no job."""


def sightings(state: ClusterState, observed: Observed) -> Sequence[Sighting]:
    """Return the missing facts, each with the object that it is about."""
    return [Sighting(fact, _uid(state, fact)) for fact in missing_facts(state, observed)]


def _uid(state: ClusterState, fact: Notice) -> str:
    job = state.jobs.get(getattr(fact, "job_id", ""))
    return job.uid if job is not None else ""


def missing_facts(state: ClusterState, observed: Observed) -> tuple[Notice, ...]:
    """Return the facts that lead from the state of the log to the state of the cluster.

    Nodes first, then job by job: its object, its end, exits of workers, then shares of GPUs; starts of workers last,
    so that the log never has a node with more workers than it holds. The reconciler stops workers of jobs that are not
    live; here is only their exit.
    """
    missing: list[Notice] = [*_nodes(state.nodes, observed.nodes)]
    for job_id in sorted(state.jobs):
        missing += _job(state, state.jobs[job_id], observed)
    for job_id in sorted(state.outlived):
        missing += _late_exits(state.outlived[job_id], observed)
    for name, account in sorted((observed.shares or {}).items()):
        missing += _shares(name, state.shares.get(name, SharingNode()), account)
    return tuple(sorted(missing, key=lambda fact: isinstance(fact, facts.WorkerStarted)))


def _nodes(recorded: Mapping[str, Node], present: Mapping[str, Node]) -> Iterator[Notice]:
    for name in sorted({*recorded, *present}):
        match recorded.get(name), present.get(name):
            case None, Node() as node:
                yield facts.NodeJoined(node=node)
            case Node() as node, None:
                yield facts.NodeLeft(name=name, pool=node.pool, how="unseen")
            case Node() as before, Node() as node if before != node:
                yield facts.changed_node(before, node)


def _shares(node: str, recorded: SharingNode, present: SharingNode) -> Iterator[facts.ShareFact]:
    """Yield the releases first, so that no GPU is full when it is assigned; nothing that the account would refuse."""
    account = recorded.copy()
    for uid, pod in sorted(recorded.pods.items()):
        if uid not in present.pods or present.pods[uid].containers != pod.containers:
            del account.pods[uid]
            yield facts.ShareReleased(node=node, pod_uid=uid, pod=pod.pod, reason=WorkerGone())
    for uid, pod in sorted(present.pods.items()):
        if uid not in account.pods and not account.refusal(pod.containers):
            account.pods[uid] = pod
            yield facts.ShareAssigned(node=node, pod_uid=uid, pod=pod.pod, containers=pod.containers)


def _job(state: ClusterState, job: Job, observed: Observed) -> Iterator[Notice]:
    job_id = job.spec.job_id
    present = observed.workers.get(job_id, {})
    end = observed.ended.get(job_id)
    if observed.objects is not None:
        yield from _object(job, observed.objects.get(job_id, ""), is_over=end is not None)
    if end is not None:
        yield end
    yield from _exits(state, job, present, observed, end)
    started = {index: node for index, node in present.items() if job.workers.get(index) != node}
    if started:
        yield facts.WorkerStarted(job_id=job_id, workers=started)


def _object(job: Job, uid: str, *, is_over: bool) -> Iterator[facts.JobRegistered | facts.JobCancelRequested]:
    """Yield that the job has an object now, or that somebody deleted it, which asks for the job's cancellation."""
    job_id, kind = job.spec.job_id, job.spec.kind
    if uid and not job.uid:
        yield facts.JobRegistered(job_id=job_id, uid=uid, kind=kind)
    elif job.uid and uid != job.uid and not job.is_canceling and not is_over:
        yield facts.JobCancelRequested(job_id=job_id, reason=ObjectGone(object=kind, is_replaced=bool(uid)))


def _exits(
    state: ClusterState,
    job: Job,
    present: Mapping[int, str],
    observed: Observed,
    end: facts.JobCompleted | facts.JobFailed | None,
) -> Iterator[facts.WorkerExited]:
    """Yield one fact per cause, for the workers that are no longer where the log has them."""
    planned, exits = state.plan.placement.get(job.spec.job_id, ()), observed.exits.get(job.spec.job_id, {})
    causes: dict[facts.ExitCause, list[int]] = {}
    for index, node in sorted(job.workers.items()):
        if present.get(index) != node:
            cause = _END_CAUSES.get(type(end)) or exits.get(index) or _cause(index, node, planned, present, observed)
            causes.setdefault(cause, []).append(index)
    for cause, indices in causes.items():
        retry_at = observed.retries.get(job.spec.job_id) if cause in facts.RETRIED_CAUSES else None
        yield facts.WorkerExited(job_id=job.spec.job_id, workers=tuple(indices), cause=cause, retry_at=retry_at)


def _late_exits(job: Job, observed: Observed) -> Iterator[facts.WorkerExited]:
    """Yield the exits of an ended job's workers: a leader may have recorded its end and crashed before them."""
    job_id = job.spec.job_id
    present = observed.workers.get(job_id, {})
    if exited := tuple(index for index, node in sorted(job.workers.items()) if present.get(index) != node):
        yield facts.WorkerExited(job_id=job_id, workers=exited, cause=_PHASE_CAUSES.get(job.phase, "stopped"))


def _cause(
    index: int, node: str, planned: Sequence[str], present: Mapping[int, str], observed: Observed
) -> facts.ExitCause:
    if index in present:
        return "migrated"
    if node not in observed.nodes:
        return "node_lost"
    return "failed" if index < len(planned) and planned[index] == node else "stopped"

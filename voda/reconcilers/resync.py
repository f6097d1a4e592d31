"""What happened while nobody looked: the facts that the log lacks, told from what the cluster shows.

Rule: pure. It heals a log after a restart and whatever notice was missed; where the log is right it finds nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from voda.cluster.port import Notice, Observed
from voda.domain.job import Job, Phase
from voda.domain.node import Node
from voda.domain.state import ClusterState
from voda.events.types import (
    ExitCause,
    JobCancelRequested,
    JobCompleted,
    JobFailed,
    JobRegistered,
    NodeChanged,
    NodeJoined,
    NodeLeft,
    WorkerExited,
    WorkerStarted,
)

_CAUSES: Final[Mapping[Phase, ExitCause]] = {Phase.COMPLETED: "finished", Phase.FAILED: "failed"}


def missing_facts(state: ClusterState, observed: Observed) -> tuple[Notice, ...]:
    """Return the facts that lead from what the log believes to what the cluster shows.

    Args:
        state: one pool as the log has it.
        observed: what the pool's cluster shows.

    Returns:
        Nodes first, then job by job: its object, its end, workers gone; then workers come, so that no node is ever
        overfull in the log. Workers of jobs that are not live are the reconciler's business, which stops them; that
        they went is told here.
    """
    facts: list[Notice] = [*_nodes(state.nodes, observed.nodes)]
    for job_id in sorted(state.jobs):
        facts += _job(state, state.jobs[job_id], observed)
    for job_id in sorted(state.outlived):
        facts += _outlived(state.outlived[job_id], observed)
    return tuple(sorted(facts, key=lambda fact: isinstance(fact, WorkerStarted)))


def _nodes(believed: Mapping[str, Node], seen: Mapping[str, Node]) -> Iterator[Notice]:
    for name in sorted({*believed, *seen}):
        match believed.get(name), seen.get(name):
            case None, Node() as node:
                yield NodeJoined(node=node)
            case Node() as node, None:
                yield NodeLeft(name=name, pool=node.pool, reason="not there any more")
            case before, Node() as node if before != node:
                yield NodeChanged(node=node)


def _job(state: ClusterState, job: Job, observed: Observed) -> Iterator[Notice]:
    job_id = job.spec.job_id
    seen = observed.workers.get(job_id, {})
    end = observed.ended.get(job_id)
    if observed.objects is not None:
        yield from _object(job, observed.objects.get(job_id, ""), is_over=end is not None)
    if end is not None:
        yield end
    yield from _gone(state, job, seen, observed, end)
    come = {index: node for index, node in seen.items() if job.workers.get(index) != node}
    if come:
        yield WorkerStarted(job_id=job_id, workers=come)


def _object(job: Job, uid: str, *, is_over: bool) -> Iterator[JobRegistered | JobCancelRequested]:
    """Yield that the job has an object by now, or that somebody deleted the one it had: he wants the job no more."""
    job_id, kind = job.spec.job_id, job.spec.kind
    if uid and not job.uid:
        yield JobRegistered(job_id=job_id, uid=uid, kind=kind)
    elif job.uid and uid != job.uid and not job.is_canceling and not is_over:
        what = "was replaced by another one" if uid else "was deleted"
        yield JobCancelRequested(job_id=job_id, reason=f"its {kind} {what}")


def _gone(
    state: ClusterState,
    job: Job,
    seen: Mapping[int, str],
    observed: Observed,
    end: JobCompleted | JobFailed | None,
) -> Iterator[WorkerExited]:
    """Yield one fact per cause, for the workers that are not where the log has them."""
    planned, told = state.plan.placement.get(job.spec.job_id, ()), observed.exits.get(job.spec.job_id, {})
    causes: dict[ExitCause, list[int]] = {}
    for index, node in sorted(job.workers.items()):
        if seen.get(index) != node:
            cause = _ended_cause(end) or told.get(index) or _cause(index, node, planned, seen, observed)
            causes.setdefault(cause, []).append(index)
    for cause, indices in causes.items():
        yield WorkerExited(job_id=job.spec.job_id, workers=tuple(indices), cause=cause)


def _outlived(past: Job, observed: Observed) -> Iterator[WorkerExited]:
    """Yield that workers of a job that has ended are gone: whoever wrote down its end may have got no further."""
    job_id = past.spec.job_id
    seen = observed.workers.get(job_id, {})
    if gone := tuple(index for index, node in sorted(past.workers.items()) if seen.get(index) != node):
        yield WorkerExited(job_id=job_id, workers=gone, cause=_CAUSES.get(past.phase, "stopped"))


def _ended_cause(end: JobCompleted | JobFailed | None) -> ExitCause | None:
    match end:
        case None:
            return None
        case JobCompleted():
            return "finished"
        case JobFailed():
            return "failed"


def _cause(index: int, node: str, planned: Sequence[str], seen: Mapping[int, str], observed: Observed) -> ExitCause:
    if index in seen:
        return "migrated"
    if node not in observed.nodes:
        return "node_lost"
    return "failed" if index < len(planned) and planned[index] == node else "stopped"

"""Which facts make a decision due at once. Pure."""

from collections import Counter
from collections.abc import Mapping

from voda.domain.gpus import NO_GPUS, Gpus
from voda.domain.job import Job
from voda.domain.node import Node
from voda.domain.plan import Plan
from voda.events import types as facts
from voda.events.types import AnyFact, WorkerExited
from voda.projections.cluster.live_cluster import LiveCluster


def is_due_after(fact: AnyFact, cluster: LiveCluster, pool: str) -> bool:
    """Return whether a fact of a pool, which has been folded, makes a decision due at once."""
    if isinstance(fact, facts.NodeRoomChanged):
        return any(job.spec.needs is not None or not job.workers for job in cluster.jobs(pool).values())
    if not isinstance(fact, facts.WorkerExited):
        return fact.MAKES_PLAN_DUE
    plan, jobs, job = cluster.plan(pool), cluster.jobs(pool), cluster.job(fact.job_id)
    gpus = NO_GPUS if job is None else job.spec.gpus_per_replica
    return (
        _has_lost_place(fact, gpus, plan, cluster.nodes(pool), cluster.pool(pool).held)
        or _leaves_array(fact.job_id, jobs, plan)
        or has_freed_gpus(fact, jobs)
        or _begins_backoff(fact, jobs)
        or _loses_run(fact, jobs)
    )


def _has_lost_place(
    fact: WorkerExited, gpus: Gpus, plan: Plan, nodes: Mapping[str, Node], held: Mapping[str, int]
) -> bool:
    """Return whether a worker exited that the plan has on a node which has no room for it: it cannot come back there.

    Args:
        fact: the exit.
        gpus: of each worker of the job.
        plan: in force.
        nodes: as the cluster shows them.
        held: node -> GPUs that workers hold there, now that these have exited.
    """
    planned = enumerate(plan.placement.get(fact.job_id, ()))
    coming = Counter(name for index, name in planned if index in fact.workers and name in nodes)
    return any(nodes[name].usable_gpus < held.get(name, 0) + count * gpus for name, count in coming.items())


def has_freed_gpus(fact: WorkerExited, jobs: Mapping[str, Job]) -> bool:
    """Return whether replicas are done whose job goes on without them."""
    job = jobs.get(fact.job_id)
    return job is not None and bool(job.workers) and any(index in job.done for index in fact.workers)


def _leaves_array(job_id: str, jobs: Mapping[str, Job], plan: Plan) -> bool:
    """Return whether a job of which a worker has just exited may have given its place in a bounded array away."""
    job = jobs.get(job_id)
    if job is not None and (job.workers or job_id in plan.placement):
        return False
    # One that has ended is not known any more; it may have been a task of any array.
    tasks = jobs.values() if job is None else (job,)
    return any(task.spec.array is not None and task.spec.array.at_once for task in tasks)


def _begins_backoff(fact: WorkerExited, jobs: Mapping[str, Job]) -> bool:
    """Return whether a job has lost its last worker and waits for its next try, so that its GPUs are for others."""
    job = jobs.get(fact.job_id)
    return fact.retry_at is not None and job is not None and not job.workers


def _loses_run(fact: WorkerExited, jobs: Mapping[str, Job]) -> bool:
    """Return whether a job has lost its only run by that, so that what is left of its workers is to leave."""
    job = jobs.get(fact.job_id)
    return job is not None and job.has_lost_run

"""One sentence for the owner of each job: what it gets, what it had, and why.

Rule: every number in a sentence is one the decision was made with. `needs` and `free` count GPUs.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache

from voda.domain.gpus import Gpus
from voda.domain.job import Job, JobSpec
from voda.domain.plan import Allocation
from voda.domain.state import ClusterState
from voda.policies.toolkit.allocation import Shares, least


def explained(
    view: ClusterState,
    jobs: Iterable[Job],
    shares: Shares,
    *,
    why: Callable[[JobSpec], str],
    size: Callable[[JobSpec], int] = least,
) -> Allocation:
    """Return the answer with its reasons.

    Args:
        view: the plan in force says what each job had.
        jobs: all ready jobs.
        shares: what they get, and what stays free.
        why: words for a job whose size changes, put after it: `as requested`.
        size: replicas that a waiting job would get, were they free.
    """
    had_nodes = view.plan.placement
    replicas, free = shares.replicas, shares.free
    reasons = {}
    for job in jobs:
        spec = job.spec
        job_id = spec.job_id
        gets, had = replicas[job_id], len(had_nodes.get(job_id, ()))
        if not gets:
            reasons[job_id] = (_preempted if had else _waits)(size(spec) * spec.gpus_per_replica, free)
        elif gets == had:
            reasons[job_id] = _keeps(gets)
        else:
            reasons[job_id] = _changes(had, gets, why(spec))
    return Allocation(replicas=replicas, reasons=reasons)


def sharing(view: ClusterState, shares: Shares, order: str) -> Callable[[JobSpec], str]:
    """Return words for policies that let jobs share the GPUs in an order: `first submitted first`."""
    running = sum(map(bool, shares.replicas.values()))
    text = f"{running} of {len(shares.replicas)} jobs share {view.capacity_gpus} GPUs, {order}"
    return lambda _spec: text


def as_requested(_spec: JobSpec) -> str:
    """Return words for a job that gets exactly what it requested."""
    return "as requested"


# Most jobs keep what they have or wait for the same, decision after decision.
@lru_cache(maxsize=4096)
def _keeps(replicas: int) -> str:
    return f"keeps {replicas}"


@lru_cache(maxsize=4096)
def _waits(needs: Gpus, free: Gpus) -> str:
    return f"waits: needs {needs}, {free} free"


@lru_cache(maxsize=4096)
def _preempted(needs: Gpus, free: Gpus) -> str:
    return f"preempted: needs {needs}, {free} free"


def _changes(had: int, gets: int, why: str) -> str:
    if not had:
        return f"starts on {gets}, {why}"
    return f"{'grown' if gets > had else 'shrunk'} {had} -> {gets}: {why}"

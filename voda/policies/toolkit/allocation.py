"""Ways to hand out GPUs (first come first served, round robin, by gain), and why each job gets what it gets.

Rules: capacity is charged `gpus_per_replica` for each replica; no job gets what does not fit, nor a size at which it
does not run: a step leads to the next one (`JobSpec.size_above`), and where it does not fit, what is left is for the
steps of others. Every number in a reason is one the decision was made with.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heapreplace

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import Gpus, total
from voda.domain.groups import copied
from voda.domain.job import Job, JobSpec
from voda.domain.plan import Allocation
from voda.domain.reasons.outcomes import Keeps, Preempted, Reason, Resized, Starts, Waits
from voda.domain.reasons.policies import InOrder, Order, PolicyCause
from voda.domain.state import ClusterState


class Shares(Struct):
    """The replicas handed out so far and the GPUs left; changed in place while a policy is at work."""

    free: Gpus
    replicas: dict[str, int]
    """job id -> replicas, for every ready job."""


def requested(spec: JobSpec) -> int:
    """Return the replicas that the job requests."""
    return spec.requested


def least(spec: JobSpec) -> int:
    """Return the fewest replicas the job can run on."""
    return spec.min_replicas


def most_for_all(view: ClusterState) -> Shares | None:
    """Return the most workers of every ready job, whatever the order; None: they need more GPUs, or it is not known."""
    if (known := view.known_groups) is None or known.most_gpus > view.capacity_gpus:
        return None
    return Shares(Gpus(view.capacity_gpus - known.most_gpus), copied(known.most))


def give_first(jobs: Iterable[Job], gpus: Gpus, size: Callable[[JobSpec], int]) -> Shares:
    """Give each job its size if that still fits, in order; a small job may pass a large one that does not fit."""
    replicas = {}
    for job in jobs:
        spec = job.spec
        count = size(spec)
        if (charge := count * spec.gpus_per_replica) <= gpus:
            gpus -= charge
            replicas[spec.job_id] = count
        else:
            replicas[spec.job_id] = 0
    return Shares(gpus, replicas)


def spread(jobs: Iterable[Job], shares: Shares) -> None:
    """Give what is left to the jobs that have a share, one replica at a time, round robin, up to their maximum.

    A job whose next size is several replicas away has it in the round in which it would have got the last of them.
    """
    replicas = shares.replicas
    growing = [job.spec for job in jobs if replicas[job.spec.job_id]] if shares.free else []
    wanted = total([(spec.max_replicas - replicas[spec.job_id]) * spec.gpus_per_replica for spec in growing])
    if wanted <= shares.free:
        # In the end all have their maximum.
        replicas.update({spec.job_id: spec.max_replicas for spec in growing})
        shares.free -= wanted
        return
    if any(spec.sizes is not None for spec in growing):
        _spread_by_size(growing, shares)
        return
    while growing := [
        spec for spec in growing if spec.gpus_per_replica <= shares.free and replicas[spec.job_id] < spec.max_replicas
    ]:
        charge = total([spec.gpus_per_replica for spec in growing])
        if charge > shares.free:
            _give_some(growing, shares)
            continue
        # As many whole rounds as no job drops out of, at once.
        rounds = min(shares.free // charge, min(spec.max_replicas - replicas[spec.job_id] for spec in growing))
        for spec in growing:
            replicas[spec.job_id] += rounds
        shares.free -= rounds * charge


def _spread_by_size(growing: Sequence[JobSpec], shares: Shares) -> None:
    replicas = shares.replicas
    least = [replicas[spec.job_id] for spec in growing]
    heap = [
        (size - least[rank], rank, size) for rank, spec in enumerate(growing) if (size := spec.size_above(least[rank]))
    ]
    heapify(heap)
    while heap and shares.free:
        _, rank, size = heap[0]
        spec = growing[rank]
        if (charge := (size - replicas[spec.job_id]) * spec.gpus_per_replica) > shares.free:
            heappop(heap)
            continue
        shares.free -= charge
        replicas[spec.job_id] = size
        if further := spec.size_above(size):
            heapreplace(heap, (further - least[rank], rank, further))
        else:
            heappop(heap)


def _give_some(growing: Iterable[JobSpec], shares: Shares) -> None:
    for spec in growing:
        if spec.gpus_per_replica <= shares.free:
            shares.replicas[spec.job_id] += 1
            shares.free -= spec.gpus_per_replica


def grow_by_gain(jobs: Sequence[Job], shares: Shares, speedup: Callable[[Job], Sequence[float]]) -> Mapping[str, float]:
    """Give what is left, each time to the job that gains most by its next step, while that is a gain.

    The next step is to the next size, worth its speedup less the present one, for each replica of the step; for a job
    without any it is its minimum. A step that does not fit is set aside for good.

    Args:
        jobs: earlier ones win ties.
        speedup: T(n) of a job, shape at least (max_replicas + 1,).

    Returns:
        job id -> speedup gained by its last step, per replica; for the jobs that got any.
    """
    curves = [speedup(job) for job in jobs] if shares.free else []
    counts = [shares.replicas[job.spec.job_id] for job in jobs]
    heap = [(-_gain(jobs[rank].spec, curve, counts[rank]), rank) for rank, curve in enumerate(curves)]
    heap = [entry for entry in heap if entry[0] < 0]
    heapify(heap)
    gains: dict[str, float] = {}
    while heap and shares.free:
        loss, rank = heap[0]
        spec, count = jobs[rank].spec, counts[rank]
        size = spec.size_above(count)
        if (charge := (size - count) * spec.gpus_per_replica) > shares.free:
            heappop(heap)
            continue
        shares.free -= charge
        counts[rank] = count = size
        shares.replicas[spec.job_id], gains[spec.job_id] = count, -loss
        if (gain := _gain(spec, curves[rank], count)) > 0:
            heapreplace(heap, (-gain, rank))
        else:
            heappop(heap)
    return gains


def _gain(spec: JobSpec, curve: Sequence[float], count: int) -> float:
    size = spec.size_above(count)
    return (curve[size] - curve[count]) / (size - count) if size else 0.0


def as_requested(_spec: JobSpec) -> None:
    """Return no cause: the job gets what it requested."""


def explained(
    view: ClusterState,
    shares: Shares,
    *,
    why: Callable[[JobSpec], PolicyCause | None],
    why_not: Callable[[JobSpec], PolicyCause | None] = as_requested,
    size: Callable[[JobSpec], int] = least,
) -> Allocation:
    """Return the shares of all ready jobs with a reason for each.

    Args:
        view: the plan in force says what each job had.
        why: the cause for a job whose size changes; None: it gets what it requested.
        why_not: the cause for a job that gets nothing; None: too few GPUs are free.
        size: replicas that a waiting job would get, were they free.
    """
    had_nodes = view.plan.placement
    replicas, free = shares.replicas, shares.free

    def reason(job_id: str) -> Reason:
        spec = view.jobs[job_id].spec
        gets, had = replicas[job_id], len(had_nodes.get(job_id, ()))
        if not gets:
            waits = (_preempted if had else _waits)(size(spec) * spec.gpus_per_replica, free)
            return waits if (cause := why_not(spec)) is None else replace(waits, why=(cause,))
        if gets == had:
            return _keeps(gets)
        cause = why(spec)
        causes = () if cause is None else (cause,)
        return Resized(had=had, workers=gets, why=causes) if had else Starts(workers=gets, why=causes)

    return Allocation(replicas=replicas, reasons=_Reasons(replicas, reason))


class _Reasons(Mapping[str, Reason]):
    """The reasons of these jobs, each made when it is asked for: of most nobody does."""

    def __init__(self, job_ids: Collection[str], reason: Callable[[str], Reason]) -> None:
        self._job_ids, self._reason = job_ids, reason

    def __getitem__(self, job_id: str) -> Reason:
        if job_id not in self._job_ids:
            raise KeyError(job_id)
        return self._reason(job_id)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._job_ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._job_ids)

    def __len__(self) -> int:
        return len(self._job_ids)


def sharing(view: ClusterState, shares: Shares, order: Order) -> Callable[[JobSpec], PolicyCause]:
    """Return the cause for jobs that share the GPUs in an order."""
    running = sum(map(bool, shares.replicas.values()))
    others = len(shares.replicas) - running
    cause = InOrder(running=running, others=others, gpus=view.capacity_gpus, order=order)
    return lambda _spec: cause


# Most jobs keep what they have or wait for the same, decision after decision.
@lru_cache(maxsize=4096)
def _keeps(replicas: int) -> Keeps:
    return Keeps(workers=replicas)


@lru_cache(maxsize=4096)
def _waits(needs: Gpus, free: Gpus) -> Waits:
    return Waits(needs=needs, free=free)


@lru_cache(maxsize=4096)
def _preempted(needs: Gpus, free: Gpus) -> Preempted:
    return Preempted(needs=needs, free=free)

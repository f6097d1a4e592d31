"""Jobs that only some nodes take, or that share what is scarce: a policy gives them no more than their nodes have.

A policy counts the GPUs of the whole pool. Where it gives the jobs that are confined to some nodes more than these
have, it is asked again with these jobs and these GPUs alone, and they want no more than its answer; what they leave is
for others. Rule: it is asked about each set of nodes that jobs are confined to, and about sets that overlap together;
where these have enough, and jobs lack workers for want of a scarce resource, about those that contend for it and the
GPUs on which they found room.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Final

from msgspec.structs import replace

from voda.domain.gpus import Gpus, total
from voda.domain.node import demand_of
from voda.domain.plan import Placement
from voda.domain.reasons.outcomes import Reason, also
from voda.domain.state import ClusterState
from voda.placement.order import is_confined
from voda.planner.allocation.priority import allocate
from voda.planner.feasibility import Told, no_room
from voda.policies import Policy

_MOST_SETS: Final = 64
"""Of nodes: a bound on the time that a decision takes."""


def is_bound_to_nodes(view: ClusterState) -> bool:
    """Return whether a job is confined to some nodes, or workers could use up a resource of one."""
    return bool(view.scarce) or any(is_confined(view, job) for job in view.special_jobs.values())


def sizes_within(
    view: ClusterState, replicas: Mapping[str, int], placement: Placement, policy: Policy, now: float
) -> Mapping[str, tuple[int, Reason]]:
    """Return the jobs that were given more than their nodes have -> what the policy gives them of that, and why.

    `placement` is what the placer made of it: what nodes have where jobs lack a scarce resource.
    """
    bits = _bits(view)
    gpus_of = [view.nodes[name].usable_gpus for name in bits]
    confined = _confined(view, replicas, bits)
    sizes, found = dict(replicas), dict[str, tuple[int, Reason]]()
    told: Told = {}

    def divide(jobs: Iterable[str], gpus: Gpus) -> None:
        part = replace(view, jobs={job_id: view.jobs[job_id] for job_id in jobs}, capacity_limit_gpus=gpus)
        answer = allocate(part, policy, now)
        for job_id, size in answer.replicas.items():
            if size < sizes[job_id]:
                sizes[job_id] = size
                found[job_id] = size, _reason(view, job_id, replicas[job_id], size, answer.reasons[job_id], told)

    for nodes in _sets(confined):
        jobs = [job_id for alike, job_ids in confined.items() if not alike & ~nodes for job_id in job_ids]
        gpus = sum(compress(gpus_of, f"{nodes:b}"[::-1].encode().replace(b"0", b"\0")))
        if total(sizes[job_id] * view.jobs[job_id].spec.gpus_per_replica for job_id in jobs) > gpus:
            divide(jobs, Gpus(gpus))
    if not found and (contending := _contending(view, replicas, placement)):
        sums = (len(placement.get(job_id, ())) * view.jobs[job_id].spec.gpus_per_replica for job_id in contending)
        divide(contending, total(sums))
    return found


def _reason(  # noqa: PLR0913 - what is known of a job
    view: ClusterState, job_id: str, wanted: int, size: int, by_policy: Reason, told: Told
) -> Reason:
    """Return what the policy tells a job that loses workers; any other is told which nodes are not for it."""
    if not view.jobs[job_id].refusals or size < len(view.plan.placement.get(job_id, ())):
        return by_policy
    short = no_room(view, job_id, wanted, size, told)
    return short if size else also(short, *by_policy.why)


def _contending(view: ClusterState, replicas: Mapping[str, int], placement: Placement) -> Sequence[str]:
    """Return the jobs that lack workers beside a scarce resource, and those that hold it; none: no job lacks any."""
    resources = {resource for left in view.scarce.values() for resource in left}

    def asks(job_id: str) -> bool:
        return any(
            asked and resource in resources for resource, asked in demand_of(view.jobs[job_id].spec.needs).items()
        )

    asking = [job_id for job_id, size in replicas.items() if resources and size and asks(job_id)]
    short = {job_id for job_id in asking if len(placement.get(job_id, ())) < replicas[job_id]}
    if not short:
        return []
    return [job_id for job_id in asking if job_id in short or not view.scarce.keys().isdisjoint(placement[job_id])]


def _bits(view: ClusterState) -> Mapping[str, int]:
    """Return node -> its bit in a set of nodes, which is an integer: the highest is that of the first by name."""
    return {name: 1 << at for at, name in enumerate(sorted(view.nodes, reverse=True))}


def _confined(view: ClusterState, replicas: Mapping[str, int], bits: Mapping[str, int]) -> dict[int, list[str]]:
    """Return sets of nodes -> the jobs, of those that were given workers, that no other nodes take."""
    found: dict[int, list[str]] = {}
    # Jobs of one class have the very same refusals.
    known: dict[tuple[int, int], int] = {}
    for job_id, size in replicas.items():
        job = view.jobs[job_id]
        if not size or not is_confined(view, job):
            continue
        key = id(job.refusals), id(job.fits)
        if (nodes := known.get(key)) is None:
            nodes = known[key] = sum(map(bits.__getitem__, bits.keys() - (job.refusals.keys() - job.fits.keys())))
        # Workers at work elsewhere stay there.
        for name in job.workers.values():
            nodes |= bits.get(name, 0)
        found.setdefault(nodes, []).append(job_id)
    return found


def _sets(confined: Mapping[int, Sequence[str]]) -> Sequence[int]:
    """Return the sets and the unions of those that overlap, the smallest first; ties by names."""

    def rank(nodes: int) -> tuple[int, int]:
        return nodes.bit_count(), -nodes

    found = set(sorted(confined, key=int.bit_count)[:_MOST_SETS])
    grown = True
    while grown and len(found) < _MOST_SETS:
        unions = {one | other for one in found for other in found if one & other} - found
        grown = bool(unions)
        found |= set(sorted(unions, key=rank)[: _MOST_SETS - len(found)])
    return sorted(found, key=rank)

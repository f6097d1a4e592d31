"""Finds the jobs for which the nodes have no room: a policy counts GPUs, not nodes, and would keep some for them.

Rule: a job is left out for one decision only; the next one asks with it again.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Set

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.plan import Placement
from voda.domain.reasons.nodes import LacksRoom, NoneFree, Refused
from voda.domain.reasons.outcomes import Reason, Runs, Waits
from voda.domain.state import ClusterState
from voda.placement.order import lacking

Told = dict[tuple[int, int], Refused]
"""What is said of nodes to jobs that they refuse alike."""


class Shortfall(Struct, frozen=True, kw_only=True):
    """What a placement lacks of an allocation."""

    reasons: Mapping[str, Reason] = {}
    """Of the jobs that have less than they were allocated."""
    left_out: Mapping[str, Reason] = {}
    """Jobs to decide without -> why: they found no room, or wait and are no easier to place than such a job."""
    caps: Mapping[str, tuple[int, Reason]] = {}
    """Jobs that have less because nodes refuse them, or the free GPUs are scattered -> the size they have, and why."""


def feasible_view(view: ClusterState) -> tuple[ClusterState, dict[str, Reason]]:
    """Return the view without the jobs that the nodes could not hold if they were empty, and why not."""
    slots: dict[tuple[int, int, int], int] = {}
    usable: dict[int, dict[str, int]] = {}
    # GPUs of a worker -> nodes that have room for one.
    roomy: dict[int, int] = {}
    impossible: dict[str, Reason] = {}
    for job in _doubtful(view):
        # Jobs of one class have the very same refusals (`node_fit`): asked once.
        gpus = job.spec.gpus_per_replica
        if gpus not in usable:
            usable[gpus] = {name: node.usable_gpus // gpus for name, node in view.nodes.items()}
            roomy[gpus] = sum(map(bool, usable[gpus].values()))
        if roomy[gpus] - len(job.refusals) >= job.spec.min_replicas:
            continue
        key = gpus, id(job.refusals) if job.refusals else 0, id(job.fits) if job.fits else 0
        if (room := slots.get(key)) is None:
            room = slots[key] = _new_workers(usable[gpus], job)
        if room < job.spec.min_replicas and not job.is_canceling:
            room += _only_at_work(view, job)
            if room < job.spec.min_replicas:
                impossible[job.spec.job_id] = _impossible(view, job, room)
    return (without_jobs(view, impossible.keys()) if impossible else view), impossible


def _doubtful(view: ClusterState) -> Iterator[Job]:
    """Yield the jobs of which a policy may count wrong: workers of one GPU that fit any node it counts right."""
    special, sizes = view.special_jobs, {gpus for _, gpus, *_ in view.job_groups.shapes}
    yield from (job for job in special.values() if job.spec.gpus_per_replica > 1 or job.refusals)
    for gpus in sizes if len(special) < len(view.jobs) else ():
        roomy = sum(node.usable_gpus >= gpus for node in view.nodes.values()) if gpus > 1 else 0
        most = max(least for _, each, least, _ in view.job_groups.shapes if each == gpus)
        if gpus > 1 and roomy < most:
            others = (job for job_id, job in view.jobs.items() if job_id not in special)
            yield from (job for job in others if job.spec.gpus_per_replica == gpus and job.spec.min_replicas > roomy)


def shortfall(view: ClusterState, replicas: Mapping[str, int], placement: Placement) -> Shortfall:
    """Return what the placement lacks of the allocation."""
    told: Told = {}
    reasons = {
        job_id: no_room(view, job_id, replicas[job_id], len(placement.get(job_id, ())), told)
        for job_id in lacking(replicas, placement)
    }
    waiting = _no_easier_to_place(view, reasons.keys() - placement.keys(), placement)
    caps = {job_id: (len(placement[job_id]), why) for job_id, why in reasons.items() if job_id in placement}
    return Shortfall(
        reasons=reasons,
        left_out={job_id: reasons.get(job_id) or no_room(view, job_id) for job_id in waiting},
        caps=caps,
    )


def capped_at(sizes: Mapping[str, tuple[int, Reason]]) -> Shortfall:
    """Return what lacks of an allocation where jobs can have so many workers at the most, or none, and why."""
    return Shortfall(
        reasons={job_id: why for job_id, (_, why) in sizes.items()},
        left_out={job_id: why for job_id, (size, why) in sizes.items() if not size},
        caps={job_id: (size, why) for job_id, (size, why) in sizes.items() if size},
    )


def without_jobs(view: ClusterState, job_ids: Set[str]) -> ClusterState:
    """Return the view without these jobs."""
    return view.with_jobs({}, gone=job_ids)


def with_caps(view: ClusterState, caps: Mapping[str, int]) -> ClusterState:
    """Return the view in which these jobs want no more than that, their minimum or more: the rest is for others."""
    return view.with_jobs({job_id: capped_job(view.jobs[job_id], size) for job_id, size in caps.items()})


def capped_job(job: Job, size: int) -> Job:
    """Return a job that wants so many workers at the most, which are its minimum or more."""
    most, requested = job.spec.size_within(size), job.spec.size_within(min(job.spec.requested, size))
    return replace(job, spec=replace(job.spec, max_replicas=most, requested_replicas=requested))


def _no_easier_to_place(view: ClusterState, roomless: Set[str], placement: Placement) -> Set[str]:
    """Return the jobs that found no room, and those that wait behind one of them and are no easier to place."""
    # What shuts out a job that nodes refuse need not shut out any other; closed nodes refuse all.
    if view.scarce:
        return roomless
    closed = view.closed_nodes.keys()
    specs = [job.spec for job_id in roomless if not ((job := view.jobs[job_id]).refusals.keys() - closed)]
    shapes = {(spec.gpus_per_replica, spec.min_replicas, spec.priority) for spec in specs}
    if not shapes:
        return roomless
    waiting = view.jobs.keys() - placement.keys() - view.plan.placement.keys()
    return roomless | {job_id for job_id in waiting if _is_no_easier(view.jobs[job_id], shapes)}


def _is_no_easier(job: Job, shapes: Set[tuple[Gpus, int, int]]) -> bool:
    spec = job.spec
    return not job.is_canceling and any(
        spec.gpus_per_replica >= gpus and spec.min_replicas >= least and spec.priority <= priority
        for gpus, least, priority in shapes
    )


def _impossible(view: ClusterState, job: Job, room: int) -> Reason:
    spec, refused = job.spec, largest_refusal(view, job) if job.refusals else None
    return Waits(
        why=(LacksRoom(workers=spec.min_replicas, gpus=spec.gpus_per_replica, room=max(0, room), refused=refused),)
    )


def no_room(view: ClusterState, job_id: str, size: int = 0, placed: int = 0, told: Told | None = None) -> Reason:
    """Return why a job has fewer workers than that; 0: than its minimum, and none. `told` is kept for one view."""
    job, told = view.jobs[job_id], {} if told is None else told
    key = id(job.refusals), id(job.fits)
    if job.refusals and key not in told:
        told[key] = largest_refusal(view, job)
    cause = NoneFree(
        workers=size or job.spec.min_replicas,
        gpus=job.spec.gpus_per_replica,
        refused=told.get(key),
        lacks_room=bool(job.fits),
    )
    return Runs(workers=placed, why=(cause,)) if placed else Waits(why=(cause,))


def room_for(view: ClusterState, job: Job) -> int:
    """Return how many workers of the job its pool could hold, were it empty."""
    gpus = job.spec.gpus_per_replica
    slots = {name: node.usable_gpus // gpus for name, node in view.nodes.items()}
    return _new_workers(slots, job) + _only_at_work(view, job)


def _new_workers(slots: Mapping[str, int], job: Job) -> int:
    """Return how many workers of the job its pool would take, were it empty; `slots` is node -> by its GPUs alone."""
    fits = [(name, most) for name, most in job.fits.items() if name in job.refusals]
    refused = sum([slots.get(name, 0) for name in job.refusals])
    return sum(slots.values()) - refused + sum(min(slots.get(name, 0), most) for name, most in fits)


def _only_at_work(view: ClusterState, job: Job) -> int:
    """Return how many workers of the job are at work where it would get none, and may stay."""
    count = 0
    for name, workers in Counter(job.workers.values()).items():
        if name in job.refusals and (node := view.nodes.get(name)) is not None:
            slots = node.usable_gpus // job.spec.gpus_per_replica
            count += max(0, min(workers, slots) - job.fits.get(name, 0))
    return count


def largest_refusal(view: ClusterState, job: Job) -> Refused:
    """Return why the largest node that refuses the job does."""

    def rank(name: str) -> tuple[int, str]:
        node = view.nodes.get(name)
        return -(node.usable_gpus if node else 0), name

    name = min(job.refusals, key=rank)
    return Refused(node=name, why=job.refusals[name], fits=job.fits.get(name, 0), others=len(job.refusals) - 1)

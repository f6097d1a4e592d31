"""Jobs that need no GPU: they have the workers that they requested at once, whatever others have.

Rules: pure; neither policies nor cells know these jobs. A worker stays where it is; a new one goes to the node, of
those that take it, where fewest of such jobs' workers are, and no node gets more than 16 of them: a plan is no larger
for a job of thousands. Of CPU, memory and the like they get what workers with GPUs leave, and once at work they keep
it from jobs with GPUs of lower priority, or submitted later; others get their minimum of it (`outranked`). A job of
which nodes take less than its minimum waits, behind those of higher priority.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import Final

from msgspec.structs import replace

from voda.domain.gpus import NO_GPUS
from voda.domain.job import Job
from voda.domain.node import PODS, demand_of
from voda.domain.plan import Placement
from voda.domain.reasons.nodes import LacksResource, LacksRoom, NeedsNoGpu
from voda.domain.reasons.outcomes import Keeps, Reason, Resized, Starts, Waits
from voda.domain.state import ClusterState
from voda.placement.order import shape
from voda.planner.feasibility import largest_refusal, without_jobs

MOST_PER_NODE: Final = 16
_UNBOUND: Final = 1 << 62


def without_gpus(view: ClusterState) -> tuple[ClusterState, Mapping[str, Job]]:
    """Return the view of the jobs that need GPUs, the very same where all do, and the others."""
    found = {job_id: job for job_id, job in view.special_jobs.items() if not job.spec.needs_gpus}
    return (without_jobs(view, found.keys()) if found else view), found


def place_without_gpus(
    view: ClusterState, jobs: Mapping[str, Job], placed: Placement
) -> Iterator[tuple[str, tuple[str, ...], Reason]]:
    """Yield job, nodes of its workers (none: it waits) and why, for each of them that is not being canceled.

    `placed` are the jobs of the view that have a place already.
    """
    if not jobs:
        return
    planned, room = view.plan.placement, _Room(view)
    for job_id, nodes in placed.items():
        if (job := view.jobs.get(job_id)) is not None:
            room.take(job, Counter(nodes))
    for job in jobs.values():
        room.take(job, Counter(job.workers.values()))

    def turn(job_id: str) -> tuple[bool, int, float, str]:
        job = jobs[job_id]
        return not job.workers and job_id not in planned, -job.spec.priority, job.submitted_at, job_id

    waiting: dict[tuple[object, ...], Reason] = {}
    """Why jobs of a class wait, as long as no other has taken or left anything since."""
    for job_id in sorted((job_id for job_id, job in jobs.items() if not job.is_canceling), key=turn):
        job, had, spec = jobs[job_id], planned.get(job_id, ()), jobs[job_id].spec
        alike = bool(job.workers), had, *shape(job), spec.min_replicas, spec.max_replicas, spec.requested, spec.sizes
        if job.workers or alike not in waiting:
            found = room.place(job, had)
            size = spec.size_within(len(found))
            room.leave(job, found[size:])
            if size or job.workers:
                waiting.clear()
            if size:
                yield job_id, found[:size], _reason(job, size, len(had))
                continue
            waiting[alike] = _waits(view, room.refusing(job), len(found))
        yield job_id, (), waiting[alike]


class _Room:
    """How many workers without GPUs are on each node, and what is left of its resources."""

    def __init__(self, view: ClusterState) -> None:
        self._used = {name: 0 for name, node in view.nodes.items() if node.is_open}
        self._heap = [(0, name) for name in sorted(self._used)]
        """The least used first; what it says of a node may be old."""
        self._left = {name: dict(node.room) for name, node in view.nodes.items() if node.room is not None}
        """Thousandths, of the nodes where that is known."""
        self._most: dict[str, int] = {}
        """Resource -> the most that pods of others leave of it on any node."""
        for left in self._left.values():
            self._most |= {resource: max(amount, self._most.get(resource, 0)) for resource, amount in left.items()}

    def take(self, job: Job, workers: Mapping[str, int]) -> None:
        """Use what workers of a job ask for; `workers` is node -> how many, negative ones give it back."""
        for name in workers.keys() & self._left.keys():
            left = self._left[name]
            for resource, asked in demand_of(job.spec.needs).items():
                if resource in left:
                    left[resource] -= asked * workers[name]

    def place(self, job: Job, had: tuple[str, ...]) -> tuple[str, ...]:
        """Return where the job's workers are to be, as many as there is room for."""
        size = job.spec.size_within(max(job.spec.requested, job.spec.min_replicas))
        own, aside, chosen = Counter[str](), list[tuple[int, str]](), list[str]()
        for index in range(size):
            before, planned = job.workers.get(index, ""), had[index] if index < len(had) else ""
            if before in self._used:
                found = before
            elif self._takes(job, planned, own):
                found = planned
            elif not (found := self._least_used(job, own, aside)):
                break
            own[found] += 1
            if found != before:
                self.take(job, {found: 1})
            self._used[found] += 1
            heappush(self._heap, (self._used[found], found))
            chosen.append(found)
        for entry in aside:
            heappush(self._heap, entry)
        return tuple(chosen)

    def leave(self, job: Job, nodes: tuple[str, ...]) -> None:
        """Take workers of a job away again."""
        for name in nodes:
            self.take(job, {name: -1})
            self._used[name] -= 1
            heappush(self._heap, (self._used[name], name))

    def refusing(self, job: Job) -> Job:
        """Return the job as nodes refuse it by what is left of them now."""
        asked = {resource: amount for resource, amount in demand_of(job.spec.needs).items() if amount}
        refusals, fits = dict(job.refusals), dict(job.fits)
        for name, left in self._left.items():
            known = {resource: max(0, left.get(resource, _UNBOUND if resource == PODS else 0)) for resource in asked}
            count, resource = min((known[resource] // amount, resource) for resource, amount in asked.items())
            if count < fits.get(name, 0 if name in refusals else MOST_PER_NODE):
                refusals[name] = LacksResource(
                    resource=resource, asked=asked[resource], left=known[resource], most=self._most.get(resource, 0)
                )
                fits[name] = count
        return replace(job, refusals=refusals, fits={name: count for name, count in fits.items() if count})

    def _takes(self, job: Job, name: str, own: Mapping[str, int]) -> bool:
        is_open = self._used.get(name, MOST_PER_NODE) < MOST_PER_NODE
        return is_open and not job.is_refused_by(name, own.get(name, 0) + 1) and self._has_room(job, name)

    def _has_room(self, job: Job, name: str) -> bool:
        if (left := self._left.get(name)) is None:
            return True
        known = {PODS: _UNBOUND, **left}
        return all(asked <= known.get(resource, 0) for resource, asked in demand_of(job.spec.needs).items())

    def _least_used(self, job: Job, own: Mapping[str, int], aside: list[tuple[int, str]]) -> str:
        """Return the node where fewest are, of those that take one more; empty: none. Others are put aside."""
        while self._heap:
            used, name = heappop(self._heap)
            if used != self._used[name]:
                continue
            if self._takes(job, name, own):
                return name
            aside.append((used, name))
        return ""


def _reason(job: Job, size: int, had: int) -> Reason:
    why = (NeedsNoGpu(),)
    if not had:
        return Starts(workers=size, why=why)
    return Keeps(workers=size, why=why) if size == had else Resized(had=had, workers=size, why=why)


def _waits(view: ClusterState, job: Job, room: int) -> Reason:
    refused = largest_refusal(view, job) if job.refusals else None
    return Waits(why=(LacksRoom(workers=job.spec.min_replicas, gpus=NO_GPUS, room=room, refused=refused),))

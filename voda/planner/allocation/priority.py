"""Higher priority first, whatever the policy: it serves one class of equal priority after the other.

Rules: a class gets its number of GPUs as if those below it were not there, up to its jobs' maximum; the next one gets
the GPUs that are left. On the nodes, no class has less room for those below it, unless a class above it has more.
Where all priorities are equal, nothing of this shows. See docs/adr/0018.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from voda.domain.gpus import NO_GPUS, Gpus, total
from voda.domain.job import Job
from voda.domain.plan import Allocation, FirstOf, Placement
from voda.domain.reasons.outcomes import Reason
from voda.domain.reasons.policies import HigherPriority
from voda.domain.state import ClusterState
from voda.placement import Placer
from voda.placement.order import per_node
from voda.placement.scarce import ScarceResources
from voda.planner.allocation.fair_share import allocate_fairly
from voda.planner.allocation.parts import of_part
from voda.planner.allocation.resize_cost import without_thrash
from voda.policies import Policy, weighs_restarts

_MOST_SPLITS: Final = 8
"""Of one placement: a bound on the time that a decision takes, where many priorities meet many scattered GPUs."""


def allocate(view: ClusterState, policy: Policy, now: float) -> Allocation:
    """Return the policy's answer for every ready job, less the growths that do not pay."""

    def allocate_class(of_class: ClusterState) -> Allocation:
        return allocate_fairly(of_class, policy, now, lambda part: _allocate_jobs(part, policy, now))

    if len(view.priorities) <= 1:
        return allocate_class(view)
    classes = _classes(view)
    replicas: dict[str, int] = {}
    reasons: dict[str, Reason] = {}
    served, used_gpus = 0, NO_GPUS
    while classes:
        free_gpus = view.capacity_gpus - used_gpus
        # Where nothing is left, the order of those that get nothing does not matter.
        jobs = classes.pop(0) if free_gpus else {job_id: job for jobs in classes for job_id, job in jobs.items()}
        if not free_gpus:
            classes.clear()
        answer = allocate_class(replace(view, jobs=jobs, capacity_limit_gpus=free_gpus))
        for job_id, size in answer.replicas.items():
            lost = not size or size < len(view.plan.placement.get(job_id, ()))
            reason = of_part(answer.reasons[job_id], priority=jobs[job_id].spec.priority)
            reasons[job_id] = _behind_higher(reason, served, used_gpus) if lost and served else reason
        replicas |= answer.replicas
        served += sum(map(bool, answer.replicas.values()))
        used_gpus += total(size * jobs[job_id].spec.gpus_per_replica for job_id, size in answer.replicas.items())
    return Allocation(replicas=replicas, reasons=reasons)


def place(view: ClusterState, replicas: Mapping[str, int], placer: Placer, now: float) -> Placement:
    """Return where the placer puts the jobs; jobs of lower priority give way where one of higher priority lacks room.

    All are placed together, so that no job moves without need. Only where that leaves a class short, the lowest class
    is also placed on what the others leave of the nodes, and the others by this same rule; the first class that has
    more GPUs in one of the two placements decides. So no class has less than without those below it, unless one above
    it has more.
    """

    if len(view.priorities) <= 1:
        return placer.place(view, replicas, now)
    return _place(view, replicas, lambda part, sizes: placer.place(part, sizes, now), splits=_MOST_SPLITS)


def _place(
    view: ClusterState,
    replicas: Mapping[str, int],
    place_class: Callable[[ClusterState, Mapping[str, int]], Placement],
    *,
    splits: int,
) -> dict[str, tuple[str, ...]]:
    together = dict(place_class(view, replicas))
    below = _below_short(view, replicas, together)
    if not below or not splits:
        return together
    # Where there are more classes than splits, the lowest ones are placed as one.
    highest = below[:splits][-1]
    lower = {job_id: size for job_id, size in replicas.items() if view.jobs[job_id].spec.priority <= highest}
    upper = {job_id: size for job_id, size in replicas.items() if job_id not in lower}
    apart = _place(view, upper, place_class, splits=splits - 1)
    apart |= place_class(on_the_rest(view, apart), lower)
    return max(together, apart, key=lambda placement: _class_gpus(view, replicas, placement))


def _classes(view: ClusterState) -> list[dict[str, Job]]:
    classes: dict[int, dict[str, Job]] = {priority: {} for priority in view.priorities}
    for job_id, job in view.jobs.items():
        if not job.is_canceling:
            classes[job.spec.priority][job_id] = job
    return list(classes.values())


def _allocate_jobs(view: ClusterState, policy: Policy, now: float) -> Allocation:
    answer = policy.allocate(view, now)
    if not view.settings.heeds_resize_cost or weighs_restarts(policy):
        return answer
    replicas, reasons = without_thrash(view, answer.replicas, now)
    return Allocation(replicas=replicas, reasons=FirstOf(reasons, answer.reasons)) if reasons else answer


def _behind_higher(reason: Reason, served: int, used_gpus: Gpus) -> Reason:
    """Return the reason with what jobs of higher priority have before its own causes."""
    return replace(reason, why=(HigherPriority(jobs=served, gpus=used_gpus), *reason.why))


def _below_short(view: ClusterState, replicas: Mapping[str, int], placement: Placement) -> list[int]:
    """Return the priorities, the highest first, below that of the highest class that lacks replicas."""
    wanted = {job_id: view.jobs[job_id].spec.priority for job_id, size in replicas.items() if size}
    short = [priority for job_id, priority in wanted.items() if len(placement.get(job_id, ())) < replicas[job_id]]
    highest = max(short, default=None)
    return sorted(
        {priority for priority in wanted.values() if highest is not None and priority < highest}, reverse=True
    )


def on_the_rest(view: ClusterState, placed: Placement) -> ClusterState:
    """Return the view in which nodes have what these jobs leave."""
    nodes, scarce = dict(view.nodes), ScarceResources(view.scarce)
    for job_id, workers in placed.items():
        job, counts = view.jobs[job_id], per_node(workers)
        scarce.take_all(job, counts)
        for name, count in counts.items():
            foreign = nodes[name].foreign_gpus + count * job.spec.gpus_per_replica
            nodes[name] = replace(nodes[name], foreign_gpus=foreign)
    return replace(view, nodes=nodes, scarce=scarce.left)


def _class_gpus(view: ClusterState, replicas: Mapping[str, int], placement: Placement) -> list[Gpus]:
    """Return how many GPUs each class has, the highest first."""
    gpus = dict.fromkeys(sorted({view.jobs[job_id].spec.priority for job_id in replicas}, reverse=True), NO_GPUS)
    for job_id, nodes in placement.items():
        spec = view.jobs[job_id].spec
        gpus[spec.priority] += len(nodes) * spec.gpus_per_replica
    return list(gpus.values())

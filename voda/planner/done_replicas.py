"""Leaves out of a decision the replicas that are done: they get no pod any more, and their GPUs are for others.

1. `without_done` shows a job of which some replicas are done as a rigid one of the others, by their order.
2. `with_done` gives the placement of such a job the indices of its replicas back.

Rule: pure; once a replica was done, its job keeps its size, also if it is preempted meanwhile: a smaller one would drop
replicas that are not done, and the job would count as completed without them. A replica that is done stays in the plan
where it was, or beside another one, and takes nothing there. Which replicas are done, the log knows by the causes of
their exits; on Kubernetes those follow the Job's `completedIndexes`, whatever became of the pods.
"""

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from voda.domain.groups import copied
from voda.domain.job import Job
from voda.domain.plan import Devices, Placement, Quotas
from voda.domain.state import ClusterState

T = TypeVar("T")


def without_done(view: ClusterState) -> ClusterState:
    """Return the view in which jobs consist of the replicas that are not done."""
    left = _left(view)
    if not left:
        return view
    jobs = {job_id: _renumbered(view.jobs[job_id], indices) for job_id, indices in left.items()}
    placement = copied(view.plan.placement)
    for job_id, indices in left.items():
        if nodes := placement.get(job_id):
            placement[job_id] = tuple(nodes[index] for index in indices if index < len(nodes))
    guaranteed, devices = _of_indices(view.plan.guaranteed, left), _of_indices(view.plan.devices, left)
    plan = replace(view.plan, placement=placement, guaranteed=guaranteed, devices=devices)
    return replace(view.with_jobs(jobs), plan=plan)


def with_done(
    view: ClusterState, placement: Placement, guaranteed: Quotas, devices: Devices
) -> tuple[Placement, Quotas, Devices]:
    """Return a plan with all replicas of the view's jobs; it was made for `without_done(view)`."""
    if not (left := _left(view)):
        return placement, guaranteed, devices
    whole = dict(placement)
    for job_id, indices in left.items():
        if nodes := placement.get(job_id):
            placed = dict(zip(indices, nodes, strict=False))
            before = view.plan.placement.get(job_id, ())
            before = (*before, *(nodes[:1] * (view.jobs[job_id].done_of - len(before))))
            whole[job_id] = tuple(
                placed.get(index, node if node in view.nodes else nodes[0]) for index, node in enumerate(before)
            )
    return whole, _cells_with_done(left, guaranteed, ""), _cells_with_done(left, devices, ())


def _cells_with_done(
    left: Mapping[str, tuple[int, ...]], cells: Mapping[str, tuple[T, ...]], blank: T
) -> Mapping[str, tuple[T, ...]]:
    """Return what is noted of the cells of each worker, with a blank for replicas that are done."""
    whole = dict(cells)
    for job_id, indices in left.items():
        if of_job := cells.get(job_id):
            placed = dict(zip(indices, of_job, strict=False))
            whole[job_id] = tuple(placed.get(index, blank) for index in range(max(placed) + 1))
    return whole


def _left(view: ClusterState) -> Mapping[str, tuple[int, ...]]:
    """Return job -> its replicas that are not done, of jobs of which some were done and not all are."""
    found: dict[str, tuple[int, ...]] = {}
    for job_id, job in [(job_id, job) for job_id, job in view.special_jobs.items() if job.done_of]:
        # A plan may have shrunk it before the log had that a replica beyond was done.
        size = max(len(view.plan.placement.get(job_id, ())), job.done_of)
        if left := tuple(index for index in range(size) if index not in job.done):
            found[job_id] = left
    return found


def _of_indices(cells: Mapping[str, tuple[T, ...]], left: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[T, ...]]:
    """Return what is noted of the cells of the workers that are left, of jobs of which some are done."""
    whole = {job_id: of_job for job_id in left if (of_job := cells.get(job_id))}
    some = {job_id: tuple(of_job[i] for i in left[job_id] if i < len(of_job)) for job_id, of_job in whole.items()}
    return {**cells, **some} if some else cells


def _renumbered(job: Job, indices: tuple[int, ...]) -> Job:
    # Workers beyond the planned ones, which are about to go, come after them.
    order = {index: place for place, index in enumerate([*indices, *sorted(job.workers.keys() - {*indices})])}
    workers = {order[index]: node for index, node in job.workers.items()}
    size = len(indices)
    spec = replace(job.spec, min_replicas=size, max_replicas=size, requested_replicas=size, sizes=None)
    return replace(job, spec=spec, workers=workers)

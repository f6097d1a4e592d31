"""Room for launchers that ask for GPUs: the workers of their jobs would take all GPUs.

1. A job whose launcher lacks GPUs is shown with one worker more; the last of the places that it gets is the launcher's,
   and stays it as long as the job keeps that place. No launcher starts on a closed node.
2. Once it is bound, its GPUs are others' of its node, and the job is as any other.
3. They count as free again where the plan has no workers for the job, or takes them away.

Rule: pure; a launcher asks for no more GPUs than a worker.
"""

from collections.abc import Mapping, Set

from msgspec.structs import replace

from voda.domain.gpus import NO_GPUS
from voda.domain.job import Job
from voda.domain.reasons.nodes import ForLauncher
from voda.domain.reasons.outcomes import Keeps, Reason, Resized, Runs, Starts, Waits, also
from voda.domain.state import ClusterState


def with_launchers(
    view: ClusterState, jobs: Mapping[str, Job], leaving: Set[str]
) -> tuple[ClusterState, Set[str], Mapping[str, str]]:
    """Return the view with room for launchers, the jobs that it shows with one worker more, and those that need none,
    as their launchers are at work, with the nodes of these.

    `jobs` are all of the pool, of which the view may lack some; launchers of those that are `leaving` are to go.
    """
    at = {
        job_id: node.name for node in view.node_groups.special.values() for job_id in node.launchers if job_id in jobs
    }
    going = {job_id: name for job_id, name in at.items() if job_id in leaving or job_id not in view.plan.placement}
    having = {job_id: name for job_id, name in at.items() if job_id not in going}
    asking = {job_id for job_id, job in view.special_jobs.items() if job.spec.launcher_gpus and not job.is_canceling}
    lacking = asking - having.keys()
    if going:
        view = _without_gpus_of(view, jobs, going)
    return (_with_places(view, lacking, going) if lacking else view), lacking, having


def reason_of_size(reason: Reason, had: int, size: int) -> Reason:
    """Return the reason of a job that has so many workers, and had so many, beside the place of its launcher."""
    match reason:
        case Waits():
            return also(reason, ForLauncher())
        case Runs():
            return replace(reason, workers=size)
        case Starts() | Resized() | Keeps() if size == had:
            return Keeps(workers=size, why=reason.why)
        case Starts() | Resized() | Keeps() if had:
            return Resized(had=had, workers=size, why=reason.why)
        case Starts() | Resized() | Keeps():
            return Starts(workers=size, why=reason.why)
        case _:
            return reason


def _without_gpus_of(view: ClusterState, jobs: Mapping[str, Job], going: Mapping[str, str]) -> ClusterState:
    """Return the view in which launchers of these jobs, job -> node, have left their GPUs."""
    nodes = dict(view.nodes)
    for job_id, name in going.items():
        foreign = nodes[name].foreign_gpus - jobs[job_id].spec.launcher_gpus
        nodes[name] = replace(nodes[name], foreign_gpus=max(NO_GPUS, foreign))
    return replace(view, nodes=nodes)


def _with_places(view: ClusterState, lacking: Set[str], going: Mapping[str, str]) -> ClusterState:
    """Return the view in which these jobs have one worker more, which trains nothing.

    Such a job has had that place before where its launcher is `going` from it, or the plan in force leaves room for it;
    else a worker gives its own.
    """
    jobs, placement, estimates = dict(view.jobs), dict(view.plan.placement), dict(view.estimates)
    free = {name: node.usable_gpus for name, node in view.nodes.items() if name not in view.closed_nodes}
    for job_id, nodes in placement.items():
        for node in nodes if job_id in jobs else ():
            if node in free:
                free[node] -= jobs[job_id].spec.gpus_per_replica
    for job_id in sorted(lacking):
        spec = jobs[job_id].spec
        more = replace(
            spec,
            min_replicas=spec.min_replicas + 1,
            max_replicas=spec.max_replicas + 1,
            requested_replicas=spec.requested + 1,
            sizes=None if spec.sizes is None else spec.sizes.beyond(-1),
        )
        jobs[job_id] = replace(jobs[job_id], spec=more)
        if (known := estimates.get(job_id)) is not None:
            estimates[job_id] = replace(known, speedup=(0.0, *known.speedup))
        home = going.get(job_id) or view.plan.launchers.get(job_id, "")
        if free.get(home, NO_GPUS) < spec.gpus_per_replica:
            home = max(free, key=lambda name: (free[name], name), default="")
        # Cells are noted of each worker that is planned.
        if job_id in placement and free.get(home, NO_GPUS) >= spec.gpus_per_replica and view.cells is None:
            placement[job_id] = (*placement[job_id], home)
            free[home] -= spec.gpus_per_replica
    return replace(view, jobs=jobs, estimates=estimates, plan=replace(view.plan, placement=placement))

"""Starts jobs on GPUs that are free between two decisions, beside all that is planned. Pure."""

from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from voda.domain.gpus import total
from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.events.decisions import PlanAdopted
from voda.planner.eligibility import held_jobs
from voda.planner.feasibility import with_caps, without_jobs
from voda.planner.fixed_jobs import leaving_out
from voda.planner.plan_changes import changes
from voda.planner.registries import Registries


def start_on_free(state: ClusterState, registries: Registries, now: float, *, cause: str) -> PlanAdopted | None:
    """Return the fact that starts jobs on GPUs that are free, with as many workers as they request at the most.

    What is planned stays as it is. None where no job can start so, cells decide, or a launcher is still to get GPUs;
    jobs that share a GPU wait for the next decision about all.
    """
    if state.cells is not None:
        return None
    in_force, held = state.plan.placement, held_jobs(state, now)
    planned = {job_id: job for job_id, job in state.jobs.items() if job_id in in_force}
    if not _still_fits(state, planned):
        # A user or a node has changed what is planned: the next decision is about all.
        return None
    with_launcher = {job_id for node in state.nodes.values() for job_id in node.launchers}
    if any(job.spec.launcher_gpus and job_id not in with_launcher for job_id, job in planned.items()):
        return None
    waiting = {
        job_id: job.spec
        for job_id, job in state.jobs.items()
        if not (job_id in planned or job_id in held or job.is_canceling or job.spec.share)
    }
    free = state.capacity_gpus - total(len(in_force[name]) * job.spec.gpus_per_replica for name, job in planned.items())
    if not any(spec.min_replicas * spec.gpus_per_replica <= free for spec in waiting.values()):
        return None
    left = leaving_out(state, planned)
    view = with_caps(
        without_jobs(left, left.jobs.keys() - waiting.keys()),
        {job_id: spec.requested for job_id, spec in waiting.items()},
    )
    plan = registries.decider(state, cause=cause)(view, registries.policy(state.settings, state.plan), now)
    if not plan.placement:
        return None
    whole = replace(
        plan,
        placement={**{job_id: in_force[job_id] for job_id in planned}, **plan.placement},
        devices={**state.plan.devices, **plan.devices},
        launchers={**{name: at for name, at in state.plan.launchers.items() if name in planned}, **plan.launchers},
    )
    fact = changes(state.plan, whole, frozenset())
    return replace(fact, only_starts=True) if fact is not None else None


def _still_fits(state: ClusterState, planned: Mapping[str, Job]) -> bool:
    """Return whether nodes still have the GPUs of the plan in force, and take those who are not at work there yet; and
    whether its jobs still run at their sizes in it.
    """
    used = Counter[str]()
    for job_id, job in planned.items():
        spec, at = job.spec, state.plan.placement[job_id]
        if spec.size_within(len(at)) != len(at):
            return False
        newcomers = (state.nodes.get(name) for index, name in enumerate(at) if job.workers.get(index) != name)
        if not all(node and node.is_open for node in newcomers):
            return False
        for node in at if not spec.share else ():
            used[node] += spec.gpus_per_replica
        if spec.launcher_gpus:
            used[state.plan.launchers.get(job_id, at[0])] += spec.launcher_gpus
    nodes = {name: state.nodes.get(name) for name in used}
    return all(node and not node.is_draining and used[name] <= node.own_gpus for name, node in nodes.items())

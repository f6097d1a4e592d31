"""Where a decision gets its deciders from: policies and placers by name, and the wings.

Rule: here alone the planner meets its wings.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Set

from msgspec import Struct, field
from msgspec.structs import replace

from voda.domain.gpus import total
from voda.domain.job import Job
from voda.domain.plan import Plan
from voda.domain.plugins import first_known
from voda.domain.settings import Settings
from voda.domain.state import ClusterState
from voda.events.decisions import PlanAdopted
from voda.placement import PLACERS, Placer
from voda.planner.candidates import candidates_of
from voda.planner.decide import changes, decide
from voda.planner.eligibility import held_jobs
from voda.planner.feasibility import feasible_view, with_caps, without_jobs
from voda.planner.fit.node_rules import KubernetesRules
from voda.planner.fixed_jobs import leaving_out
from voda.planner.sharing import SpareGpus, share_gpus
from voda.planner.virtual_clusters import CellPlanner
from voda.planner.wings import CellDecider, FitRules, Wings
from voda.policies import POLICIES, Policy, gives_as_requested

Decide = Callable[[ClusterState, Policy, float], Plan]
"""State, policy and time (seconds since the epoch) -> the plan that would follow the one in force."""


def all_wings(in_cells: CellDecider | None = None, nodes: FitRules | None = None) -> Wings:
    """Return the wings that every decision has, what decides in cells, and what nodes take, as known before."""
    return Wings(in_cells=in_cells, share_gpus=share_gpus, nodes=nodes or KubernetesRules())


class Registries(Struct, frozen=True, kw_only=True):
    """Where the policies and placers that a log names come from; both raise InvalidInput for an unknown name.

    Beside them is what is kept from one decision to the next.
    """

    policies: Callable[[str], Policy] = POLICIES.choose
    placers: Callable[[str], Placer] = PLACERS.choose
    in_cells: CellDecider = field(default_factory=CellPlanner)
    nodes: FitRules = field(default_factory=KubernetesRules)

    def policy(self, settings: Settings, plan: Plan) -> Policy:
        """Return the policy that is set, or that of the plan in force where this version lacks it."""
        return first_known(self.policies, settings.policy, plan.policy)

    def placer(self, settings: Settings, plan: Plan) -> Placer:
        return first_known(self.placers, settings.placer, plan.placer)

    def decider(self, state: ClusterState, *, cause: str) -> Decide:
        """Return what decides on a pool by its placer, whichever policy it is given."""
        placer = self.placer(state.settings, state.plan)
        wings = all_wings(self.in_cells, self.nodes)
        return lambda view, policy, now: decide(view, policy, placer, now, cause=cause, wings=wings)


def redecide(
    state: ClusterState, undecided: Set[str], registries: Registries, now: float, *, cause: str
) -> PlanAdopted | None:
    """Return the fact that records a decision on a pool's state; None where nothing changes.

    `undecided` are the live jobs that no plan has considered yet; the rest is as for `decide`.
    """
    plan = registries.decider(state, cause=cause)(state, registries.policy(state.settings, state.plan), now)
    return changes(state.plan, plan, undecided)


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
    """Return whether nodes still have the GPUs of the plan in force, and its jobs still run at their sizes in it."""
    used = Counter[str]()
    for job_id, job in planned.items():
        spec, at = job.spec, state.plan.placement[job_id]
        if spec.size_within(len(at)) != len(at):
            return False
        for node in at if not spec.share else ():
            used[node] += spec.gpus_per_replica
        if spec.launcher_gpus:
            used[state.plan.launchers.get(job_id, at[0])] += spec.launcher_gpus
    nodes = {name: state.nodes.get(name) for name in used}
    return all(node and not node.is_draining and used[name] <= node.own_gpus for name, node in nodes.items())


def spare_for_pods(
    view: ClusterState, now: float, policies: Callable[[str], Policy] = POLICIES.choose
) -> SpareGpus | None:
    """Return what jobs of a pool without virtual clusters can spare for pods, as a decision now would see it; None: its
    policy lets no job shrink.
    """
    if gives_as_requested(first_known(policies, view.settings.policy, view.plan.policy)):
        return None
    possible, _ = feasible_view(candidates_of(view, now, fitted=all_wings().nodes.shown).view)
    return SpareGpus(possible)

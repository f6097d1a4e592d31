"""Where a decision gets its deciders from: policies and placers by name, and the wings.

Rule: here alone the planner meets its wings.
"""

from collections.abc import Callable, Set

from msgspec import Struct, field

from voda.domain.plan import Plan
from voda.domain.plugins import first_known
from voda.domain.settings import Settings
from voda.domain.state import ClusterState
from voda.events.decisions import PlanAdopted
from voda.placement import PLACERS, Placer
from voda.planner.candidates import candidates_of
from voda.planner.decide import decide
from voda.planner.feasibility import feasible_view
from voda.planner.fit.node_rules import KubernetesRules
from voda.planner.place_reasons import with_places
from voda.planner.plan_changes import changes
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

        def decided(view: ClusterState, policy: Policy, now: float) -> Plan:
            plan = decide(view, policy, placer, now, cause=cause, wings=wings)
            return with_places(view, plan, placer, now)

        return decided


def redecide(
    state: ClusterState, undecided: Set[str], registries: Registries, now: float, *, cause: str
) -> PlanAdopted | None:
    """Return the fact that records a decision on a pool's state; None where nothing changes.

    `undecided` are the live jobs that no plan has considered yet; the rest is as for `decide`.
    """
    plan = registries.decider(state, cause=cause)(state, registries.policy(state.settings, state.plan), now)
    return changes(state.plan, plan, undecided)


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

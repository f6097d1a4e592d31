"""Where a decision gets its deciders from: policies and placers by name, and cells where a pool has virtual clusters.

Rule: here alone the planner meets its wing of virtual clusters.
"""

from collections.abc import Callable, Set

from msgspec import Struct, field

from voda.domain.plan import Plan
from voda.domain.plugins import first_known
from voda.domain.settings import Settings
from voda.domain.state import ClusterState
from voda.events.decisions import PlanAdopted
from voda.placement import PLACERS, Placer
from voda.planner.candidates import CellDecider
from voda.planner.decide import changes, decide
from voda.planner.virtual_clusters import CellPlanner
from voda.policies import POLICIES, Policy

Decide = Callable[[ClusterState, Policy, float], Plan]
"""State, policy and time (seconds since the epoch) -> the plan that would follow the one in force."""


class Registries(Struct, frozen=True, kw_only=True):
    """Where the policies and placers that a log names come from; both raise InvalidInput for an unknown name."""

    policies: Callable[[str], Policy] = POLICIES.choose
    placers: Callable[[str], Placer] = PLACERS.choose
    in_cells: CellDecider = field(default_factory=CellPlanner)

    def policy(self, settings: Settings, plan: Plan) -> Policy:
        """Return the policy that is set, or that of the plan in force where this version lacks it."""
        return first_known(self.policies, settings.policy, plan.policy)

    def placer(self, settings: Settings, plan: Plan) -> Placer:
        return first_known(self.placers, settings.placer, plan.placer)

    def decider(self, state: ClusterState, *, cause: str) -> Decide:
        """Return what decides on a pool by its placer, whichever policy it is given."""
        placer = self.placer(state.settings, state.plan)
        return lambda view, policy, now: decide(view, policy, placer, now, cause=cause, in_cells=self.in_cells)


def redecide(
    state: ClusterState, undecided: Set[str], registries: Registries, now: float, *, cause: str
) -> PlanAdopted | None:
    """Return the fact that records a decision on a pool's state; None where nothing changes.

    `undecided` are the live jobs that no plan has considered yet; the rest is as for `decide`.
    """
    plan = registries.decider(state, cause=cause)(state, registries.policy(state.settings, state.plan), now)
    return changes(state.plan, plan, undecided)

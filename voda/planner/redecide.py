"""Makes the decision that a state calls for, and the fact that records it.

Rule: the controller and `voda replay --verify` call the same function, so a recorded decision can be confirmed.
"""

from collections.abc import Callable, Set

from msgspec import Struct

from voda.domain.plan import Plan
from voda.domain.plugins import first_known
from voda.domain.state import ClusterState, Settings
from voda.events.types import PlanAdopted
from voda.placement import PLACERS, Placer
from voda.planner.decide import decide
from voda.policies import POLICIES, Policy


class Registries(Struct, frozen=True, kw_only=True):
    """Where the policies and placers that a log names come from; both raise InvalidInput for an unknown name."""

    policies: Callable[[str], Policy] = POLICIES.choose
    placers: Callable[[str], Placer] = PLACERS.choose

    def policy(self, settings: Settings, plan: Plan) -> Policy:
        """Return the policy that is set, or that of the plan in force where this version lacks it."""
        return first_known(self.policies, settings.policy, plan.policy)

    def placer(self, settings: Settings, plan: Plan) -> Placer:
        """Return the placer that is set, or that of the plan in force where this version lacks it."""
        return first_known(self.placers, settings.placer, plan.placer)


DEFAULT = Registries()


def redecide(
    state: ClusterState, undecided: Set[str], registries: Registries, now: float, *, cause: str
) -> PlanAdopted | None:
    """Return the fact that a decision about this state is recorded by; None where nothing changes.

    Args:
        state: of one pool.
        undecided: live jobs that no plan has considered yet.
        registries: of the policies and placers that the state's settings name.
        now: seconds since the epoch.
        cause: type of the event that made the decision due, or `tick`.
    """
    policy = registries.policy(state.settings, state.plan)
    placer = registries.placer(state.settings, state.plan)
    return changes(state.plan, decide(state, policy, placer, now, cause=cause), undecided)


def changes(old: Plan, new: Plan, undecided: Set[str]) -> PlanAdopted | None:
    """Return the fact that turns `old` into `new`; None when there is nothing to record.

    Args:
        old: the plan in force.
        new: the plan decided.
        undecided: live jobs that no plan has considered yet; those `new` gives a reason for are recorded.
    """
    before = old.placement
    placed = {job_id: nodes for job_id, nodes in sorted(new.placement.items()) if before.get(job_id) != nodes}
    released = tuple(sorted(job_id for job_id in before if job_id not in new.placement))
    explained = sorted(job_id for job_id in {*placed, *released, *undecided} if job_id in new.reasons)
    if not (placed or released or explained):
        return None
    return PlanAdopted(
        pool=new.pool,
        number=new.number,
        based_on=new.based_on,
        policy=new.policy,
        placer=new.placer,
        cause=new.cause,
        placed=placed,
        released=released,
        reasons={job_id: new.reasons[job_id] for job_id in explained},
    )

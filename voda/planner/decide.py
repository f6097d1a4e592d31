"""Decides on one plan: which jobs get how many replicas, on which nodes, and why; and makes the fact that records it.

Rules: pure, the controller and `voda replay --verify` call the same functions; no policy sees a job that is held; no
GPUs are kept for a job that the nodes cannot hold now: the policy is asked again without it.
"""

from collections.abc import Callable, Set
from typing import Final

from msgspec import Struct

from voda.domain.plan import Plan
from voda.domain.plugins import first_known
from voda.domain.state import ClusterState, Settings
from voda.events.types import PlanAdopted
from voda.placement import PLACERS, Placer
from voda.planner.eligibility import eligible_view
from voda.planner.feasibility import feasible_view, shortfall, with_caps, without_jobs
from voda.planner.node_states import with_closed_nodes
from voda.planner.priority import allocate, place
from voda.policies import POLICIES, Policy

_MOST_ATTEMPTS: Final = 4
"""Each one leaves out jobs of another shape, and shapes are few: a bound on the time that a decision takes."""


def decide(view: ClusterState, policy: Policy, placer: Placer, now: float, *, cause: str) -> Plan:
    """Return the plan that follows the one in force, with one reason for every ready job.

    `cause` is the type of the event that made the decision due, or `tick`; `now` is in seconds since the epoch.
    """
    # 1. Leave out the jobs that are held, and those that the nodes could not hold even if they were empty.
    #    Nodes that are cordoned or silent have room for the workers that are there.
    eligible, held = eligible_view(view)
    eligible = with_closed_nodes(eligible, now)
    candidates, left_out = feasible_view(eligible)
    caps: dict[str, tuple[int, str]] = {}
    for attempts_left in reversed(range(_MOST_ATTEMPTS)):
        # 2. The policy says how many replicas each job gets, jobs of higher priority first.
        allocation = allocate(candidates, policy, now)
        # 3. The placer says on which nodes.
        placement = place(candidates, allocation.replicas, placer, now)
        # 4. Jobs that found no room are left out, or capped at what they found, and the policy is asked again: it
        #    counts GPUs, not nodes, and would keep some for them.
        short = shortfall(candidates, allocation.replicas, placement)
        if not attempts_left or not (short.left_out or short.caps):
            break
        left_out |= short.left_out
        caps |= short.caps
        candidates = with_caps(without_jobs(candidates, short.left_out.keys()), short.caps)
    # 5. Every job gets one reason: the policy's, unless the nodes or a cap had the last word.
    at_cap = {job_id: why for job_id, (size, why) in caps.items() if len(placement.get(job_id, ())) == size}
    return Plan(
        pool=view.pool,
        number=view.plan.number + 1,
        based_on=view.position,
        policy=policy.name,
        placer=placer.name,
        decided_at=now,
        cause=cause,
        placement=placement,
        reasons={**allocation.reasons, **short.reasons, **at_cap, **left_out, **held},
    )


class Registries(Struct, frozen=True, kw_only=True):
    """Where the policies and placers that a log names come from; both raise InvalidInput for an unknown name."""

    policies: Callable[[str], Policy] = POLICIES.choose
    placers: Callable[[str], Placer] = PLACERS.choose

    def policy(self, settings: Settings, plan: Plan) -> Policy:
        """Return the policy that is set, or that of the plan in force where this version lacks it."""
        return first_known(self.policies, settings.policy, plan.policy)

    def placer(self, settings: Settings, plan: Plan) -> Placer:
        return first_known(self.placers, settings.placer, plan.placer)


DEFAULT = Registries()


def redecide(
    state: ClusterState, undecided: Set[str], registries: Registries, now: float, *, cause: str
) -> PlanAdopted | None:
    """Return the fact that records a decision on a pool's state; None where nothing changes.

    `undecided` are the live jobs that no plan has considered yet; the rest is as for `decide`.
    """
    policy = registries.policy(state.settings, state.plan)
    placer = registries.placer(state.settings, state.plan)
    return changes(state.plan, decide(state, policy, placer, now, cause=cause), undecided)


def changes(old: Plan, new: Plan, undecided: Set[str]) -> PlanAdopted | None:
    """Return the fact that turns `old` into `new`; None when there is nothing to record.

    It has the reasons that `new` gives for jobs that are placed, released or `undecided`.
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

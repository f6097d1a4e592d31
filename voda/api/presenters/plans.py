"""Plans as the API shows them."""

from collections.abc import Sequence

from voda.api.presenters.timestamps import instant
from voda.api.schemas.pools import PlanView
from voda.domain.plan import Plan


def plan_of(plan: Plan, *, position: int, changed: Sequence[str] = ()) -> PlanView:
    """Return a plan.

    Args:
        plan: whole.
        position: of the event that adopted it; 0 = none did yet.
        changed: jobs that it placed otherwise than the plan before.
    """
    return PlanView(
        pool=plan.pool,
        number=plan.number,
        position=position,
        based_on=plan.based_on,
        policy=plan.policy,
        placer=plan.placer,
        cause=plan.cause,
        decided_at=instant(plan.decided_at) if plan.number else None,
        placement=plan.placement,
        reasons=plan.reasons,
        changed=tuple(changed),
    )

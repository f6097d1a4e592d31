"""Applies an adopted plan's differences to the plan before it.

Rule: the fact has differences only; a whole plan is made from it here alone.
"""

from voda.domain.plan import Plan
from voda.events.types import PlanAdopted


def adopted(old: Plan, fact: PlanAdopted, decided_at: float) -> Plan:
    """Return the plan in force once `fact` is recorded; the inverse of `voda.planner.decide.changes`.

    Costs two shallow copies of mappings that are as long as the pool has live jobs.

    Args:
        old: the plan in force before.
        fact: the difference.
        decided_at: the event's `recorded_at`, seconds since the epoch.
    """
    placement = dict(old.placement)
    reasons = dict(old.reasons)
    fold(fact, placement, reasons)
    return Plan(
        pool=fact.pool,
        number=fact.number,
        based_on=fact.based_on,
        policy=fact.policy,
        placer=fact.placer,
        decided_at=decided_at,
        cause=fact.cause,
        placement=placement,
        reasons=reasons,
    )


def fold(fact: PlanAdopted, placement: dict[str, tuple[str, ...]], reasons: dict[str, str]) -> None:
    """Change a plan's placement and reasons in place; for callers that fold many plans and need only the last."""
    for job_id in fact.released:
        placement.pop(job_id, None)
        # Released without a reason: the job has ended, and needs none.
        reasons.pop(job_id, None)
    placement.update(fact.placed)
    reasons.update(fact.reasons)

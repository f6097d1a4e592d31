"""How a plan and the fact that changes it fit together.

Rule: a fact holds differences only; this fold is the one way to turn it back into a whole plan.
"""

from voda.domain.plan import Plan
from voda.events.types import PlanAdopted


def adopted(old: Plan, fact: PlanAdopted, decided_at: float) -> Plan:
    """Return the plan in force once `fact` is recorded; the inverse of `voda.planner.redecide.changes`.

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
    """Change a plan's placement and reasons in place; for those who fold many plans and want the last one only."""
    for job_id in fact.released:
        placement.pop(job_id, None)
        # Released without a word means that the job has ended: nobody will ask any more.
        reasons.pop(job_id, None)
    placement.update(fact.placed)
    reasons.update(fact.reasons)

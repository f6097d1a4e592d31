"""Why a plan moves workers, or lets a job span nodes: what that costs and saves, by the figures of `PlacementCosts`.

Rule: told of jobs whose nodes a plan changes, where the placer weighs its moves by these figures, and not cells decide.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from voda.changed_keys import other_keys
from voda.domain.plan import Placement, Plan
from voda.domain.reasons.outcomes import Reason, also
from voda.domain.reasons.places import Moved, PlaceCause, Spans
from voda.domain.state import ClusterState
from voda.placement import Placer, weighs_moves
from voda.placement.costs import PlacementCosts


def with_places(view: ClusterState, plan: Plan, placer: Placer, now: float) -> Plan:
    """Return a plan for the state, whose reasons also say why workers move or span nodes."""
    if not weighs_moves(placer) or view.cells is not None:
        return plan
    before, after = view.plan.placement, plan.placement
    changed = [job_id for job_id in other_keys(before, after) if after[job_id] != before.get(job_id)]
    changed = [job_id for job_id in changed if view.jobs[job_id].spec.gpus_per_replica and job_id in plan.reasons]
    if not changed:
        return plan
    costs = PlacementCosts(view, {job_id: len(nodes) for job_id, nodes in after.items()}, now)
    reasons: dict[str, Reason] = {}
    for job_id in changed:
        causes = [*_moved(view, costs, after, changed, job_id), *_spans(view, costs, after[job_id], job_id)]
        if causes:
            reasons[job_id] = also(plan.reasons[job_id], *causes)
    return replace(plan, reasons={**plan.reasons, **reasons}) if reasons else plan


def _moved(
    view: ClusterState, costs: PlacementCosts, after: Placement, changed: Sequence[str], job_id: str
) -> Sequence[PlaceCause]:
    nodes, had = after[job_id], costs.at_work(job_id)
    cost_s = costs.moving_s(job_id, nodes)
    if not costs.is_settled(job_id) or nodes == had or not all(map(view.nodes.__contains__, had)):
        return ()
    if len(set(nodes)) == 1 < len(set(had)):
        return (Moved(cost_s=round(cost_s), saved_s=round(costs.spanning_s(job_id))),)
    left = set(had) - set(nodes)
    came = [
        other
        for other in changed
        if other != job_id and not left.isdisjoint(after[other]) and after[other] != costs.at_work(other)
    ]
    room_for = min(came, key=lambda other: (-costs.spanning_s(other), other), default="")
    return (Moved(cost_s=round(cost_s), room_for=room_for),)


def _spans(view: ClusterState, costs: PlacementCosts, nodes: Sequence[str], job_id: str) -> Sequence[PlaceCause]:
    if (distinct := len(set(nodes))) < 2:
        return ()
    gpus = len(nodes) * view.jobs[job_id].spec.gpus_per_replica
    fits = any(node.usable_gpus >= gpus for node in view.nodes.values())
    if not fits:
        return (Spans(nodes=distinct, fits=False),)
    return (Spans(nodes=distinct, cost_s=round(costs.spanning_s(job_id)), move_s=round(costs.restart_s(job_id))),)

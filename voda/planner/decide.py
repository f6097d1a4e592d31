"""Decides on one plan: which jobs get how many replicas, on which nodes, and why.

Rules: pure, the controller and `voda replay --verify` call the same functions; no policy sees a job that is held; no
GPUs are kept for a job that the nodes cannot hold now: the policy is asked again without it.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, TypeVar

from voda.domain.groups import copied
from voda.domain.plan import FirstOf, Placement, Plan
from voda.domain.reasons.holds import BegunOnce
from voda.domain.reasons.nodes import Drained
from voda.domain.reasons.outcomes import Keeps, Reason, Waits, also
from voda.domain.state import ClusterState
from voda.placement import Placer
from voda.planner.allocation.binding import BindingReasons
from voda.planner.allocation.priority import allocate, place
from voda.planner.candidates import Candidates, Placed, candidates_of, without_launchers
from voda.planner.displacement import displaced_in_vain, left_for, without_more
from voda.planner.done_replicas import with_done
from voda.planner.feasibility import capped_at, feasible_view, shortfall, with_caps, without_jobs
from voda.planner.gpuless.workers import place_without_gpus
from voda.planner.node_states import with_sick_moved
from voda.planner.wings import NO_WINGS, FitRules, Wings
from voda.policies import Policy

T = TypeVar("T")
_MOST_ATTEMPTS: Final = 4
"""Each one leaves out jobs of another shape, and shapes are few: a bound on the time that a decision takes."""
_MOST_MORE: Final = 4
"""Attempts more where jobs are bound to some nodes."""
_MOST_NAMED: Final = 3
_NOTHING: Final[Mapping[str, int]] = {}


def decide(  # noqa: PLR0913 - who decides, and on what
    view: ClusterState, policy: Policy, placer: Placer, now: float, *, cause: str, wings: Wings = NO_WINGS
) -> Plan:
    """Return the plan that follows the one in force, with one reason for every ready job.

    Args:
        cause: the type of the event that made the decision due, or `tick`.
        now: in seconds since the epoch.
        wings: what the pool has of virtual clusters, shared GPUs, and nodes that do not take every job.
    """

    # 1. Leave out the jobs that are held. Jobs that are stuck come last for a while.
    # 2. Policies say how many replicas each job gets, and the placer where; in a pool with virtual clusters, cells do.
    def placed_of(candidates: Candidates) -> Placed:
        if view.cells is None:
            return _place_bounded(candidates.view, policy, placer, now, wings.nodes)
        assert wings.in_cells is not None, f"pool {view.pool} has virtual clusters, and nothing decides on cells"
        return wings.in_cells(candidates, policy, now)

    def on(candidates: Candidates) -> Placed:
        return without_launchers(view, candidates, wings.share_gpus(candidates, policy, placed_of))

    candidates, placed = _decided(view, now, wings.nodes, on)
    placement, more = copied(placed.placement), dict[str, Reason]()
    for job_id, nodes, reason in place_without_gpus(candidates.view, candidates.without_gpus, placed.placement):
        placement |= {job_id: nodes} if nodes else {}
        more[job_id] = reason
    # 3. Every job gets one reason.
    reasons = FirstOf(more, placed.reasons)
    more |= {
        job_id: also(reasons[job_id] if job_id in placement or job_id in placed.left_out else Waits(), why)
        for job_id, why in candidates.stuck.items()
    }
    whole, guaranteed, devices = with_done(view, placement, placed.guaranteed, placed.devices)
    fixed = candidates.fixed.keys()
    kept = {job_id: view.plan.placement[job_id] for job_id in fixed if job_id in view.plan.placement}
    return Plan(
        pool=view.pool,
        number=view.plan.number + 1,
        based_on=view.position,
        policy=policy.name,
        placer=placer.name,
        decided_at=now,
        cause=cause,
        placement=with_sick_moved(view, {**whole, **kept} if kept else whole, now),
        guaranteed=_beside(guaranteed, view.plan.guaranteed, fixed),
        devices=_beside(devices, view.plan.devices, fixed),
        launchers={**placed.launchers, **{name: at for name, at in view.plan.launchers.items() if name in fixed}},
        reasons=FirstOf(
            candidates.held,
            {job_id: Keeps(workers=len(nodes), why=(BegunOnce(),)) for job_id, nodes in kept.items()},
            BindingReasons(view, _with_drains(reasons, placement, sorted(view.drains)), whole),
        ),
    )


def _beside(cells: Mapping[str, T], in_force: Mapping[str, T], fixed: Set[str]) -> Mapping[str, T]:
    """Return what is noted of cells, with what is in force of jobs that keep their workers."""
    kept = {job_id: in_force[job_id] for job_id in fixed if job_id in in_force}
    return {**cells, **kept} if kept else cells


def _decided(
    view: ClusterState, now: float, nodes: FitRules, on: Callable[[Candidates], Placed]
) -> tuple[Candidates, Placed]:
    """Return the candidates and what is decided on them, where others leave for some of them."""

    def leaving(launchers: Set[str], workers: Set[str] = frozenset()) -> Candidates:
        return candidates_of(view, now, fitted=nodes.shown, leaving=launchers, yielding=workers)

    preempted: Set[str] = frozenset()
    candidates = leaving(preempted)
    placed = on(candidates)
    if candidates.launchers and candidates.view.jobs.keys() - placed.placement.keys():
        # A job that waits may get the GPUs of the launcher of one that would be preempted for it.
        other = on(leaving(candidates.launchers.keys()))
        if preempted := candidates.launchers.keys() - other.placement.keys():
            candidates = leaving(preempted)
            placed = on(candidates)
    return nodes.outranked(candidates, placed, lambda workers: leaving(preempted, workers), on)


def _place_bounded(view: ClusterState, policy: Policy, placer: Placer, now: float, nodes: FitRules) -> Placed:
    """Return what the policy and the placer say, where jobs that were refused in vain get what all others leave."""
    vain = displaced_in_vain(view)
    if not vain:
        return _place_on_nodes(view, policy, placer, now, nodes)
    first = _place_on_nodes(without_more(view, vain.keys()), policy, placer, now, nodes)
    then = _place_on_nodes(left_for(vain.keys(), view, first.placement), policy, placer, now, nodes)
    return Placed(
        placement={**first.placement, **then.placement},
        reasons={**first.reasons, **{job_id: also(then.reasons[job_id], why) for job_id, why in vain.items()}},
        left_out={**first.left_out, **then.left_out},
    )


def _place_on_nodes(view: ClusterState, policy: Policy, placer: Placer, now: float, nodes: FitRules) -> Placed:
    """Return what the policy and the placer say."""
    feasible, impossible = feasible_view(view)
    left_out = dict(impossible)
    caps: dict[str, tuple[int, Reason]] = {}
    placer = nodes.placer(placer, policy)
    bounds = nodes.bounds(feasible, policy, placer, now)
    view, wanted = feasible, _NOTHING
    for attempts_left in reversed(range(_MOST_ATTEMPTS + (_MOST_MORE if bounds else 0))):
        # 1. The policy says how many replicas each job gets, jobs of higher priority first.
        allocation = allocate(view, policy, now)
        # 2. The placer says on which nodes.
        placement = place(view, allocation.replicas, placer, now)
        # 3. Jobs that found no room are left out, or capped at what they found, and the policy is asked again: it
        #    counts GPUs, not nodes, and would keep some for them.
        short = shortfall(view, allocation.replicas, placement)
        wanted = wanted or allocation.replicas
        if not attempts_left or not (short.left_out or short.caps):
            break
        if bounds and (sizes := bounds.sizes(view, allocation.replicas, placement)):
            short = capped_at(sizes)
            wanted = {**wanted, **{job_id: size for job_id, (size, _) in sizes.items()}}
        left_out |= short.left_out
        caps |= short.caps
        caps_now = {job_id: size for job_id, (size, _) in short.caps.items()}
        view = with_caps(without_jobs(view, short.left_out.keys()), caps_now)
    # 4. The reason is the policy's, unless the nodes or a cap had the last word.
    at_cap = {job_id: why for job_id, (size, why) in caps.items() if len(placement.get(job_id, ())) == size}
    reasons = FirstOf(left_out, at_cap, short.reasons, allocation.reasons)
    placed = Placed(placement=placement, reasons=reasons, left_out=left_out)
    if not bounds or (left_out.keys() == impossible.keys() and not caps):
        return placed
    return bounds.last_word(wanted, placed)


def _with_drains(reasons: Mapping[str, Reason], placement: Placement, drained: Sequence[str]) -> Mapping[str, Reason]:
    """Return the reasons, those of jobs that wait with the nodes that voda drains."""
    if not drained:
        return reasons
    nodes = Drained(nodes=tuple(drained[:_MOST_NAMED]), more=max(0, len(drained) - _MOST_NAMED))
    return {job_id: why if job_id in placement else also(why, nodes) for job_id, why in reasons.items()}

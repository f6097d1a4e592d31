"""Decides on one plan: which jobs get how many replicas, on which nodes, and why; and makes the fact that records it.

Rules: pure, the controller and `voda replay --verify` call the same functions; no policy sees a job that is held; no
GPUs are kept for a job that the nodes cannot hold now: the policy is asked again without it.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, TypeVar

from voda.domain.plan import Placement, Plan
from voda.domain.plugins import first_known
from voda.domain.reasons.nodes import Drained
from voda.domain.reasons.outcomes import Reason, Waits, also
from voda.domain.state import ClusterState
from voda.events.decisions import PlanAdopted
from voda.placement import Placer
from voda.planner.candidates import CellDecider, Placed, candidates_of
from voda.planner.differences import other_keys
from voda.planner.done_replicas import with_done
from voda.planner.feasibility import feasible_view, shortfall, with_caps, without_jobs
from voda.planner.priority import allocate, place
from voda.planner.sharing import SpareGpus, serve_requests, with_answers, with_stand_ins
from voda.policies import POLICIES, Policy, gives_as_requested

T = TypeVar("T")
_MOST_ATTEMPTS: Final = 4
"""Each one leaves out jobs of another shape, and shapes are few: a bound on the time that a decision takes."""
_MOST_NAMED: Final = 3


def decide(  # noqa: PLR0913 - who decides, and on what
    view: ClusterState, policy: Policy, placer: Placer, now: float, *, cause: str, in_cells: CellDecider | None = None
) -> Plan:
    """Return the plan that follows the one in force, with one reason for every ready job.

    Args:
        cause: the type of the event that made the decision due, or `tick`.
        now: in seconds since the epoch.
        in_cells: decides on pools that have virtual clusters; None: there are none.
    """
    # 1. Leave out the jobs that are held. Jobs that are stuck come last for a while; one stands in for all that share a
    #    GPU.
    candidates = candidates_of(view, now)
    shares = with_stand_ins(candidates)
    # 2. Policies say how many replicas each job gets, and the placer where; in a pool with virtual clusters, cells do.
    if view.cells is None:
        placed = _decide_on_nodes(shares.candidates.view, policy, placer, now)
    else:
        assert in_cells is not None, f"pool {view.pool} has virtual clusters, and nothing decides on cells"
        placed = in_cells(shares.candidates, policy, now)
    placed = with_answers(candidates.view, shares, placed)
    placement = placed.placement
    # 3. Every job gets one reason.
    reasons = dict(placed.reasons)
    reasons |= {
        job_id: also(reasons[job_id] if job_id in placement or job_id in placed.left_out else Waits(), why)
        for job_id, why in candidates.stuck.items()
    }
    whole, guaranteed, devices = with_done(view, placement, placed.guaranteed, placed.devices)
    return Plan(
        pool=view.pool,
        number=view.plan.number + 1,
        based_on=view.position,
        policy=policy.name,
        placer=placer.name,
        decided_at=now,
        cause=cause,
        placement=whole,
        guaranteed=guaranteed,
        devices=devices,
        reasons={**_with_drains(reasons, placement, sorted(view.drains)), **candidates.held},
    )


def _decide_on_nodes(view: ClusterState, policy: Policy, placer: Placer, now: float) -> Placed:
    """Return what becomes of the jobs of a pool without virtual clusters, which give up GPUs that pods have requested.

    Rule: no job loses its place for a pod, whatever the policy makes of fewer GPUs.
    """
    undisturbed = _place_on_nodes(view, policy, placer, now)
    if gives_as_requested(policy):
        # No job shrinks.
        return undisturbed
    return serve_requests(view, undisturbed, lambda fewer: _place_on_nodes(fewer, policy, placer, now))


def _place_on_nodes(view: ClusterState, policy: Policy, placer: Placer, now: float) -> Placed:
    """Return what the policy and the placer say."""
    view, impossible = feasible_view(view)
    left_out = dict(impossible)
    caps: dict[str, tuple[int, Reason]] = {}
    for attempts_left in reversed(range(_MOST_ATTEMPTS)):
        # 1. The policy says how many replicas each job gets, jobs of higher priority first.
        allocation = allocate(view, policy, now)
        # 2. The placer says on which nodes.
        placement = place(view, allocation.replicas, placer, now)
        # 3. Jobs that found no room are left out, or capped at what they found, and the policy is asked again: it
        #    counts GPUs, not nodes, and would keep some for them.
        short = shortfall(view, allocation.replicas, placement)
        if not attempts_left or not (short.left_out or short.caps):
            break
        left_out |= short.left_out
        caps |= short.caps
        sizes = {job_id: size for job_id, (size, _) in short.caps.items()}
        view = with_caps(without_jobs(view, short.left_out.keys()), sizes)
    # 4. The reason is the policy's, unless the nodes or a cap had the last word.
    at_cap = {job_id: why for job_id, (size, why) in caps.items() if len(placement.get(job_id, ())) == size}
    reasons = {**allocation.reasons, **short.reasons, **at_cap, **left_out}
    return Placed(placement=placement, reasons=reasons, left_out=left_out)


def _with_drains(reasons: Mapping[str, Reason], placement: Placement, drained: Sequence[str]) -> Mapping[str, Reason]:
    """Return the reasons, those of jobs that wait with the nodes that voda drains."""
    if not drained:
        return reasons
    nodes = Drained(nodes=tuple(drained[:_MOST_NAMED]), more=max(0, len(drained) - _MOST_NAMED))
    return {job_id: why if job_id in placement else also(why, nodes) for job_id, why in reasons.items()}


def spare_for_pods(
    view: ClusterState, now: float, policies: Callable[[str], Policy] = POLICIES.choose
) -> SpareGpus | None:
    """Return what jobs of a pool without virtual clusters can spare for pods, as a decision now would see it; None: its
    policy lets no job shrink.
    """
    if gives_as_requested(first_known(policies, view.settings.policy, view.plan.policy)):
        return None
    possible, _ = feasible_view(candidates_of(view, now).view)
    return SpareGpus(possible)


def interrupts(state: ClusterState, fact: PlanAdopted) -> bool:
    """Return whether the plan resizes, moves or preempts a job that has workers."""
    jobs, placement = state.jobs, state.plan.placement
    changed = (jobs[job_id] for job_id in (*fact.placed, *fact.released) if job_id in placement and job_id in jobs)
    return any(job.workers and not (job.is_canceling or job.is_halted) for job in changed)


def changes(old: Plan, new: Plan, undecided: Set[str]) -> PlanAdopted | None:
    """Return the fact that turns `old` into `new`; None when there is nothing to record.

    It has the reasons that `new` gives for jobs that are placed, released or `undecided`, or change their guarantee.
    """
    before = old.placement
    placed = {job_id: new.placement[job_id] for job_id in _changed(before, new.placement)}
    released = tuple(sorted(job_id for job_id in before if job_id not in new.placement))
    guaranteed, devices = _changed_cells(old.guaranteed, new.guaranteed), _changed_cells(old.devices, new.devices)
    explained = sorted(job_id for job_id in {*placed, *released, *guaranteed, *undecided} if job_id in new.reasons)
    if not (placed or released or explained or guaranteed or devices):
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
        guaranteed={job_id: cells for job_id, cells in guaranteed.items() if job_id not in released},
        devices={job_id: cells for job_id, cells in devices.items() if job_id not in released},
    )


def _changed_cells(old: Mapping[str, tuple[T, ...]], new: Mapping[str, tuple[T, ...]]) -> dict[str, tuple[T, ...]]:
    """Return what differs, by job; empty: the job has none any longer."""
    if not (old or new):
        return {}
    changed = {*_changed(old, new), *(old.keys() - new.keys())}
    return {job_id: new.get(job_id, ()) for job_id in sorted(changed)}


def _changed(old: Mapping[str, T], new: Mapping[str, T]) -> list[str]:
    """Return the keys of what is new or other than before, in their order."""
    return sorted(key for key in other_keys(old, new) if key not in old or old[key] != new[key])

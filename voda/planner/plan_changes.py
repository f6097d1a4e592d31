"""What turns one plan into the next: the fact that records it, and whether it interrupts jobs. Pure."""

from collections.abc import Mapping, Sequence, Set
from typing import TypeVar

from voda.changed_keys import gone_keys, other_keys
from voda.domain.plan import Plan
from voda.domain.state import ClusterState
from voda.events.decisions import PlanAdopted

T = TypeVar("T")


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
    others = other_keys(before, new.placement)
    placed = {job_id: new.placement[job_id] for job_id in _changed(before, new.placement, others)}
    released = tuple(sorted(gone_keys(before, new.placement, others)))
    guaranteed, devices = _changed_cells(old.guaranteed, new.guaranteed), _changed_cells(old.devices, new.devices)
    moved = {name: new.launchers.get(name, "") for name in _other_jobs(old.launchers, new.launchers)}
    launchers = {job_id: node for job_id, node in moved.items() if job_id not in released}
    explained = sorted(job_id for job_id in {*placed, *released, *guaranteed, *undecided} if job_id in new.reasons)
    if not (placed or released or explained or guaranteed or devices or launchers):
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
        launchers=launchers,
    )


def _changed_cells(old: Mapping[str, tuple[T, ...]], new: Mapping[str, tuple[T, ...]]) -> dict[str, tuple[T, ...]]:
    """Return what differs, by job; empty: the job has none any longer."""
    return {job_id: new.get(job_id, ()) for job_id in _other_jobs(old, new)}


def _other_jobs(old: Mapping[str, T], new: Mapping[str, T]) -> Sequence[str]:
    """Return the jobs of which something else is noted than before, or nothing any longer."""
    others = other_keys(old, new)
    return sorted({*_changed(old, new, others), *gone_keys(old, new, others)})


def _changed(old: Mapping[str, T], new: Mapping[str, T], others: Sequence[str]) -> list[str]:
    """Return the keys of what is new or other than before, in their order; `others`: what is not the very same."""
    return sorted(key for key in others if key not in old or old[key] != new[key])

"""The jobs that a decision is about, in named sets, and what it makes of them. Pure."""

from collections.abc import Callable, Mapping, Set
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.job import Job
from voda.domain.plan import Devices, Placement, Quotas
from voda.domain.reasons.outcomes import Reason
from voda.domain.reasons.stalls import Stuck
from voda.domain.state import ClusterState
from voda.planner.backed_off import with_backed_off_last
from voda.planner.done_replicas import without_done
from voda.planner.eligibility import eligible_view
from voda.planner.fixed_jobs import without_fixed
from voda.planner.gpuless.workers import without_gpus
from voda.planner.launchers import reason_of_size, with_launchers
from voda.planner.node_states import with_closed_nodes, without_sick_workers

T = TypeVar("T")


class Candidates(Struct, frozen=True, kw_only=True):
    """The jobs of a pool, as its next plan looks at them."""

    view: ClusterState
    """Of the jobs that may have workers now; nodes that are cordoned or silent have room for the workers there."""
    without_gpus: Mapping[str, Job] = {}
    """Jobs that need no GPU, which the view lacks."""
    known: Set[str] = frozenset()
    """All jobs of the pool, those that are held too."""
    held: Mapping[str, Reason] = {}
    """Jobs that may have no workers now -> why."""
    stuck: Mapping[str, Stuck] = {}
    """Jobs that make no use of their GPUs -> why."""
    last: Set[str] = frozenset()
    """Those of them that others go before for a while; the rest keep what they work with."""
    fixed: Mapping[str, Job] = {}
    """Jobs that keep their workers as they are, which the view lacks."""
    lacking_launchers: Set[str] = frozenset()
    """Jobs that the view shows with one worker more, whose place is for the launcher: it asks for GPUs and has none."""
    launchers: Mapping[str, str] = {}
    """Jobs whose launchers have GPUs, which count as others' -> their nodes."""
    steady: Set[str] = frozenset()
    """Jobs at work that leave idle cells to guarantees alone."""


class Placed(Struct, frozen=True, kw_only=True):
    """Where the workers of every job are, what guarantees them, and why."""

    placement: Placement
    guaranteed: Quotas = {}
    devices: Devices = {}
    reasons: Mapping[str, Reason]
    left_out: Mapping[str, Reason] = {}
    """Jobs for which the nodes have no room -> why."""
    launchers: Mapping[str, str] = {}
    """As in Plan."""


def candidates_of(
    view: ClusterState,
    now: float,
    *,
    fitted: Callable[[ClusterState], ClusterState],
    leaving: Set[str] = frozenset(),
    yielding: Set[str] = frozenset(),
) -> Candidates:
    """Return the jobs that a decision is about. Replicas that are done need no GPUs any more.

    Args:
        fitted: shows jobs the nodes that refuse them.
        leaving: jobs whose launchers' GPUs count as free, as those of jobs do that are not planned.
        yielding: jobs without GPUs that count as if they were not at work.
    """
    eligible, held = eligible_view(without_sick_workers(view, now), now)
    eligible, fixed = without_fixed(eligible)
    eligible, stuck, last = with_backed_off_last(without_done(eligible), now)
    open_view, lacking, launchers = with_launchers(with_closed_nodes(eligible, now), view.jobs, leaving)
    if yielding:
        away = {job_id: replace(job, workers={}) for job_id, job in open_view.jobs.items() if job_id in yielding}
        open_view = open_view.with_jobs(away)
    shown, others = without_gpus(fitted(open_view))
    return Candidates(
        view=shown,
        without_gpus=others,
        known=view.jobs.keys(),
        held=held,
        stuck=stuck,
        last=last,
        fixed=fixed,
        lacking_launchers=lacking,
        launchers=launchers,
    )


def without_launchers(view: ClusterState, candidates: Candidates, placed: Placed) -> Placed:
    """Return what was decided, the last place of a job as that of its launcher; `view` is the log's."""
    at = {job_id: node for job_id, node in candidates.launchers.items() if job_id in placed.placement}
    if not (launchers := candidates.lacking_launchers & placed.reasons.keys()):
        return replace(placed, launchers=at) if at else placed
    sizes = {job_id: len(nodes) - 1 for job_id in launchers if (nodes := placed.placement.get(job_id))}
    last = {job_id: placed.placement[job_id][-1] for job_id in sizes}
    at |= {job_id: node for job_id, node in last.items() if node not in candidates.view.closed_nodes}

    def cut(of_workers: Mapping[str, tuple[T, ...]]) -> Mapping[str, tuple[T, ...]]:
        return {job_id: each[: sizes.get(job_id)] for job_id, each in of_workers.items()}

    had = {job_id: len(view.plan.placement.get(job_id, ())) for job_id in launchers}
    reasons = {job_id: reason_of_size(placed.reasons[job_id], had[job_id], sizes.get(job_id, 0)) for job_id in had}
    return replace(
        placed,
        placement=cut(placed.placement),
        guaranteed=cut(placed.guaranteed),
        devices=cut(placed.devices),
        launchers=at,
        reasons={**placed.reasons, **reasons},
    )

"""Jobs that wait for CPU or the like which jobs without GPUs have at work, though these come after them: they get it.

Rules: pure; only for a minimum, and only where that is known to fit then; no job gets anything else of it, and none
that goes before loses anything. With virtual clusters, where priorities count within each, nobody leaves.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Final

from msgspec.structs import replace

from voda.domain.job import Job
from voda.domain.node import demand_of
from voda.domain.reasons.nodes import LacksResource
from voda.domain.state import ClusterState
from voda.placement.order import shape
from voda.planner.candidates import Candidates, Placed
from voda.planner.displacement import displaced_in_vain
from voda.planner.feasibility import with_caps, without_jobs

_MOST_CLASSES: Final = 4
"""Of jobs that others are to leave for: each costs a decision."""


def beside_outranked(
    candidates: Candidates,
    placed: Placed,
    without: Callable[[Set[str]], Candidates],
    decided: Callable[[Candidates], Placed],
) -> tuple[Candidates, Placed]:
    """Return the candidates and what was decided on them, those without GPUs gone for the first whom that helps.

    Args:
        candidates: the jobs.
        placed: what was decided on them.
        without: jobs without GPUs -> the candidates, were these not at work.
        decided: decides on candidates.
    """
    if candidates.view.cells is not None:
        return candidates, placed
    for job, giving in _outranking(candidates.view, candidates.without_gpus, placed):
        alone = _only(without(giving), job.spec.job_id, placed)
        other = decided(alone)
        if job.spec.job_id in other.placement and not _costs_earlier(candidates.view, job, placed, other):
            reasons, left_out = {**placed.reasons, **other.reasons}, {**placed.left_out, **other.left_out}
            return alone, replace(other, reasons=reasons, left_out=left_out)
    return candidates, placed


def _outranking(view: ClusterState, jobs: Mapping[str, Job], placed: Placed) -> Iterator[tuple[Job, Set[str]]]:
    """Yield the jobs that wait, the first of each class, and those of `jobs` that have what they lack and come after.

    Those come first that go first, and only a few.
    """
    at_work = [job for job in jobs.values() if job.workers and not job.is_canceling]
    if not at_work or not (waiting := view.jobs.keys() - placed.placement.keys()):
        return
    in_vain, known, left = displaced_in_vain(view), set[tuple[object, ...]](), _MOST_CLASSES
    for job in sorted(map(view.jobs.__getitem__, waiting), key=_rank):
        alike = (*shape(job), job.spec.min_replicas)
        if job.is_canceling or job.spec.job_id in in_vain or alike in known:
            continue
        known.add(alike)
        behind = (other for other in at_work if _rank(other) > _rank(job))
        if giving := {other.spec.job_id for other in behind if _has_what_it_lacks(view, job, other)}:
            yield job, giving
            if not (left := left - 1):
                return


def _rank(job: Job) -> tuple[int, float, str]:
    return -job.spec.priority, job.submitted_at, job.spec.job_id


def _has_what_it_lacks(view: ClusterState, job: Job, other: Job) -> bool:
    """Return whether workers of the other have what a node lacks for the job."""
    common = demand_of(job.spec.needs).keys() & demand_of(other.spec.needs).keys()
    for name in {*other.workers.values()}:
        why = job.refusals.get(name)
        lacking = {why.resource} if isinstance(why, LacksResource) else view.scarce.get(name, {}).keys()
        if (why is None or isinstance(why, LacksResource)) and lacking & common:
            return True
    return False


def _only(candidates: Candidates, job_id: str, placed: Placed) -> Candidates:
    """Return the candidates without others that wait, where those with a place want no more than they have."""
    jobs = candidates.view.jobs
    waiting = {other for other, job in jobs.items() if other not in placed.placement and not job.is_canceling}
    view = without_jobs(candidates.view, waiting - {job_id})
    sizes = {
        other: len(nodes) + (other in candidates.lacking_launchers)
        for other, nodes in placed.placement.items()
        if other in view.jobs
    }
    return replace(candidates, view=with_caps(view, sizes))


def _costs_earlier(view: ClusterState, job: Job, placed: Placed, other: Placed) -> bool:
    """Return whether a job that goes before has less than it had."""
    return any(
        len(other.placement.get(job_id, ())) < len(nodes)
        for job_id, nodes in placed.placement.items()
        if job_id in view.jobs and _rank(view.jobs[job_id]) < _rank(job)
    )

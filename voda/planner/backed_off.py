"""Jobs that back off, as a decision looks at them (`start_backoff` finds them): behind all others; one that works with
fewer workers than planned keeps these, and gets no more. Pure.
"""

from msgspec.structs import replace

from voda.domain.job import Job, StartBackoff
from voda.domain.reasons.stalls import Stuck
from voda.domain.state import ClusterState
from voda.planner.feasibility import with_caps


def with_backed_off_last(view: ClusterState, now: float) -> tuple[ClusterState, dict[str, Stuck], frozenset[str]]:
    """Return the view in which jobs that back off come last, or get no more than they work with, and why.

    The third are those that come last.
    """
    backed_off = {
        job_id: job.backoff
        for job_id, job in view.special_jobs.items()
        if job.backoff is not None and not job.is_canceling and _is_in_force(job, job.backoff, now)
    }
    if not backed_off:
        return view, {}, frozenset()
    why = {job_id: _stuck(backoff) for job_id, backoff in backed_off.items()}
    lower, below = dict[str, Job](), 1 + view.priorities[0] - view.priorities[-1]
    caps: dict[str, int] = {}
    for job_id, backoff in backed_off.items():
        spec = view.jobs[job_id].spec
        if backoff.at_work >= spec.min_replicas:
            caps[job_id] = backoff.at_work
        else:
            lower[job_id] = replace(view.jobs[job_id], spec=replace(spec, priority=spec.priority - below))
    return with_caps(view.with_jobs(lower), caps), why, frozenset(backed_off.keys() - caps.keys())


def _is_in_force(job: Job, backoff: StartBackoff, now: float) -> bool:
    if now >= backoff.retry_at:
        return False
    at_work = len(job.workers) if job.obstacle is None else min(len(job.workers), job.obstacle.at_work)
    return at_work <= backoff.at_work or at_work < job.spec.min_replicas


def _stuck(backoff: StartBackoff) -> Stuck:
    return Stuck(
        at_work=backoff.at_work, planned=backoff.planned, why=backoff.reason, for_s=round(backoff.retry_after_s, 1)
    )

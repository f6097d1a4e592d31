"""The orders in which policies serve jobs.

Rule: every order is total; equals go by earlier submission, then by job id.
"""

import math
from collections.abc import Iterable
from itertools import islice
from operator import attrgetter, lt

from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.policies.toolkit.estimates import remaining_s, speedup

_BY_SUBMISSION = attrgetter("submitted_at", "spec.job_id")


def by_submission(view: ClusterState) -> list[Job]:
    """Return the ready jobs, first submitted first; jobs being canceled are not ready."""
    jobs = [job for job in view.jobs.values() if not job.is_canceling]
    since = [job.submitted_at for job in jobs]
    # Nearly always they are in this order already.
    return jobs if all(map(lt, since, islice(since, 1, None))) else sorted(jobs, key=_BY_SUBMISSION)


def by_time_left(view: ClusterState) -> list[Job]:
    """Return the ready jobs, least time left on one replica first; unknown times last."""
    return sorted(by_submission(view), key=lambda job: remaining_s(view, job))


def by_time_left_as_requested(view: ClusterState) -> list[Job]:
    """Return the ready jobs, least time left on the requested replicas first; unknown times last."""

    def left_s(job: Job) -> float:
        speed = speedup(view, job)[job.spec.requested]
        return remaining_s(view, job) / speed if speed > 0 else math.inf

    return sorted(by_submission(view), key=left_s)


def by_queue(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs of the higher queue first, the order inside each queue kept."""
    return sorted(jobs, key=lambda job: job.queue_level)


def by_first_start(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs first started first; never started ones last, in the order given."""
    return sorted(jobs, key=lambda job: math.inf if job.first_started_at is None else job.first_started_at)

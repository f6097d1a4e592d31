"""Which size a job ran at last, and at which ones its program failed right after voda had resized it. Pure.

A size counts as run once all planned workers were there for RIGHT_AFTER_S, or the job has reported with them. A failure
before that, where another size ran, is the resize's: the size is avoided for AVOIDED_S, or until the user changes what
the job asks for (`voda/planner/eligibility.py`).
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from voda.domain.job import RIGHT_AFTER_S, Job

AVOIDED_S: Final = 3600.0


def before_change(job: Job, now: float, *, cause: str = "") -> Job:
    """Return a job whose workers are about to change; `cause` is that of an exit."""
    size, for_s = len(job.workers), now - job.counted_at
    if not size or size != job.whole_size:
        return job
    if for_s >= RIGHT_AFTER_S:
        return job if job.ran_size == size else replace(job, ran_size=size)
    if cause == "failed" and job.ran_size not in (0, size):
        still = {other: until for other, until in job.avoided_sizes.items() if until > now}
        return replace(job, avoided_sizes={**still, size: now + AVOIDED_S})
    return job


def after_change(job: Job, planned: Sequence[str]) -> Job:
    """Return a job whose workers have changed, by the plan in force."""
    size = len(job.workers)
    return job if size != len(planned) or size == job.whole_size else replace(job, whole_size=size)


def after_report(job: Job, epochs_done: float) -> Job:
    """Return a job that has reported so many epochs; the very job where that says nothing new."""
    if epochs_done > job.epochs_done:
        job = replace(job, epochs_done=epochs_done)
    size = len(job.workers)
    return job if size in (0, job.ran_size) or size != job.whole_size else replace(job, ran_size=size)

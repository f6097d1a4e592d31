"""The places of the waiting jobs of each pool, 1 to n: in the order of the forecast, behind it those it does not know.

Rules: a forecast is older than the state: a job that was next in the queue may run, or be canceled, by now. A job whose
place no forecast knows queues behind those of its priority, in the order of submission. What waits for something else
than GPUs has no place; tasks of a bounded array have none before a forecast says which come next.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from voda.application.journal import JournalView
from voda.domain.job import Job
from voda.domain.plan import ExpectedTimes

_MOST_LIVE: Final = 500
"""Live jobs of a pool; where there are more, each answer to a submission would look at them all."""


class QueuePlaces:
    """Counts the queues anew whenever the log has grown or a forecast was made."""

    def __init__(self, view: JournalView) -> None:
        self._view = view
        self._counted: tuple[int, Mapping[str, ExpectedTimes]] = (-1, {})
        self._places: Mapping[str, int] = {}

    def place(self, job_id: str) -> int | None:
        """Return the place of a job; None: it does not wait, or nothing can be said yet."""
        view = self._view
        position, forecasts = self._counted
        if position != view.position or forecasts is not view.forecasts:
            self._counted, self._places = (view.position, view.forecasts), self._numbered()
        return self._places.get(job_id)

    def _numbered(self) -> Mapping[str, int]:
        cluster, forecasts = self._view.cluster, self._view.forecasts
        positions: dict[str, dict[str, float]] = {pool: {} for pool in cluster.pools()}
        for job_id, forecast in forecasts.items():
            job = cluster.job(job_id)
            if forecast.position and job is not None and _has_no_gpus(job):
                positions[job.spec.pool][job_id] = forecast.position
        for pool, known in positions.items():
            jobs = cluster.jobs(pool)
            if len(jobs) <= _MOST_LIVE:
                new = [job for job_id, job in jobs.items() if job_id not in known and _waits_for_gpus(job)]
                known |= behind(known, [jobs[job_id] for job_id in known], new)
        ordered = (sorted(known, key=known.__getitem__) for known in positions.values())
        return {job_id: place for pool in ordered for place, job_id in enumerate(pool, 1)}


def behind(positions: Mapping[str, float], known: Iterable[Job], new: Iterable[Job]) -> Mapping[str, float]:
    """Return positions of new jobs: each before the first known job of lower priority, in the order of submission.

    They lie between those of the known jobs, so that sorting all gives the queue.
    """
    first: dict[int, float] = {}
    for job in known:
        priority, position = job.spec.priority, positions[job.spec.job_id]
        first[priority] = min(position, first.get(priority, position))
    queue = sorted(new, key=lambda job: (-job.spec.priority, job.queue_level, job.submitted_at, job.spec.job_id))
    last = max(positions.values(), default=0.0) + 1
    places: dict[str, float] = {}
    for number, job in enumerate(queue, 1):
        bound = min((at for priority, at in first.items() if priority < job.spec.priority), default=last)
        places[job.spec.job_id] = bound - 1 + number / (len(queue) + 1)
    return places


def _has_no_gpus(job: Job) -> bool:
    return not (job.is_canceling or job.is_halted or job.workers)


def _waits_for_gpus(job: Job) -> bool:
    is_bounded = job.spec.array is not None and job.spec.array.at_once
    return _has_no_gpus(job) and not (job.waits_for or job.retry_at or is_bounded)

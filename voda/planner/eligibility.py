"""Finds the jobs that may have no workers now, whatever is free: those that are halted, those that wait for others to
end, and the tasks of an array beyond the number that may be at work at once.

Rule: no policy sees these jobs. Of an array, the tasks that are at work stay, and the lowest indices come next.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.planner.feasibility import count_of, without_jobs

_NAMED: Final = 3
"""Jobs that a reason names; it counts the others."""


def eligible_view(view: ClusterState) -> tuple[ClusterState, dict[str, str]]:
    """Return the view without the jobs that are held, and why they are."""
    held = held_jobs(view)
    return (without_jobs(view, held.keys()) if held else view), held


def held_jobs(view: ClusterState) -> dict[str, str]:
    """Return the jobs that may have no workers now, and why; without those that are being canceled."""
    held: dict[str, str] = {}
    bounded: dict[str, list[Job]] = {}
    # Every decision looks at every job here: one round, and no properties that are functions.
    for job_id, job in view.jobs.items():
        if (job.halt_reason or job.waits_for) and not job.is_canceling:
            held[job_id] = job.halt_reason or _after(view, job)
        if (array := job.spec.array) is not None and array.at_once:
            bounded.setdefault(array.array_id, []).append(job)
    if bounded:
        outlived = Counter(job.spec.array.array_id for job in view.outlived.values() if job.spec.array is not None)
        for array_id, tasks in bounded.items():
            held |= _beyond_bound(view, tasks, held, at_work=outlived[array_id])
    return held


def _beyond_bound(view: ClusterState, tasks: Sequence[Job], held: Mapping[str, str], *, at_work: int) -> dict[str, str]:
    """Return the tasks of one array that are beyond its bound; `at_work` tasks have ended and still have workers."""

    def has_gpus(job: Job) -> bool:
        return bool(job.workers) or job.spec.job_id in view.plan.placement

    def rank(job: Job) -> tuple[bool, int, str]:
        assert job.spec.array is not None, "it is a task"
        return not has_gpus(job), job.spec.array.index, job.spec.job_id

    eligible = [job for job in tasks if job.spec.job_id not in held and not job.is_canceling]
    # A task that is being stopped gives its place away only once its workers are gone.
    at_work += sum(has_gpus(job) for job in tasks) - sum(has_gpus(job) for job in eligible)
    array = tasks[0].spec.array
    assert array is not None, "it is a task"
    reason = f"waits: array {array.name} has at most {count_of(array.at_once, 'task')} at work at once"
    return {job.spec.job_id: reason for job in sorted(eligible, key=rank)[max(0, array.at_once - at_work) :]}


def _after(view: ClusterState, job: Job) -> str:
    if job.unsatisfiable:
        return f"waits in vain: {job.unsatisfiable}"
    named = [_target(view, dependency.key, dependency.target) for dependency in job.waits_for[:_NAMED]]
    more = [f"{len(job.waits_for) - _NAMED} more"] if len(job.waits_for) > _NAMED else []
    return f"waits: after {_listed([*named, *more])}"


def _target(view: ClusterState, key: str, target: str) -> str:
    job = view.jobs.get(key)
    return target if job is None else f"{target} ({job.phase})"


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last

"""Waits for jobs by the server's live events: each that may change the state of a job makes it look at that job again.

Rule: the position of the log is read before the jobs are, and the events begin there, so nothing is missed; nothing is
asked for on a timer.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from voda.cli.http.client import Client, decode, resource_path
from voda.cli.http.remote_log import RemoteLog
from voda.cli.render.job_text import exactly, has_ended, next_try, state
from voda.cli.render.terminal import note, now, plain
from voda.cli.watch.lists import JobFilters, fetch_jobs, names_of_tasks
from voda.client.errors import ClientClosed
from voda.client.job_wait import STEPS
from voda.domain.errors import NotFound, VodaError
from voda.domain.job import Phase
from voda.text import short
from voda.wire.events import EventView
from voda.wire.jobs import JobView

_REACHED: Final[Mapping[str, Callable[[JobView], bool]]] = {
    "completed": lambda job: job.phase is Phase.COMPLETED,
    "failed": lambda job: job.phase is Phase.FAILED,
    "canceled": lambda job: job.phase is Phase.CANCELED,
    "ended": has_ended,
    "running": lambda job: bool(job.replicas) or (has_ended(job) and job.started_at is not None),
    "waiting": lambda job: not job.replicas and not has_ended(job),
    "halted": lambda job: job.is_halted and not job.replicas,
}


class TimedOut(VodaError):
    """The jobs are not where they shall be in time."""


def wait_for(client: Client, jobs: Sequence[str] | str, goal: str, *, limit_s: float | None = None) -> bool:
    """Return once all jobs are in a state, or False as soon as one of them cannot get there any more.

    Args:
        client: of the server.
        jobs: their names, or a selector of labels: then the jobs that are live now.
        goal: a state, such as `completed`.
        limit_s: how long to wait; None = for ever.

    Raises:
        TimedOut: not within `limit_s`.
    """
    waiting: dict[str, JobView] = {}
    if limit_s is None:
        return _wait(client, jobs, goal, waiting)
    late = threading.Timer(limit_s, client.cancellation.cancel)
    late.daemon = True
    late.start()
    try:
        return _wait(client, jobs, goal, waiting)
    except ClientClosed:
        left = ", ".join(f"{job.job_id} is {_standing(job)}" for job in waiting.values())
        raise TimedOut(f"not {goal} after {short(limit_s)}: {left or 'the server does not answer'}") from None
    finally:
        late.cancel()


def _standing(job: JobView) -> str:
    """Return the state of a job that is not where it shall be, with the tries of a program that fails."""
    tries = next_try(job, now()) if job.program_failures else ""
    return f"{state(job).lower()}{f', its program failed: {tries}' if tries else ''}"


def _wait(client: Client, jobs: Sequence[str] | str, goal: str, waiting: dict[str, JobView]) -> bool:
    """Wait for jobs; `waiting` is kept up to date with those that are not there yet."""

    def look(named: str) -> bool:
        """Look at a job, and return whether it is there or can still get there."""
        job = decode(client.repeat(lambda: client.get(resource_path("jobs", named))), JobView)
        waiting.pop(job.job_id, None)
        if _REACHED[goal](job):
            print(plain(f"{job.job_id} is {state(job).lower()}"), flush=True)
            return True
        if has_ended(job):
            note(f"{job.job_id} is {state(job).lower()}{f': {job.message}' if job.message else ''}")
            return False
        waiting[job.job_id] = job
        return True

    position = client.repeat(RemoteLog(client, {}).position)
    names = _chosen(client, jobs) if isinstance(jobs, str) else _each(client, jobs)
    for name in names:
        if not look(name):
            return False
    if not waiting:
        return True
    params: dict[str, str | int | list[str]] = {"type": list(STEPS)}
    if len(waiting) == 1:
        params["job"] = exactly(next(iter(waiting.values())))
    for message in client.follow_events(after=position, params=params, away_s=math.inf):
        job_id = decode(message.data, EventView).stream.removeprefix("job.")
        if job_id in waiting and not look(exactly(waiting[job_id])):
            return False
        if not waiting:
            return True
    return False


def _each(client: Client, names: Sequence[str]) -> Sequence[str]:
    return client.repeat(lambda: names_of_tasks(client, list(dict.fromkeys(names))))


def _chosen(client: Client, selector: str) -> Sequence[str]:
    live: JobFilters = {"selector": selector, "phase": "live"}
    found = client.repeat(lambda: fetch_jobs(client, live, limit=0))
    if not found.items:
        raise NotFound(
            f"no live job has the labels {selector!r}: voda get --all -l {selector!r} lists those that ended"
        )
    return [exactly(job) for job in found.items]

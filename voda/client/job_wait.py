"""Waits for a job: by the server's live events about it, and where these cannot be had, by looks at growing intervals.

Rules: the events begin behind what was seen of the job, so that nothing is missed; without one, the job is looked at
every 30 s all the same. A stream without a sign of life is given up for a minute: a proxy may hold it back.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal

from voda.client.connection import HttpCall
from voda.client.decoding import decode
from voda.client.errors import ClientClosed, WaitTimeout
from voda.client.http import HttpClient, resource_path
from voda.client.sse import SseParser
from voda.domain.errors import InvalidInput, VodaError, WrongState
from voda.wire.jobs import JobView

JobGoal = Literal["ended", "completed", "failed", "canceled", "running", "waiting", "halted"]
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.1, 2.0
"""Between two looks at a job without events."""
_FOLLOWED_S: Final = 30.0
_GIVEN_UP_S: Final = 60.0
STEPS: Final = (
    "worker.started",
    "worker.exited",
    "job.completed",
    "job.failed",
    "job.canceled",
    "job.halt_requested",
    "job.resume_requested",
)
"""Events that may change where a job is."""


class JobWait:
    """One wait for one job.

    Args:
        http: of the client.
        goal: where the job should be.
        timeout_s: how long to wait; None = for ever.
    """

    def __init__(self, http: HttpClient, goal: JobGoal, timeout_s: float | None) -> None:
        self._http = http
        self._goal = goal
        self._timeout_s = timeout_s
        self._ends_at = math.inf if timeout_s is None else time.perf_counter() + timeout_s
        self._pause_s = _FIRST_LOOK_S
        self._polls_until = 0.0
        """No stream is opened before this."""
        self._seen = 0
        """Position of the last event that was seen."""

    def run(self, path: str) -> JobView:
        """Return the job once it is there; see `Client.wait`."""
        while True:
            answer = self._http.ask_repeatedly(HttpCall(path=path), within_s=max(0.0, self._left_s))
            found = decode(answer.body, JobView)
            if _has_reached(found, self._goal):
                return found
            if self._left_s <= 0:
                phase = found.phase.lower()
                raise WaitTimeout(f"job {found.job_id} is {phase}, not {self._goal} within {self._timeout_s:g} s")
            # A later job may get the name.
            path = resource_path("jobs", f"@{found.job_id}")
            if not self._is_changed(found):
                self._http.cancellation.pause(max(0.0, min(self._pause_s, self._left_s)))
                self._pause_s = min(self._pause_s * 1.5, _LONGEST_LOOK_S)

    @property
    def _left_s(self) -> float:
        return self._ends_at - time.perf_counter()

    def _is_changed(self, job: JobView) -> bool:
        """Return True once something happened to the job; False where it has to be looked at on a timer."""
        if time.perf_counter() < self._polls_until:
            return False
        try:
            return self._follow(job)
        except ClientClosed:
            raise
        except VodaError:
            # Too many streams, an answer that got lost, a proxy that holds streams back, a server without them.
            self._polls_until = time.perf_counter() + _GIVEN_UP_S
            return False

    def _follow(self, job: JobView) -> bool:
        """Return whether an event came before the stream ended, or its time was over."""
        if job.revision.isdecimal():
            self._seen = max(self._seen, int(job.revision))
        parser = SseParser(str(self._seen))
        until = time.perf_counter() + min(_FOLLOWED_S, self._left_s)
        call = HttpCall(
            path="/events",
            params={"job": f"@{job.job_id}", "type": list(STEPS), "watch": "true", "after": self._seen},
            headers={"Accept": "text/event-stream"},
        )
        for piece in self._http.stream(call, idle_s=max(0.001, until - time.perf_counter())):
            if messages := parser.feed(piece):
                last = messages[-1].id
                self._seen = max(self._seen, int(last)) if last.isdecimal() else self._seen
                return True
            if time.perf_counter() >= until:
                break
        return False


_REACHED: Final[Mapping[JobGoal, Callable[[JobView], bool]]] = {
    "ended": lambda job: job.has_ended,
    "completed": lambda job: job.phase == "Completed",
    "failed": lambda job: job.phase == "Failed",
    "canceled": lambda job: job.phase == "Canceled",
    "running": lambda job: bool(job.replicas) or (job.has_ended and job.started_at is not None),
    "waiting": lambda job: not job.replicas and not job.has_ended,
    "halted": lambda job: bool(job.is_halted) and not job.replicas,
}


def _has_reached(job: JobView, goal: JobGoal) -> bool:
    """Return whether a job is where it is waited for; WrongState if it never will be."""
    if goal not in _REACHED:
        raise InvalidInput(f"a job cannot be waited for until it is {goal!r:.40}: expected {', '.join(_REACHED)}")
    if not (is_there := _REACHED[goal](job)) and job.has_ended:
        why = f": {job.message}" if job.message else ""
        raise WrongState(f"job {job.job_id} has ended ({job.phase.lower()}{why}): it will never be {goal}")
    return is_there

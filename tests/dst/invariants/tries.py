"""How often jobs that are stuck are tried again.

Rule: between two times that a job is found stuck lie the delay after the first and the time-out, by the clocks that the
log was written by, unless its user changed it in between.
"""

from tests.dst.invariants.broken import Broken
from voda.events.envelope import Event
from voda.events.types import JobBackedOff, JobChanged, JobHaltRequested, JobResumeRequested


class Tries:
    """Reads the log as it grows."""

    def __init__(self) -> None:
        self._retry_at: dict[str, float] = {}

    def see(self, event: Event) -> None:
        """Take in the next event.

        Raises:
            Broken: a job is found stuck before it could be tried again.
        """
        match event.data:
            case JobChanged(job_id=job_id) | JobHaltRequested(job_id=job_id) | JobResumeRequested(job_id=job_id):
                self._retry_at.pop(job_id, None)
            case JobBackedOff(job_id=job_id) as fact:
                if event.recorded_at < (retry_at := self._retry_at.get(job_id, 0.0)):
                    early_s = retry_at - event.recorded_at
                    raise Broken("tries", f"job {job_id} is found stuck {early_s:g} s before it is tried again")
                self._retry_at[job_id] = event.recorded_at + fact.retry_after_s

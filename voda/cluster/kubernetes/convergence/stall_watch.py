"""Tells the log of jobs that get no further, once it is plain that they do not, and once it is over.

Rules: level, not edge: what is told is what differs from what the log has been told; what comes and goes is not told,
neither its coming nor its going.
"""

from collections.abc import Callable, Iterable
from typing import Final

from voda.clock import Clock
from voda.cluster.kubernetes.binding.binder import Binder
from voda.cluster.kubernetes.convergence.actuator import Actuator, PublishJob
from voda.cluster.kubernetes.convergence.stalls import Stall, stall_of
from voda.cluster.kubernetes.convergence.steps import Desired, DesiredHalt, DesiredRun
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.events.types import JobStalled

SOON_S: Final = 60.0
LATE_S: Final = 300.0
"""Large images take minutes."""


class StallWatch:
    """Looks at live jobs now and then.

    Args:
        inventory: what there is.
        actuator: knows what is wanted.
        binder: knows what it did not bind.
        clock: of how long something lasts.
        told: job id -> what the log was told last; empty: that it goes on.
        tell: takes facts for the log.
    """

    def __init__(  # noqa: PLR0913 - its ports
        self,
        inventory: Inventory,
        actuator: Actuator,
        binder: Binder,
        clock: Clock,
        *,
        told: Callable[[str], str],
        tell: PublishJob,
    ) -> None:
        self._inventory = inventory
        self._actuator = actuator
        self._binder = binder
        self._clock = clock
        self._told = told
        self._tell = tell
        self._lasting: dict[str, tuple[str, float]] = {}
        """job id -> what it waits for, since when; of jobs about which the log was told something else."""

    def look(self, live: Iterable[str]) -> None:
        """Look at all live jobs, and tell what is to be told."""
        now, lasting, jobs = self._clock.now(), self._lasting, set(live)
        self._lasting = {}
        self._binder.keep_only(jobs)
        for job_id in sorted(jobs):
            desired, told = self._desired(job_id), self._told(job_id)
            if desired is None and not told:
                continue
            stall = self._stall(job_id, desired)
            if stall.reason == told:
                continue
            reason, since = lasting.get(job_id, ("", now))
            since = since if reason == stall.reason else now
            if now - since < (LATE_S if stall.may_take_long else SOON_S):
                self._lasting[job_id] = (stall.reason, since)
            else:
                self._tell(job_id, JobStalled(job_id=job_id, reason=stall.reason))

    def _stall(self, job_id: str, desired: Desired | None) -> Stall:
        situation = self._actuator.situation(job_id)
        return stall_of(desired or DesiredHalt(), situation, self._binder.unbound_reasons.get(job_id, ""))

    def _desired(self, job_id: str) -> Desired | None:
        """Return what is wanted of a job; of one that runs as planned, and of which nothing was asked, that it runs."""
        held = self._inventory.gpu_nodes(job_id)
        return self._actuator.desired.get(job_id) or (DesiredRun(tuple(held.values())) if held else None)

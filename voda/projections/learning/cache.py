"""Estimates that were made, and what they were made from; no part of the state, which the log alone decides.

Rule: estimates are made anew where they are read, so that what a report costs does not depend on how many jobs its
category has.
"""

from collections.abc import Mapping

from voda.changed_keys import ChangedKeys
from voda.domain.job import Job, JobSpec
from voda.domain.settings import Settings
from voda.domain.state import Estimate
from voda.projections.learning.knowledge import Stamps
from voda.projections.learning.scaling import Scaling, is_close, is_material


class CachedEstimate:
    """The last estimate of a job, and what it was made from."""

    __slots__ = ("epochs_done", "estimate", "scaling", "settings", "spec", "stamps")

    def __init__(self, estimate: Estimate, scaling: Scaling, job: Job, settings: Settings, stamps: Stamps) -> None:
        self.estimate = estimate
        self.scaling = scaling
        self.spec: JobSpec = job.spec
        self.epochs_done = job.epochs_done
        self.settings = settings
        self.stamps = stamps
        """See Knowledge.stamps: when it was made."""

    def is_of(self, job: Job, settings: Settings) -> bool:
        """Return whether it was made for an equal job."""
        return self.epochs_done == job.epochs_done and self.is_like(job.spec, settings)

    def is_like(self, spec: JobSpec, settings: Settings) -> bool:
        return self.spec is spec and self.settings is settings

    def differs(self, scaling: Scaling, remaining_s: float) -> bool:
        """Return whether another one would be worth a new decision."""
        return is_material(self.scaling, scaling) or not is_close(self.estimate.remaining_s, remaining_s)


class ReadEstimates:
    """The estimates of a pool's jobs as they were last read, and what they were made from."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.jobs: Mapping[str, Job] = {}
        self.changes: ChangedKeys | None = None
        self.count = 0
        """Changes of the jobs that it has, where they count these."""
        self.estimates: dict[str, Estimate] = {}
        self.stamps: Stamps = (0, 0, 0)
        self.strangers: set[str] = set()
        """Jobs that were never submitted: nothing says when theirs change."""

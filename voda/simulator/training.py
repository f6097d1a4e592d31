"""One simulated job: its progress, and when its next epoch ends.

Rule: progress is a function of its placements and their instants; why they changed does not matter here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from voda.domain.job import JobSpec
from voda.simulator.workload import MeasuresThroughput, Profile

EpochEnd = Callable[[float, float], float]
"""(instant from which training goes on, seconds still needed) -> instant of the epoch's end."""

SOON_S: Final = 10.0
"""From the end of a restart to the report of the throughput on the new workers, as the callbacks have it."""
EVERY_S: Final = 60.0
SHARE: Final = 0.05
"""From a report to the next one within an epoch, and the least share of the epoch between them: without noise more
would tell nothing new, and the simulation of long epochs would be slow."""
CHECKPOINT_S: Final = 600.0
"""A job checkpoints before each change, at the end of each epoch, and this often in between."""


def exact_end(start: float, seconds: float) -> float:
    """Return the end of an epoch, in whole microseconds, which is what the log keeps."""
    return round(start + seconds, 6)


@dataclass(slots=True)
class Training:
    """How a job really trains; the simulated cluster changes it in place."""

    spec: JobSpec
    profile: Profile
    end_of: EpochEnd
    workers: Mapping[int, str] = field(default_factory=dict)
    epoch: int = 0
    fraction: float = 0.0
    """Of the current epoch, finished by `updated_at`."""
    updated_at: float = 0.0
    resumes_at: float = 0.0
    """Until then it pauses: it starts, resizes or moves."""
    placed_at: float = -math.inf
    safe_fraction: float = 0.0
    """Of the current epoch, in the checkpoint from which the present placement began."""
    training_since: float = 0.0
    """Since when it trains without a change."""
    epoch_s: float = math.inf
    """Seconds of the current epoch on the current placement; infinite while it cannot train."""
    is_disturbed: bool = True
    """Whether the placement changed since the current epoch began."""
    reports_at: float = math.inf
    """When the next report within the epoch is due."""
    turn: int = 0
    """Counts changes of the schedule, so that an outdated entry in the heap is recognised."""

    epochs_before: float = 0.0
    epochs_each: float = 1.0
    """What is reported once `epoch` epochs are finished is epochs_before + epochs_each * epoch."""

    meter: MeasuresThroughput | None = field(init=False)

    def __post_init__(self) -> None:
        """Look up once whether the profile measures throughput."""
        self.meter = self.profile if isinstance(self.profile, MeasuresThroughput) else None

    @property
    def is_done(self) -> bool:
        return self.epoch >= self.profile.epochs

    @property
    def epochs_done(self) -> float:
        return self.epochs_before + self.epochs_each * self.epoch

    def advance(self, now: float) -> None:
        """Carry the progress on to `now`, within the current epoch."""
        trained_s = now - max(self.updated_at, self.resumes_at)
        if trained_s > 0 and self.epoch_s > 0:
            self.fraction = min(1.0, self.fraction + trained_s / self.epoch_s)
        self.updated_at = max(now, self.updated_at)

    def place(self, workers: Mapping[int, str], now: float, *, cost_s: float) -> None:
        self.advance(now)
        # Two changes at one instant are one restart, as long as the longer of the two.
        begun = self.resumes_at if now == self.placed_at else now
        self.workers, self.placed_at = workers, now
        self.resumes_at = self.training_since = max(begun, now + cost_s)
        self.safe_fraction = self.fraction
        self.is_disturbed = True
        self._time_epoch()
        self._await_report(self.resumes_at + SOON_S)

    def respecify(self, spec: JobSpec, now: float) -> None:
        """Continue with other bounds, which may let it train or prevent that."""
        self.advance(now)
        self.spec = spec
        self._time_epoch()

    def fall_back(self, now: float) -> None:
        """Go back to the last checkpoint: of this placement, of the one before, or of the epoch's beginning."""
        self.advance(now)
        if self.epoch_s > 0:
            saved_s = (now - self.training_since) // CHECKPOINT_S * CHECKPOINT_S
            self.fraction = min(self.fraction, self.safe_fraction + max(0.0, saved_s) / self.epoch_s)

    def next_end_at(self) -> float:
        """Return when the current epoch ends if nothing changes; infinite while it cannot train."""
        if self.epoch_s == math.inf:
            return math.inf
        start = max(self.updated_at, self.resumes_at)
        return max(start, self.end_of(start, (1.0 - self.fraction) * self.epoch_s))

    def next_report_at(self) -> float:
        """Return when the next report is due if nothing changes: within the current epoch, or at its end."""
        end_at = self.next_end_at()
        return min(self.reports_at, end_at) if end_at < math.inf else math.inf

    def report_share(self, now: float) -> float:
        """Return the epochs done at `now`, within the current epoch, and wait for the next time to report."""
        self._await_report(now + self._pause_s())
        trained_s = max(0.0, now - max(self.updated_at, self.resumes_at))
        return self.epochs_before + self.epochs_each * (self.epoch + min(1.0, self.fraction + trained_s / self.epoch_s))

    def finish_epoch(self, now: float) -> None:
        self.epoch += 1
        self.fraction, self.updated_at, self.is_disturbed = 0.0, now, False
        self.safe_fraction, self.training_since = 0.0, now
        self._time_epoch()
        self._await_report(now + self._pause_s())

    def samples_per_s(self) -> float | None:
        return self.meter.samples_per_s(self._per_node()) if self.meter else None

    def _await_report(self, at: float) -> None:
        # Who measures no throughput reports its epochs alone.
        self.reports_at = round(at, 6) if self.meter else math.inf

    def _pause_s(self) -> float:
        return max(EVERY_S, SHARE * self.epoch_s)

    def _time_epoch(self) -> None:
        size, sizes = len(self.workers), self.spec.sizes
        can_train = size >= self.spec.min_replicas and (sizes is None or size in sizes) and not self.is_done
        self.epoch_s = self.profile.epoch_s(self.epoch, self._per_node()) if can_train else math.inf
        self.turn += 1

    def _per_node(self) -> tuple[int, ...]:
        counts: dict[str, int] = {}
        for index in sorted(self.workers):
            counts[self.workers[index]] = counts.get(self.workers[index], 0) + 1
        return tuple(counts.values())

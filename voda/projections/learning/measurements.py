"""What one job has reported, and how well its category was predicted.

Work is counted in samples where jobs report their throughput, so that sizes compare though epochs differ; else in
epochs, taken to be alike.
"""

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.projections.learning.doubts import ReportDoubt
from voda.projections.learning.means import EpochMeans, RunningMean
from voda.projections.learning.restarts import UndisturbedSpan


class JobMeasurements(Struct, kw_only=True):
    categories: tuple[str, ...]
    """Keys of those that its reports count in: its user's own, and that of all users."""
    predicted_e1: float | None
    """Seconds of a mean epoch on one replica, as estimated when it was submitted."""
    epochs: EpochMeans = msgspec.field(default_factory=EpochMeans)
    """Seconds of an epoch."""
    samples: EpochMeans = msgspec.field(default_factory=EpochMeans)
    """Seconds of a sample, where it reports its throughput."""
    work: RunningMean = msgspec.field(default_factory=RunningMean)
    """Samples of its epochs."""
    lengths: tuple[RunningMean, ...]
    """Samples of its epochs, relative to what those of others of each of the categories had in the mean before."""
    last_samples: float = 0.0
    """Samples of the last of its epochs that was taken in."""
    declared: int = 0
    """Epochs that it is to have; 0: nobody knows."""
    counted: int = 0
    """The samples of the epochs before this one have been taken in."""
    processes: float = 0.0
    """Reported workers for each replica; 0: it has reported none while its replicas were known."""
    doubt: ReportDoubt | None = None
    """Why its last report is not believed; None: it is."""
    span: UndisturbedSpan = msgspec.field(default_factory=UndisturbedSpan)

    def length(self, key: str) -> float:
        """Return how long its epochs are, relative to those of one of its categories."""
        mean = self.lengths[self.categories.index(key)]
        return mean.settled if mean.count else 1.0

    def length_error(self, key: str, prior: float) -> float:
        """Return the relative standard error of that; `prior` is the deviation of one epoch, before more are known."""
        mean = self.lengths[self.categories.index(key)]
        return mean.error(prior) if mean.count else prior

    def epochs_measured(self, *, in_samples: bool) -> int:
        """Return how many of its epochs say how long it is, in samples or in seconds."""
        if in_samples:
            return self.work.count
        return sum(mean.count for kind in (self.epochs.packed, self.epochs.spanning) for mean in kind.values())

    def ordered(self) -> "JobMeasurements":
        """Return the same measurements, smallest sizes first, for a dump."""
        return replace(self, epochs=self.epochs.ordered(), samples=self.samples.ordered())

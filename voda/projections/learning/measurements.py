"""What one job has reported, and how well its category was predicted.

Work is counted in samples where jobs report their throughput, so that sizes compare though epochs differ; else in
epochs, taken to be alike.
"""

from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

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
    """Samples of its epochs, relative to what the same epochs of each of the categories have in the mean."""
    span: UndisturbedSpan = msgspec.field(default_factory=UndisturbedSpan, name="stretch")

    def length(self, key: str) -> float:
        """Return how long its epochs are, relative to those of one of its categories."""
        mean = self.lengths[self.categories.index(key)]
        return mean.settled if mean.count else 1.0

    def ordered(self) -> "JobMeasurements":
        """Return the same measurements, smallest sizes first, for a dump."""
        return replace(self, epochs=self.epochs.ordered(), samples=self.samples.ordered())


class Accuracy(NamedTuple):
    """How well voda predicted the work of a category's finished jobs when they were submitted."""

    jobs: int
    """Finished jobs that had a prediction."""
    mean_error: float
    """Mean of |predicted - measured| / measured, of a mean epoch's time on one replica."""

"""What was measured of a job or of a category: running means, and the values in force between two reviews.

Rule: estimates read only settled values. A mean settles when it has moved by a twentieth since it settled last, and
when the count passes a power of four and it has moved by a hundredth. So estimates change seldom, and when they
change is a matter of the log alone, not of when somebody asked.
"""

from typing import Final, NamedTuple

from msgspec import Struct

_MOVED: Final = 0.05
_MOVED_AT_REVIEW: Final = 0.01
_REVIEWS: Final = frozenset(4**power for power in range(1, 30))


class RunningMean(Struct):
    """A running mean of non-negative values."""

    count: int = 0
    mean: float = 0.0
    settled_count: int = 0
    settled: float = 0.0

    def add(self, value: float) -> bool:
        """Take in one value and return whether the settled mean changed."""
        count = self.count = self.count + 1
        mean = self.mean = self.mean + (value - self.mean) / count
        settled = self.settled
        moved = abs(mean - settled)
        if self.settled_count and moved <= (_MOVED_AT_REVIEW if count in _REVIEWS else _MOVED) * settled:
            return False
        self.settled, self.settled_count = mean, count
        return True


class EpochPace(Struct):
    """How the work in an epoch drifts as training goes on, for jobs that report their throughput."""

    samples: float = 0.0
    """In the first epoch reported; the unit in which the work of the others is counted."""
    latest: float = 1.0
    """Work in the last epoch, in that unit."""
    settled: float = 1.0

    def even_out(self, epoch_s: float, samples_per_s: float) -> tuple[float, bool]:
        """Return the seconds that the first epoch would take at this throughput, and whether `settled` changed."""
        samples = epoch_s * samples_per_s
        self.samples = self.samples or samples
        self.latest = samples / self.samples
        has_moved = abs(self.latest - self.settled) > _MOVED * self.settled
        if has_moved:
            self.settled = self.latest
        return self.samples / samples_per_s, has_moved


class Point(NamedTuple):
    """Seconds per epoch at one size."""

    workers: int
    epoch_s: float
    weight: float


class EpochMeans(Struct):
    """Seconds per epoch by number of workers, kept apart for workers on one node and on several."""

    packed: dict[int, RunningMean] = {}
    spanning: dict[int, RunningMean] = {}

    def add(self, workers: int, epoch_s: float, *, is_spanning: bool) -> bool:
        """Take in one undisturbed epoch and return whether a settled mean changed."""
        means = self.spanning if is_spanning else self.packed
        if (mean := means.get(workers)) is None:
            mean = means[workers] = RunningMean()
        return mean.add(epoch_s)

    def points(self) -> list[Point]:
        """Return the settled means, packed and spanning together, smallest size first."""
        if not self.spanning:
            return [Point(size, mean.settled, mean.settled_count) for size, mean in sorted(self.packed.items())]
        return [self._point(size) for size in sorted({*self.packed, *self.spanning})]

    def seconds(self, workers: int, *, is_spanning: bool) -> float | None:
        """Return the settled seconds per epoch, of the other kind of placement where this one was never seen."""
        first, second = (self.spanning, self.packed) if is_spanning else (self.packed, self.spanning)
        mean = first.get(workers) or second.get(workers)
        return mean.settled if mean else None

    def span_penalty(self) -> float | None:
        """Return the share by which epochs took longer on several nodes at the same size; None if never compared."""
        penalty, weights = 0.0, 0
        for size in sorted(self.packed.keys() & self.spanning.keys()):
            packed, spanning = self.packed[size], self.spanning[size]
            weight = min(packed.settled_count, spanning.settled_count)
            penalty += weight * (spanning.settled / packed.settled - 1.0)
            weights += weight
        return max(0.0, penalty / weights) if weights else None

    def ordered(self) -> "EpochMeans":
        """Return the same measurements, smallest sizes first, for a dump."""
        return EpochMeans(dict(sorted(self.packed.items())), dict(sorted(self.spanning.items())))

    def _point(self, size: int) -> Point:
        means = [mean for kind in (self.packed, self.spanning) if (mean := kind.get(size)) is not None]
        weight = sum(mean.settled_count for mean in means)
        return Point(size, sum(mean.settled * mean.settled_count for mean in means) / weight, weight)

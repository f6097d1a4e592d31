"""Running means that settle, and those of the seconds of a unit of work by number of workers.

Rule: a mean settles when it differs by a twentieth from the value it settled at last, or by a hundredth when its count
passes a power of four. So estimates change seldom, and the log alone says when, not the time of reading.
"""

import math
from typing import Final, NamedTuple

from msgspec import Struct

_TOLERANCE: Final = 0.05
_TOLERANCE_AT_REVIEW: Final = 0.01
_REVIEWS: Final = frozenset(4**power for power in range(1, 30))
_MOST_SIZES: Final = 64


class RunningMean(Struct):
    """A running mean of non-negative values."""

    count: int = 0
    mean: float = 0.0
    settled_count: int = 0
    settled: float = 0.0
    squares: float = 0.0
    """Sum of the squares of the differences from the mean (Welford 1962)."""

    def add(self, value: float) -> bool:
        """Take in one value and return whether the settled mean changed."""
        count, before = self.count + 1, self.mean
        mean = before + (value - before) / count
        self.count, self.mean = count, mean
        self.squares += (value - before) * (value - mean)
        settled = self.settled
        difference = abs(mean - settled)
        if self.settled_count and difference <= (_TOLERANCE_AT_REVIEW if count in _REVIEWS else _TOLERANCE) * settled:
            return False
        self.settled, self.settled_count = mean, count
        return True

    def error(self, prior: float) -> float:
        """Return the relative standard error of the mean; one value differs by `prior` of it before any is known."""
        if not self.count or not self.mean:
            return math.inf
        return math.sqrt((self.squares / self.mean**2 + prior**2) / self.count**2)


class LogSpread(Struct):
    """How far positive values of a kind lie apart: a standard deviation of their logarithms, which settles."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    settled: tuple[int, float] = (0, 0.0)
    """Count and squares."""

    def add(self, value: float, prior: float) -> bool:
        """Take in one value, > 0, and return whether the settled deviation changed."""
        log, before = math.log(value), self.mean
        self.count += 1
        self.mean += (log - before) / self.count
        self.squares += (log - before) * (log - self.mean)
        settled = self.deviation(prior)
        if abs(_deviation(self.count, self.squares, prior) - settled) <= _TOLERANCE * settled:
            return False
        self.settled = (self.count, self.squares)
        return True

    def deviation(self, prior: float) -> float:
        """Return the deviation of the next value from the mean of these, which count as one more of `prior`."""
        return _deviation(*self.settled, prior)


def _deviation(count: int, squares: float, prior: float) -> float:
    return math.sqrt((squares + prior**2) / (count + 1) * (1.0 + 1.0 / max(1, count)))


class Point(NamedTuple):
    """Seconds of a unit of work at one size."""

    workers: int
    seconds: float
    weight: float


class EpochMeans(Struct):
    """Seconds of a unit of work, an epoch or a sample, by number of workers, apart for one node and several.

    Of either kind the first so many sizes count: a program may report as many as it likes.
    """

    packed: dict[int, RunningMean] = {}
    spanning: dict[int, RunningMean] = {}

    def __bool__(self) -> bool:
        return bool(self.packed or self.spanning)

    def add(self, workers: int, seconds: float, *, is_spanning: bool) -> bool:
        """Take in one measurement without a change of the workers and return whether a settled mean changed."""
        means = self.spanning if is_spanning else self.packed
        if (mean := means.get(workers)) is None:
            if len(means) >= _MOST_SIZES:
                return False
            mean = means[workers] = RunningMean()
        return mean.add(seconds)

    def points(self) -> list[Point]:
        """Return the settled means, packed and spanning together, smallest size first."""
        if not self.spanning:
            return [Point(size, mean.settled, mean.settled_count) for size, mean in sorted(self.packed.items())]
        return [self._point(size) for size in sorted({*self.packed, *self.spanning})]

    def seconds(self, workers: int, *, is_spanning: bool) -> float | None:
        """Return the settled seconds of a unit; of the other kind of placement where this one was never measured."""
        first, second = (self.spanning, self.packed) if is_spanning else (self.packed, self.spanning)
        mean = first.get(workers) or second.get(workers)
        return mean.settled if mean else None

    def span_penalty(self) -> float | None:
        """Return the share by which work took longer on several nodes at the same size; None if never compared."""
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

"""What was measured of a job or of a category: running means, settled values, and what restarts cost.

Rules: a mean settles when it differs by a twentieth from the value it settled at last, or by a hundredth when its count
passes a power of four. So estimates change seldom, and the log alone says when, not the time of reading.
A start, resize or migration costs the running time beyond what the reported epochs would have taken. A sample of it
needs exactly one change of the workers between two reports. Only the job's own undisturbed epochs say what it cost,
because jobs of one category may differ in length. Work that a restart lost is part of its cost.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

_TOLERANCE: Final = 0.05
_TOLERANCE_AT_REVIEW: Final = 0.01
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
        difference = abs(mean - settled)
        if self.settled_count and difference <= (_TOLERANCE_AT_REVIEW if count in _REVIEWS else _TOLERANCE) * settled:
            return False
        self.settled, self.settled_count = mean, count
        return True


class EpochDrift(Struct):
    """How the work in an epoch changes as training goes on, for jobs that report their throughput."""

    samples: float = 0.0
    """In the first epoch reported; the unit in which the work of the others is counted."""
    latest: float = 1.0
    """Work in the last epoch, in that unit."""
    settled: float = 1.0

    def normalise(self, epoch_s: float, samples_per_s: float) -> tuple[float, bool]:
        """Return the seconds that the first epoch would take at this throughput, and whether `settled` changed."""
        samples = epoch_s * samples_per_s
        self.samples = self.samples or samples
        self.latest = samples / self.samples
        has_changed = abs(self.latest - self.settled) > _TOLERANCE * self.settled
        if has_changed:
            self.settled = self.latest
        return self.samples / samples_per_s, has_changed


class Point(NamedTuple):
    """Seconds per epoch at one size."""

    workers: int
    epoch_s: float
    weight: float


class EpochMeans(Struct):
    """Seconds per epoch by number of workers, apart for workers on one node and on several."""

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
        """Return the settled seconds per epoch; of the other kind of placement where this one was never measured."""
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


_ONE_CHANGE_S: Final = 5.0
"""Worker events closer together than this are one change, observed pod by pod."""
_MOST_EPOCHS: Final = 3.0
"""The noise of more epochs than this outweighs a restart."""


class RestartSample(Struct, frozen=True):
    """Running time between two reports, before and after the one change in between."""

    epochs: float
    before_s: float
    before_workers: int
    was_spanning: bool
    after_s: float
    workers: int
    is_spanning: bool


class UndisturbedSpan(Struct, kw_only=True):
    """A job's workers, and its running time since its last report; changed in place."""

    workers: dict[int, str] = {}
    size: int = 0
    """Number of the workers now, or of the last ones."""
    is_spanning: bool = False
    """Of the same workers as the size."""
    epochs_done: float = 0.0
    counted_at: float = 0.0
    ran_s: float = 0.0
    """Since the last report or change."""
    changes: int = 0
    changed_at: float = -math.inf
    before_s: float = 0.0
    before_workers: int = 0
    was_spanning: bool = False
    sample: RestartSample | None = None
    """The last one, until its cost is taken."""

    def start(self, workers: Mapping[int, str], now: float) -> None:
        """Add workers that started: a start, a growth, or the arrival of moved ones."""
        self._change(now)
        self._set(dict(sorted({**self.workers, **workers}.items())))

    def exit(self, workers: tuple[int, ...], now: float, *, is_migration: bool) -> None:
        """Remove workers; those of a migration, or the last ones, are no change before others start."""
        left = {index: node for index, node in self.workers.items() if index not in workers}
        if left and not is_migration:
            self._change(now)
        else:
            self._count(now)
        self._set(left)

    def report(self, epochs_done: float, workers: int, now: float) -> None:
        """Take in a report, and keep a sample if there was exactly one change since the last one."""
        if self.changes:
            self._count(now)
            epochs = epochs_done - self.epochs_done
            if self.changes == 1 and 0.0 < epochs <= _MOST_EPOCHS and workers == len(self.workers):
                self.sample = RestartSample(
                    epochs,
                    self.before_s,
                    self.before_workers,
                    self.was_spanning,
                    self.ran_s,
                    workers,
                    self.is_spanning,
                )
            self.changes = 0
        self.ran_s, self.counted_at, self.epochs_done = 0.0, now, epochs_done

    def work_since_report(self, now: float, restart_s: float) -> Sequence[tuple[int, bool, float]]:
        """Return the work since its last report: workers, whether they spanned nodes, seconds of training.

        `now` is not before the last event; each change of the workers costs `restart_s`.
        """
        ran_s = self.ran_s + (max(0.0, now - self.counted_at) if self.workers else 0.0)
        if not self.changes:
            return [(self.size, self.is_spanning, ran_s)]
        before = (self.before_workers, self.was_spanning, self.before_s)
        return [before, (self.size, self.is_spanning, max(0.0, ran_s - restart_s))]

    def take_cost(self, own: EpochMeans, drift: float) -> float | None:
        """Return the seconds that the sampled change cost, >= 0, and drop the sample; None while unknown.

        `own` is what the job's own epochs took, `drift` what they take now, relative to that.
        """
        if (sample := self.sample) is None:
            return None
        epoch_s = own.seconds(sample.workers, is_spanning=sample.is_spanning)
        before_epoch_s = own.seconds(sample.before_workers, is_spanning=sample.was_spanning)
        if epoch_s is None or (before_epoch_s is None and sample.before_s > 0):
            return None
        self.sample = None
        done_before = sample.before_s / (before_epoch_s * drift) if before_epoch_s else 0.0
        return max(0.0, sample.after_s - max(0.0, sample.epochs - done_before) * epoch_s * drift)

    def _change(self, now: float) -> None:
        self._count(now)
        if now - self.changed_at <= _ONE_CHANGE_S and self.changes:
            return
        self.changed_at = now
        self.changes += 1
        if self.changes == 1:
            self.before_s, self.before_workers, self.was_spanning = self.ran_s, self.size, self.is_spanning
            self.ran_s = 0.0

    def _count(self, now: float) -> None:
        if self.workers:
            self.ran_s += max(0.0, now - self.counted_at)
        self.counted_at = now

    def _set(self, workers: dict[int, str]) -> None:
        self.workers = workers
        if workers:
            self.size, self.is_spanning = len(workers), len(set(workers.values())) > 1

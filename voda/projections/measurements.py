"""What was measured of a job or of a category: running means, settled values, work by epoch, and what restarts cost.

Work is counted in samples where jobs report their throughput, so that sizes compare though epochs differ; else in
epochs, taken to be alike.
Rules: a mean settles when it differs by a twentieth from the value it settled at last, or by a hundredth when its count
passes a power of four. So estimates change seldom, and the log alone says when, not the time of reading.
A start, resize or migration costs the running time beyond what the reported epochs would have taken. A sample of it
needs exactly one change of the workers between two reports. Only the job's own undisturbed epochs say what it cost,
because jobs of one category may differ in length. Work that a restart lost is part of its cost.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

_TOLERANCE: Final = 0.05
_TOLERANCE_AT_REVIEW: Final = 0.01
_REVIEWS: Final = frozenset(4**power for power in range(1, 30))
_MOST_SIZES: Final = 64
_MOST_EPOCHS_APART: Final = 256
MOST_CATEGORIES_OF_USER: Final = 1_000
MOST_CATEGORIES: Final = 20_000
OF_USER: Final = "\n"
"""Between user and category in a key: no category holds it."""


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


class EpochWork(Struct):
    """Samples in an epoch, by its number, counted from 0; of a job or a category.

    An epoch that was never seen counts as the last one seen before it, else as the first one seen after it.
    """

    epochs: dict[int, RunningMean] = {}
    """The first so many epochs: later ones rarely differ, and a program may report as many as it likes."""

    def add(self, epoch: int, samples: float) -> bool:
        """Take in one epoch and return whether a settled mean changed."""
        if not 0 <= epoch < _MOST_EPOCHS_APART:
            return False
        if (mean := self.epochs.get(epoch)) is None:
            mean = self.epochs[epoch] = RunningMean()
        return mean.add(samples)

    def samples(self, epoch: int) -> float | None:
        """Return the samples of an epoch; None if none was seen."""
        if (mean := self.epochs.get(epoch)) is not None:
            return mean.settled
        if not self.epochs:
            return None
        before = max((seen for seen in self.epochs if seen < epoch), default=min(self.epochs))
        return self.epochs[before].settled

    def left(self, done: float, epochs: float) -> float | None:
        """Return the samples from `done` epochs to the end of the last of `epochs`; None if no epoch was seen."""
        if not self.epochs:
            return None
        # Steps of a function of the number of epochs: each seen epoch holds until the next one that was seen.
        seen = sorted(self.epochs)
        ends = [*seen[1:], math.inf]
        total = max(0.0, min(seen[0], epochs) - done) * self.epochs[seen[0]].settled
        for epoch, end in zip(seen, ends, strict=True):
            total += max(0.0, min(end, epochs) - max(epoch, done)) * self.epochs[epoch].settled
        return total

    def ordered(self) -> "EpochWork":
        """Return the same measurements, first epochs first, for a dump."""
        return EpochWork(dict(sorted(self.epochs.items())))


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


class CategoryMeasurements(Struct, kw_only=True):
    """What jobs of one category reported."""

    epochs: EpochMeans = msgspec.field(default_factory=EpochMeans)
    """Seconds of an epoch."""
    samples: EpochMeans = msgspec.field(default_factory=EpochMeans)
    """Seconds of a sample, of jobs that report their throughput."""
    work: EpochWork = msgspec.field(default_factory=EpochWork)
    restart_s: RunningMean = msgspec.field(default_factory=RunningMean)
    error: RunningMean = msgspec.field(default_factory=RunningMean)
    brought_by: str = ""
    """Of a category of all users: the user whose job it began with; empty: nobody is named."""

    def ordered(self) -> "CategoryMeasurements":
        """Return the same measurements, smallest sizes and first epochs first, for a dump."""
        return replace(self, epochs=self.epochs.ordered(), samples=self.samples.ordered(), work=self.work.ordered())


def user_of(key: str) -> str:
    """Return the user whose category a key means; empty for that of all users."""
    user, of_user, _ = key.partition(OF_USER)
    return user if of_user else ""


class Categories:
    """What was measured of each category, by its key: its name for that of all users, with a user before it for theirs.

    Where there are too many, those used longest ago are forgotten: of a user who has more than one may, else of whoever
    has most, where those of all users count as one user's. So nobody's own are forgotten for another's. Of those of all
    users, as many may have begun with one user; who brings more loses their own, so that nobody empties the rest.
    """

    def __init__(self, most_of_user: int = MOST_CATEGORIES_OF_USER, most: int = MOST_CATEGORIES) -> None:
        self._most_of_user = most_of_user
        self._most = most
        self._of: dict[str, dict[str, CategoryMeasurements]] = {}
        """User, empty for all users -> key -> measurements, those used last at the end."""
        self._brought: dict[str, dict[str, None]] = {}
        """User -> categories of all users that they brought, those used last at the end."""
        self._count = 0

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> CategoryMeasurements | None:
        return self._of.get(user_of(key), {}).get(key)

    def use(self, key: str, user: str) -> CategoryMeasurements:
        """Return the measurements of a category for a user's job to change; from now on it is the one used last."""
        own = self._of.setdefault(user_of(key), {})
        if (found := own.pop(key, None)) is None:
            found = CategoryMeasurements(brought_by="" if user_of(key) else user)
            self._count += 1
        own[key] = found
        if found.brought_by:
            brought = self._brought.setdefault(found.brought_by, {})
            brought.pop(key, None)
            brought[key] = None
        return found

    def surplus(self, key: str) -> Iterator[str]:
        """Forget what is too much now that a category is used, and yield the keys."""
        user = user_of(key)
        of_one = self._of[user] if user else self._brought.get(self._of[user][key].brought_by, {})
        while (has_too_many := len(of_one) > self._most_of_user) or self._count > self._most:
            oldest = next(iter(of_one if has_too_many else max(self._of.values(), key=len)))
            self._forget(oldest)
            yield oldest

    def of_all_users(self) -> Mapping[str, CategoryMeasurements]:
        """Return the categories of all users by name, read-only."""
        return self._of.get("", {})

    def dump(self) -> Mapping[str, CategoryMeasurements]:
        """Return all, users sorted, and of each those used last at the end: that order is part of the state."""
        return {key: one for _, own in sorted(self._of.items()) for key, one in own.items()}

    def load(self, state: Mapping[str, CategoryMeasurements]) -> None:
        """Take over what `dump` returned."""
        self._of, self._brought, self._count = {}, {}, len(state)
        for key, one in state.items():
            self._of.setdefault(user_of(key), {})[key] = one
            if one.brought_by:
                self._brought.setdefault(one.brought_by, {})[key] = None

    def _forget(self, key: str) -> None:
        gone = self._of[user_of(key)].pop(key)
        self._count -= 1
        if gone.brought_by:
            brought = self._brought[gone.brought_by]
            del brought[key]
            if not brought:
                del self._brought[gone.brought_by]


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

    def take_cost(self, own: EpochMeans, epoch_units: float) -> float | None:
        """Return the seconds that the sampled change cost, >= 0, and drop the sample; None while unknown.

        `own` is what a unit of the job's own work took, `epoch_units` how many of them an epoch has now.
        """
        if (sample := self.sample) is None:
            return None
        unit_s = own.seconds(sample.workers, is_spanning=sample.is_spanning)
        before_s = own.seconds(sample.before_workers, is_spanning=sample.was_spanning)
        if unit_s is None or (before_s is None and sample.before_s > 0):
            return None
        self.sample = None
        done_before = sample.before_s / (before_s * epoch_units) if before_s and epoch_units else 0.0
        return max(0.0, sample.after_s - max(0.0, sample.epochs - done_before) * unit_s * epoch_units)

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

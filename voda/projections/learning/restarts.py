"""A job's running time since its last report, and what a change of its workers cost.

A start, resize or migration costs the running time beyond what the reported epochs would have taken. A sample of it
needs exactly one change of the workers between two reports. Only the job's own undisturbed epochs say what it cost,
because jobs of one category may differ in length. Work that a restart lost is part of its cost.
Rule: what a category's restarts cost is the median of the last ones, so that no single measurement counts, and none
beyond an hour is believed.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from voda.projections.learning.means import EpochMeans

_ONE_CHANGE_S: Final = 5.0
"""Worker events closer together than this are one change, observed pod by pod."""
_MOST_EPOCHS: Final = 3.0
"""The noise of more epochs than this outweighs a restart."""
_MOST_COST_S: Final = 3600.0
_RECENT: Final = 15
_TOLERANCE: Final = 0.05
_ONE_DEVIATION: Final = 0.6827
"""The share of values of a normal distribution within its standard deviation."""


class RestartCosts(Struct):
    """What the last restarts cost, seconds."""

    recent: list[float] = []
    """The newest at the end."""
    settled: float = 0.0
    spread: float = math.inf
    """The factor within which two of three lay around the settled cost when either changed; infinite for one cost."""

    def add(self, cost_s: float) -> bool:
        """Take in one cost and return whether the settled one, or its spread, changed."""
        self.recent = [*self.recent, cost_s][-_RECENT:]
        median = statistics.median(self.recent)
        settled = self.settled if abs(median - self.settled) <= _TOLERANCE * self.settled else median
        spread = self._spread(settled)
        if settled == self.settled and math.isclose(spread, self.spread, rel_tol=_TOLERANCE):
            return False
        self.settled, self.spread = settled, spread
        return True

    def _spread(self, settled: float) -> float:
        if len(self.recent) < 2 or settled <= 0:
            return math.inf
        factors = sorted(max(cost, settled) / max(min(cost, settled), 1e-3) for cost in self.recent)
        return factors[math.ceil(_ONE_DEVIATION * len(factors)) - 1]


class RestartSample(Struct, frozen=True):
    """Running time between two reports, before and after the one change in between."""

    epochs: float
    before_s: float
    before_workers: int
    was_spanning: bool
    after_s: float
    workers: int
    is_spanning: bool
    epoch: int
    """The one that was trained, counted from 0."""


class UndisturbedSpan(Struct, kw_only=True):
    """A job's workers, and its running time since its last report; changed in place."""

    workers: dict[int, str] = {}
    size: int = 0
    """Number of the workers now, or of the last ones."""
    started_at: float = -math.inf
    """When the first of them started while there were none."""
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
        if not self.workers:
            self.started_at = now
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

    def begin_anew(self, now: float) -> None:
        """Take in that the program began anew on the same workers: what it lost and waited is in no sample."""
        self._change(now)
        self.changes = max(self.changes, 2)

    def report(self, epochs_done: float, workers: int, now: float) -> None:
        """Take in a report, and keep a sample if there was exactly one change since the last one.

        Fewer epochs than before were lost by that change.
        """
        if self.changes:
            self._count(now)
            epochs = epochs_done - self.epochs_done
            if self.changes == 1 and epochs and abs(epochs) <= _MOST_EPOCHS and workers == len(self.workers):
                self.sample = RestartSample(
                    epochs,
                    self.before_s,
                    self.before_workers,
                    self.was_spanning,
                    self.ran_s,
                    workers,
                    self.is_spanning,
                    max(0, math.ceil(epochs_done) - 1),
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
        """Return the seconds that the sampled change cost, >= 0, and drop the sample; None while unknown, or where
        nobody can believe it.

        `own` is what a unit of the job's own work took, `epoch_units` how many of them the sampled epoch has.
        """
        if (sample := self.sample) is None:
            return None
        unit_s = own.seconds(sample.workers, is_spanning=sample.is_spanning)
        before_s = own.seconds(sample.before_workers, is_spanning=sample.was_spanning)
        if unit_s is None or (before_s is None and sample.before_s > 0):
            return None
        self.sample = None
        done_before = sample.before_s / (before_s * epoch_units) if before_s and epoch_units else 0.0
        done_since = sample.epochs - done_before
        if sample.epochs > 0:
            done_since = max(0.0, done_since)
        cost_s = max(0.0, sample.after_s - done_since * unit_s * epoch_units)
        return cost_s if cost_s <= _MOST_COST_S else None

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
        if now < self.counted_at:
            # The clock was set back: what ran in between is not known.
            self.changes = max(self.changes, 2)
        if self.workers:
            self.ran_s += max(0.0, now - self.counted_at)
        self.counted_at = now

    def _set(self, workers: dict[int, str]) -> None:
        self.workers = workers
        if workers:
            self.size, self.is_spanning = len(workers), len(set(workers.values())) > 1

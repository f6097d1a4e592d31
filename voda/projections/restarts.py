"""What a start, resize or migration costs: running time beyond what the epochs reported would have taken.

Rule: a sample is taken only where exactly one change of the workers fell between two reports, and it is judged by
the job's own undisturbed epochs alone, because jobs of one category may differ in length. Work that a restart
lost is part of its cost.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from voda.projections.running_means import EpochMeans

_ONE_CHANGE_S: Final = 5.0
"""Worker events closer together than this are one change, seen pod by pod."""
_MOST_EPOCHS: Final = 3.0
"""Over more epochs than this, their own noise outweighs a restart."""


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
    """Of the workers now, or of the last there were."""
    is_spanning: bool = False
    """As for the size."""
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
    """The last one, until it can be judged."""

    def start(self, workers: Mapping[int, str], now: float) -> None:
        """Note that workers started: a start, a growth, or the arrival of moved ones."""
        self._change(now)
        self._set(dict(sorted({**self.workers, **workers}.items())))

    def exit(self, workers: tuple[int, ...], now: float, *, is_migration: bool) -> None:
        """Note that workers went; those of a migration, or the last ones, are no change before others start."""
        left = {index: node for index, node in self.workers.items() if index not in workers}
        if left and not is_migration:
            self._change(now)
        else:
            self._count(now)
        self._set(left)

    def report(self, epochs_done: float, workers: int, now: float) -> None:
        """Note a report, and keep a sample if there was exactly one change since the last one."""
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

    def unreported(self, now: float, restart_s: float) -> Sequence[tuple[int, bool, float]]:
        """Return what it has worked since its last report: workers, whether they spanned nodes, seconds of training.

        Args:
            now: not before the last event.
            restart_s: what a change of the workers costs.
        """
        ran_s = self.ran_s + (max(0.0, now - self.counted_at) if self.workers else 0.0)
        if not self.changes:
            return [(self.size, self.is_spanning, ran_s)]
        before = (self.before_workers, self.was_spanning, self.before_s)
        return [before, (self.size, self.is_spanning, max(0.0, ran_s - restart_s))]

    def judged(self, own: EpochMeans, pace: float) -> float | None:
        """Return the seconds that the sampled change cost, >= 0, and drop the sample; None while unknown.

        Args:
            own: what the job's own epochs took.
            pace: what they take now, relative to that.
        """
        if (sample := self.sample) is None:
            return None
        epoch_s = own.seconds(sample.workers, is_spanning=sample.is_spanning)
        before_epoch_s = own.seconds(sample.before_workers, is_spanning=sample.was_spanning)
        if epoch_s is None or (before_epoch_s is None and sample.before_s > 0):
            return None
        self.sample = None
        done_before = sample.before_s / (before_epoch_s * pace) if before_epoch_s else 0.0
        return max(0.0, sample.after_s - max(0.0, sample.epochs - done_before) * epoch_s * pace)

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

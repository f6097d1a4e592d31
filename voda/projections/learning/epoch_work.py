"""How many samples each epoch of a job has, by its number: first epochs may be many times as long as later ones."""

import math
from typing import Final

from msgspec import Struct

from voda.projections.learning.means import RunningMean

_MOST_EPOCHS_APART: Final = 256


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

    @property
    def end(self) -> int:
        """The number of the epoch behind the last one seen; 0: none was."""
        return max(self.epochs) + 1 if self.epochs else 0

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

    def unseen(self, done: float, epochs: float) -> float:
        """Return the share of the epochs left that lies behind the last one seen."""
        return max(0.0, epochs - max(self.end, done)) / (epochs - done) if epochs > done else 0.0

    def ordered(self) -> "EpochWork":
        """Return the same measurements, first epochs first, for a dump."""
        return EpochWork(dict(sorted(self.epochs.items())))

"""How a job of the simulated world trains: pure.

Rule: it goes on only while all of its workers run; what a lost worker had done since the last epoch is lost.
"""

from msgspec import Struct

from voda.domain.rng import rng_at

_POWER = 0.85
"""Of the number of workers, by which an epoch gets shorter."""


class Training(Struct, kw_only=True):
    """Where a job stands."""

    epochs: int
    epoch_s: float
    """On one worker."""
    done: int = 0
    part: float = 0.0
    """Of the epoch under way."""
    workers: int = 0
    """At work; 0 = it stands still."""
    since_s: float = 0.0
    """From which on it goes on like this."""
    turn: int = 0
    """Counts the changes, so that an alarm that was set before one is known to be void."""

    @property
    def left_s(self) -> float:
        """Seconds to the end of the epoch, from `since_s` on."""
        return (1.0 - self.part) * self.epoch_s / self._speedup

    @property
    def _speedup(self) -> float:
        return float(self.workers**_POWER)

    def go_on(self, workers: int, now_s: float, *, falls_back: bool = False) -> None:
        """Go on with so many workers."""
        if self.workers:
            self.part += (now_s - self.since_s) * self._speedup / self.epoch_s
        self.part = 0.0 if falls_back else min(self.part, 1.0)
        self.workers, self.since_s = workers, now_s
        self.turn += 1

    def end_epoch(self, now_s: float) -> None:
        """Begin the next epoch."""
        self.done, self.part, self.since_s = self.done + 1, 0.0, now_s
        self.turn += 1

    @property
    def is_done(self) -> bool:
        """Whether no epoch is left."""
        return self.done >= self.epochs


def training_of(seed: int, job_id: str, epochs: int) -> Training:
    """Return how a job begins.

    Args:
        seed: of the run.
        job_id: draws its pace.
        epochs: that its owner asked for; 0 = drawn.
    """
    chance = rng_at(seed, f"training {job_id}")
    return Training(epochs=epochs or chance.randint(2, 5), epoch_s=chance.choice([30.0, 90.0, 240.0, 600.0]))

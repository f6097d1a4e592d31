"""What the callbacks share: how epochs are timed and reported, and how many processes train together.

Rule: rank and size come from the variables that launchers set; where none is, this is the only process, of rank 0.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from voda.report import flush, report

_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK", "PMI_RANK")
SOON_S, EVERY_S = 10.0, 60.0
"""Seconds from a change of the workers to the report of it, and from each report to the next within an epoch."""
_DEPTH = 4
"""Of lists and mappings in a batch."""
_SIZES = ("OMPI_COMM_WORLD_SIZE", "WORLD_SIZE", "PMI_SIZE")


def rank() -> int:
    """Return this process's rank."""
    return _first(_RANKS, 0)


def world_size() -> int:
    """Return the number of processes, 1 or more."""
    return max(1, _first(_SIZES, 1))


class EpochReporter:
    """The half of a callback that no framework knows: only an epoch whose every step was seen has a time.

    Within an epoch, a report is due soon after the start and after each change of the workers, then every minute.
    """

    _began: float | None = None
    _last_at: float | None = None
    """When the step before ended, or the epoch began."""
    _steps = 0
    _samples: float | None = 0.0
    """Of this epoch, those of all workers; None: of some step nobody knows them."""
    _workers = 0
    _due_at = 0.0
    _steps_since = 0
    """Since the last change of the workers, as the two below; the first step, which waits for the others, left out."""
    _samples_since: float | None = 0.0
    _trained_s = 0.0

    def begin_epoch(self) -> None:
        """Begin to time."""
        self._began = self._last_at = time.perf_counter()
        self._steps, self._samples = 0, 0.0

    def count_step(self, workers: int, samples: float | None = None) -> bool:
        """Count a step of this epoch, with the samples of all workers, and say whether a report is due."""
        now = time.perf_counter()
        self._steps += 1
        self._samples = _sum(self._samples, samples)
        step_s = now - self._last_at if self._last_at is not None else None
        self._last_at = now
        if workers != self._workers:
            # An epoch into which a change fell has no time that belongs to a size.
            self._began = self._began if not self._workers else None
            self._workers, self._due_at = workers, now + SOON_S
            self._steps_since, self._samples_since, self._trained_s = 0, 0.0, 0.0
        elif step_s is not None:
            self._steps_since += 1
            self._samples_since = _sum(self._samples_since, samples)
            self._trained_s += step_s
        return now >= self._due_at and self._trained_s > 0

    def report_share(self, done: float, *, steps: float) -> None:
        """Report the epochs done within an epoch of so many steps, and the throughput since the last change of the
        workers.
        """
        self._due_at = time.perf_counter() + EVERY_S
        # The end of an epoch has a report of its own.
        if not float(done).is_integer():
            report(
                round(done, 6),
                None,
                self._workers,
                step_time_s=self._trained_s / self._steps_since,
                samples_per_s=self._rate_since(),
                epoch_samples=self._epoch_samples(steps),
            )

    def report_epoch(self, done: float, workers: int, metrics: object, *, steps: float) -> None:
        """Report the epochs done since the job's beginning: 2.5 is half of the third.

        A whole one has `steps`; 0 where nobody knows how many.
        """
        now, (began, self._began) = time.perf_counter(), (self._began, None)
        is_whole = float(done).is_integer() and self._steps >= steps
        taken_s = now - began if began is not None and is_whole else None
        rate = self._rate_since()
        if taken_s:
            rate = self._samples / taken_s if self._samples else None
            self._due_at = now + EVERY_S
        samples = self._epoch_samples(steps) if steps else None
        report(done, taken_s, workers, numbers(metrics), samples_per_s=rate, epoch_samples=samples)

    def _rate_since(self) -> float | None:
        """Return the samples per second since the last change of the workers."""
        return self._samples_since / self._trained_s if self._samples_since and self._trained_s else None

    def _epoch_samples(self, steps: float) -> float | None:
        """Return the samples of an epoch of so many steps, were all as those since the last change."""
        return self._samples_since / self._steps_since * steps if self._samples_since and self._steps_since else None

    def on_train_end(self, *_args: object, **_others: object) -> None:
        """Wait a moment for the last report."""
        flush()


def samples_in(batch: object) -> int | None:
    """Return the samples of a batch: the length of its first tensor; None where it has none."""
    for _ in range(_DEPTH):
        shape = getattr(batch, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else None
        parts = list(batch.values()) if isinstance(batch, Mapping) else batch
        if not isinstance(parts, (list, tuple)) or not parts:
            return None
        batch = parts[0]
    return None


def _sum(so_far: float | None, more: float | None) -> float | None:
    return None if so_far is None or more is None else so_far + more


def numbers(metrics: object) -> dict[str, float]:
    """Return the numbers in a framework's logs; tensors of one value are numbers."""
    found: dict[str, float] = {}
    for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
        try:
            found[str(name)] = float(value)
        except (TypeError, ValueError, RuntimeError):
            continue
    return found


def _first(names: tuple[str, ...], default: int) -> int:
    found = (os.environ.get(name, "") for name in names)  # noqa: TID251 - runs in the training program
    return next((int(text) for text in found if text.isdigit()), default)

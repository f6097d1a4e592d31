"""What the callbacks share: how epochs are timed and reported, and how many processes train together.

Rule: rank and size come from the variables that launchers set; where none is, this is the only process, of rank 0.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from voda.report import flush, report

_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK", "PMI_RANK")
_SIZES = ("OMPI_COMM_WORLD_SIZE", "WORLD_SIZE", "PMI_SIZE")


def rank() -> int:
    """Return this process's rank."""
    return _first(_RANKS, 0)


def world_size() -> int:
    """Return the number of processes, 1 or more."""
    return max(1, _first(_SIZES, 1))


class EpochReporter:
    """The half of a callback that no framework knows: only an epoch whose every step was seen has a time."""

    _began: float | None = None
    _steps = 0

    def begin_epoch(self) -> None:
        """Begin to time."""
        self._began, self._steps = time.perf_counter(), 0

    def count_step(self) -> None:
        """Count a step of this epoch."""
        self._steps += 1

    def report_epoch(self, done: float, workers: int, metrics: object, *, steps: float) -> None:
        """Report the epochs done since the job's beginning: 2.5 is half of the third. A whole one has `steps`."""
        began, self._began = self._began, None
        is_whole = float(done).is_integer() and self._steps >= steps
        taken_s = time.perf_counter() - began if began is not None and is_whole else None
        report(done, taken_s, workers, numbers(metrics))

    def on_train_end(self, *_args: object, **_others: object) -> None:
        """Wait a moment for the last report."""
        flush()


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

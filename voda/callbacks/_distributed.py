"""How many processes train together and which one this is, from the variables that launchers set.

Rule: where none is set, this is the only process, of rank 0.
"""

import os
import time
from collections.abc import Mapping

_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK", "PMI_RANK")
_SIZES = ("OMPI_COMM_WORLD_SIZE", "WORLD_SIZE", "PMI_SIZE")


def rank() -> int:
    """Return this process's rank."""
    return _first(_RANKS, 0)


def world_size() -> int:
    """Return the number of processes, 1 or more."""
    return max(1, _first(_SIZES, 1))


class EpochTimer:
    """Times epochs; an epoch whose beginning it did not see has no time."""

    def __init__(self) -> None:
        self._began: float | None = None

    def begin(self) -> None:
        """Note the beginning of an epoch."""
        self._began = time.perf_counter()

    def end(self) -> float | None:
        """Return the seconds since the beginning; None if there was none."""
        began, self._began = self._began, None
        return None if began is None else time.perf_counter() - began


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

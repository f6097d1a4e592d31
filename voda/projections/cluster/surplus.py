"""How long GPUs beyond what jobs need at least are there until a job starts on them, from what plans start and release.

A start takes those that are there for the shortest time; a job that ends, or is preempted, leaves its minimum. Rules:
each event costs O(1); where virtual clusters share a pool nothing is kept, for one says nothing of the others.
"""

import math
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import Gpus
from voda.domain.state import Surplus

_MOST_RUNS: Final = 32
_FEWEST_STARTS: Final = 3
"""That show something."""
_LATELY: Final = 8
"""Starts that the mean is about."""


class SurplusHistory(Struct, kw_only=True):
    """The surplus of one pool, and what it is folded from; changed in place."""

    surplus: Surplus = Surplus()
    starts: int = 0
    mean_s: float = 0.0

    def leave(self, gpus: Gpus, at: float) -> None:
        """Note that a job leaves so many GPUs."""
        if not gpus:
            return
        runs = (*self.surplus.runs, (at, gpus))
        if len(runs) > _MOST_RUNS:
            (since, older), (_, newer), *others = runs
            runs = ((since, Gpus(older + newer)), *others)
        self.surplus = replace(self.surplus, runs=runs)

    def take(self, gpus: Gpus, at: float) -> None:
        """Note that a job starts that needs at least so many GPUs."""
        if not gpus:
            return
        self.starts += 1
        if self.starts == 1:
            self.surplus = replace(self.surplus, begun_at=at, taken_at=at)
            return
        runs, lacking, lasted_gpu_s = list(self.surplus.runs), gpus, 0.0
        while lacking and runs:
            since, there = runs.pop()
            used = Gpus(min(lacking, there))
            lasted_gpu_s += used * max(0.0, at - since)
            lacking = Gpus(lacking - used)
            if used < there:
                runs.append((since, Gpus(there - used)))
        lasted_s = (lasted_gpu_s + lacking * max(0.0, at - self.surplus.begun_at)) / gpus
        self.mean_s += (lasted_s - self.mean_s) / min(self.starts - 1, _LATELY)
        known_s = self.mean_s if self.starts > _FEWEST_STARTS else math.inf
        self.surplus = replace(self.surplus, runs=tuple(runs), taken_at=at, lasted_s=known_s)

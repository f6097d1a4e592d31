"""What is believed of a job's future: how it scales, and how long it still needs."""

import math
from collections.abc import Sequence

from msgspec import Struct


class Estimate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Execution-time estimate of one job; made by the learning projection, read by policies and placers."""

    speedup: Sequence[float]
    """T(n): shape (max_replicas + 1,), speedup on n replicas relative to one; T(0) = 0."""
    remaining_s: float = math.inf
    """W: seconds left on ONE replica; infinite when nothing is known."""
    resize_cost_s: float = 0.0
    """Seconds of training lost by one start, resize or migration of this kind of job."""
    span_penalty: float = 0.0
    """Share by which an epoch takes longer when the workers span nodes; 0.25 means a quarter longer."""
    is_assumed: bool = True
    """Whether the speedup is a guess (linear), not measured."""

    def time_left_s(self, replicas: int) -> float:
        """Return the seconds left on `replicas` workers, 0 <= replicas <= max_replicas; infinite at 0."""
        speed = self.speedup[replicas]
        return self.remaining_s / speed if speed > 0 else math.inf


def linear_speedup(max_replicas: int) -> tuple[float, ...]:
    """Return T(n) = n for n in 0..max_replicas: what is assumed of a job never seen."""
    return tuple(float(n) for n in range(max_replicas + 1))

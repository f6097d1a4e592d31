"""How an epoch's time falls with the number of workers: a law fitted to what was measured.

n * epoch(n) = e1 * (1 + a (n - 1) + b n (n - 1)), with e1, a, b >= 0: the universal scalability law (Gunther 2007),
which covers linear scaling (a = b = 0), Amdahl's law (b = 0) and retrograde scaling (b > 0). It is linear in e1,
e1 a and e1 b, hence a non-negative least-squares problem. Rule: speedups are finite and, but for T(0), positive.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from voda.projections.running_means import Point

_PULL_A = 1e-5
_PULL_B = 1e-3
"""Weights that pull a and b to 0 where the measurements leave them open, b first: one size means linear scaling."""
_LEAST_E1 = 1e-3
"""Of the time an epoch takes on all workers of the first point; keeps a and b finite where only they are seen."""


class ScalingLaw(Struct, frozen=True):
    """T(n) = n / (1 + a (n - 1) + b n (n - 1))."""

    e1: float
    """Seconds of an epoch on one worker."""
    a: float
    b: float

    def speedup(self, workers: int) -> float:
        """Return T(n), n >= 1."""
        return workers / (1.0 + (workers - 1) * (self.a + self.b * workers))


class Scaling(Struct, frozen=True):
    """What is believed of a job: seconds of an epoch on one worker, and T(n) up to some size."""

    e1: float
    speedup: tuple[float, ...]
    """Shape (max_replicas + 1,)."""
    is_assumed: bool
    """Whether fewer than two sizes were ever measured, so that T is a guess."""


def fit_law(points: Sequence[Point]) -> ScalingLaw:
    """Return the law closest to the points, by relative error.

    Args:
        points: at least one; distinct sizes >= 1, epoch_s > 0, weight > 0.
    """
    # Half of scipy's import time would be spent by commands that fit nothing.
    from scipy.optimize import nnls

    n, epoch_s, weight = np.array(points, dtype=float).T
    # Scaled so that e1 is about 1 and every row's error is relative.
    scale = float(epoch_s[0] * n[0])
    row = np.sqrt(weight / weight.max()) * scale / (n * epoch_s)
    # Sizes far from 1 say little about 1. The smallest one is taken to be no slower than one worker, that is
    # e1 a + n e1 b <= e1 there; with the slack as first unknown, all unknowns are non-negative again.
    slack_a, slack_b = (1.0, float(n[0])) if n[0] > 1 else (0.0, 0.0)
    columns = [np.ones_like(n), slack_a + n - 1, slack_b + n * (n - 1)]
    rows = np.vstack([row[:, None] * np.stack(columns, axis=1), [[0, _PULL_A, 0], [0, 0, _PULL_B]]])
    try:
        (slack, e1_a, e1_b), _ = nnls(rows, np.concatenate([row * n * epoch_s / scale, [0.0, 0.0]]))
    except RuntimeError:
        # No convergence: the points contradict each other by many orders of magnitude.
        return ScalingLaw(e1=scale, a=0.0, b=0.0)
    e1 = max(float(slack + slack_a * e1_a + slack_b * e1_b), _LEAST_E1)
    return ScalingLaw(e1=e1 * scale, a=float(e1_a) / e1, b=float(e1_b) / e1)


def scaling_of(points: Sequence[Point], law: ScalingLaw, max_replicas: int) -> Scaling:
    """Return T(n): as measured at the sizes seen, interpolated between them, along the law beyond them.

    Args:
        points: as for `fit_law`, smallest size first.
        law: gives the shape beyond the sizes seen, joined without a step.
        max_replicas: greatest size needed.
    """
    smallest, largest = points[0], points[-1]
    e1 = smallest.epoch_s * law.speedup(smallest.workers)
    sizes = [point.workers for point in points]
    measured = [e1 / point.epoch_s for point in points]
    between = np.interp(range(max_replicas + 1), sizes, measured).tolist()
    beyond = measured[-1] / law.speedup(largest.workers)
    speedup = [
        law.speedup(n) if n < smallest.workers else between[n] if n <= largest.workers else beyond * law.speedup(n)
        for n in range(1, max_replicas + 1)
    ]
    return Scaling(e1, (0.0, *speedup), is_assumed=len(points) < 2)

"""How fast a job runs on n workers: a law fitted to its own epochs where there are any, else to its category's.

n * t(n) = e1 * (1 + a (n - 1) + b n (n - 1)), with e1, a, b >= 0: the universal scalability law (Gunther 2007),
which covers linear scaling (a = b = 0), Amdahl's law (b = 0) and retrograde scaling (b > 0). It is linear in e1,
e1 a and e1 b, hence a non-negative least-squares problem. A job that behaves as its category does, but for its length,
shares the category's law; another one gets its own, in which its own measurements weigh more. Until two sizes are
measured, it is Amdahl's law through an efficiency of three quarters at the requested size.
Rule: pure; speedups are finite and, but for T(0), positive.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from voda.domain.state import Source
from voda.projections.learning.means import EpochMeans, Point

_PULL_A = 1e-5
_PULL_B = 1e-3
"""Weights that pull a and b to 0 where the measurements leave them open, b first: one size means linear scaling."""
_LEAST_E1 = 1e-3
"""Of the time a unit takes on all workers of the first point; keeps a and b finite where only they are measured."""


class ScalingLaw(Struct, frozen=True):
    """T(n) = n / (1 + a (n - 1) + b n (n - 1))."""

    e1: float
    """Seconds of a unit of work on one worker."""
    a: float
    b: float

    def speedup(self, workers: int) -> float:
        """Return T(n), n >= 1."""
        return workers / (1.0 + (workers - 1) * (self.a + self.b * workers))


class Scaling(Struct, frozen=True):
    """The estimated speed of a job: seconds of a unit of work on one worker, and T(n) up to some size."""

    e1: float
    speedup: tuple[float, ...]
    """Shape (max_replicas + 1,)."""
    source: Source = "assumed"
    """Assumed: fewer than two sizes were ever measured, so that T is a guess."""
    spread: float = math.inf
    """As of a `Belief`, of T at the requested size."""


def fit_law(points: Sequence[Point]) -> ScalingLaw:
    """Return the law closest to the points, by relative error.

    There is at least one point; sizes are distinct and >= 1, seconds and weights > 0.
    """
    # Half of scipy's import time would be spent by commands that fit nothing.
    from scipy.optimize import nnls

    n, seconds, weight = np.array(points, dtype=float).T
    # Scaled so that e1 is about 1 and every row's error is relative.
    scale = float(seconds[0] * n[0])
    row = np.sqrt(weight / weight.max()) * scale / (n * seconds)
    # Sizes far from 1 say little about 1. The smallest one is taken to be no slower than one worker, that is
    # e1 a + n e1 b <= e1 there; with the slack as first unknown, all unknowns are non-negative again.
    slack_a, slack_b = (1.0, float(n[0])) if n[0] > 1 else (0.0, 0.0)
    columns = [np.ones_like(n), slack_a + n - 1, slack_b + n * (n - 1)]
    rows = np.vstack([row[:, None] * np.stack(columns, axis=1), [[0, _PULL_A, 0], [0, 0, _PULL_B]]])
    try:
        (slack, e1_a, e1_b), _ = nnls(rows, np.concatenate([row * n * seconds / scale, [0.0, 0.0]]))
    except RuntimeError:
        # No convergence: the points contradict each other by many orders of magnitude.
        return ScalingLaw(e1=scale, a=0.0, b=0.0)
    e1 = max(float(slack + slack_a * e1_a + slack_b * e1_b), _LEAST_E1)
    return ScalingLaw(e1=e1 * scale, a=float(e1_a) / e1, b=float(e1_b) / e1)


PRIOR_EFFICIENCY: Final = 0.75
"""At the requested size."""
_NOISE: Final = 0.1
"""Relative deviation of one measurement of a size, before there are others."""
_DISTANCE: Final = 0.25
"""Deviation of ln T for each e-fold distance from the measured sizes."""


class Sizes(NamedTuple):
    """Up to which size T is wanted, and which one the job asks for."""

    most: int
    requested: int = 1


def assumed_law(requested: int) -> ScalingLaw:
    """Return what is assumed of a job that asks for so many replicas; linear for one."""
    serial = (1.0 / PRIOR_EFFICIENCY - 1.0) / (requested - 1) if requested > 1 else 0.0
    return ScalingLaw(e1=math.inf, a=serial, b=0.0)


def scaling_of(points: Sequence[Point], sizes: Sizes, source: Source) -> Scaling:
    """Return T(n): as measured at the measured sizes, interpolated between them, along a law beyond them.

    The points are as for `fit_law`, smallest size first; the law is joined without a step.
    """
    if len(points) < 2:
        law = assumed_law(sizes.requested)
        speedup = (0.0, *map(law.speedup, range(1, sizes.most + 1)))
        e1 = points[0].seconds * law.speedup(points[0].workers) if points else math.inf
        return Scaling(e1, speedup, spread=1.0 / PRIOR_EFFICIENCY)
    law, max_replicas = fit_law(points), sizes.most
    smallest, largest = points[0], points[-1]
    e1 = smallest.seconds * law.speedup(smallest.workers)
    known = [point.workers for point in points]
    measured = [e1 / point.seconds for point in points]
    between = np.interp(range(max_replicas + 1), known, measured).tolist()
    beyond = measured[-1] / law.speedup(largest.workers)
    along = [
        law.speedup(n) if n < smallest.workers else between[n] if n <= largest.workers else beyond * law.speedup(n)
        for n in range(1, max_replicas + 1)
    ]
    distance = min(abs(math.log(sizes.requested / size)) for size in known)
    noise = max(_NOISE / math.sqrt(point.weight) for point in points)
    return Scaling(e1, (0.0, *along), source, math.exp(math.hypot(noise, _DISTANCE * distance)))


_MOST_SIZES = 64
"""Of those that jobs of a category ask for, which are kept at a time."""
_SAME_LENGTH = 0.01
"""Relative difference up to which a job's epochs, but for their length, count as those of its category."""
_HISTORY_WEIGHT = 0.5
"""Of a size that only the category measured, in measurements of the job's own."""
_MATERIAL = 0.1
"""Relative change of T at any size, or of the time of work, that makes a new decision worth while."""


class CategoryHistory:
    """The scaling of a category, from its settled measurements; made anew whenever one of them settles."""

    def __init__(self, epochs: EpochMeans) -> None:
        self.points: Sequence[Point] = epochs.points()
        self.span_penalty = epochs.span_penalty()
        self._scalings: dict[Sizes, Scaling] = {}

    def scaling(self, sizes: Sizes) -> Scaling:
        """Return the scaling of a job of the category that has reported nothing yet."""
        if (scaling := self._scalings.get(sizes)) is None:
            if len(self._scalings) >= _MOST_SIZES:
                self._scalings.clear()
            scaling = self._scalings[sizes] = scaling_of(self.points, sizes, "category")
        return scaling


def estimate_scaling(own: EpochMeans, history: CategoryHistory, sizes: Sizes) -> Scaling:
    """Return the scaling of a job; its own measurements are mostly in the history, too."""
    of_category = history.scaling(sizes)
    if not (points := own.points()):
        return of_category
    category_s = {point.workers: point.seconds for point in history.points}
    # Of a category that was forgotten meanwhile, not all sizes are known.
    shared = [point for point in points if point.workers in category_s]
    if not shared:
        return scaling_of(points, sizes, "measured")
    ratios = [point.seconds / category_s[point.workers] for point in shared]
    ratio_of_length = sum(ratio * point.weight for ratio, point in zip(ratios, shared, strict=True))
    ratio_of_length /= sum(point.weight for point in shared)
    is_alike = all(abs(ratio - ratio_of_length) <= _SAME_LENGTH * ratio_of_length for ratio in ratios)
    if is_alike and len(shared) == len(points):
        source: Source = "measured" if len(points) > 1 else of_category.source
        return Scaling(of_category.e1 * ratio_of_length, of_category.speedup, source, of_category.spread)
    measured_sizes = {point.workers for point in points}
    other_sizes = [
        Point(point.workers, point.seconds * ratio_of_length, _HISTORY_WEIGHT)
        for point in history.points
        if point.workers not in measured_sizes
    ]
    return scaling_of(sorted([*points, *other_sizes]), sizes, "measured" if len(points) > 1 else "category")


def is_material(before: Scaling, after: Scaling) -> bool:
    """Return whether the difference is worth a new decision."""
    if not is_close(before.e1, after.e1) or len(before.speedup) != len(after.speedup):
        return True
    return not all(map(is_close, before.speedup, after.speedup))


def is_close(before: float, after: float) -> bool:
    """Return whether two estimates differ too little to matter."""
    return before == after or abs(after - before) <= _MATERIAL * before < math.inf

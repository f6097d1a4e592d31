"""From measurements to a belief: a job's own epochs where there are any, its category's history for the rest.

Rule: pure functions of settled measurements. A job that behaves as its category does, but for its length, shares the
category's law; another one gets a law of its own, in which what it measured itself weighs more.
"""

import math
from collections.abc import Sequence

from voda.domain.estimate import linear_speedup
from voda.projections.running_means import EpochMeans, Point
from voda.projections.scaling import Scaling, ScalingLaw, fit_law, scaling_of

_ALIKE = 0.01
"""Relative difference up to which a job's epochs are those of its category."""
_HISTORY_WEIGHT = 0.5
"""Of a size known from the category only, in epochs of the job's own."""
_MATERIAL = 0.1
"""Relative change of T at any size, or of an epoch's time, that makes a new decision worth while."""


class CategoryHistory:
    """What a category's settled measurements say; made anew whenever one of them settles."""

    def __init__(self, epochs: EpochMeans) -> None:
        self.points: Sequence[Point] = epochs.points()
        self.span_penalty = epochs.span_penalty()
        self._law: ScalingLaw | None = None
        self._scalings: dict[int, Scaling] = {}

    def scaling(self, max_replicas: int) -> Scaling:
        """Return what is believed of a job of the category that has reported nothing yet."""
        if (scaling := self._scalings.get(max_replicas)) is None:
            if not self.points:
                scaling = Scaling(math.inf, linear_speedup(max_replicas), is_assumed=True)
            else:
                self._law = self._law or fit_law(self.points)
                scaling = scaling_of(self.points, self._law, max_replicas)
            self._scalings[max_replicas] = scaling
        return scaling


def estimate_scaling(own: EpochMeans, history: CategoryHistory, max_replicas: int) -> Scaling:
    """Return what is believed of a job.

    Args:
        own: its undisturbed epochs; each of them is in the history, too.
        history: of its category.
        max_replicas: greatest size needed.
    """
    known = history.scaling(max_replicas)
    if not (points := own.points()):
        return known
    usual_s = {point.workers: point.epoch_s for point in history.points}
    ratios = [point.epoch_s / usual_s[point.workers] for point in points]
    longer = sum(ratio * point.weight for ratio, point in zip(ratios, points, strict=True))
    longer /= sum(point.weight for point in points)
    if all(abs(ratio - longer) <= _ALIKE * longer for ratio in ratios):
        return Scaling(known.e1 * longer, known.speedup, is_assumed=known.is_assumed)
    seen = {point.workers for point in points}
    unseen = [
        Point(point.workers, point.epoch_s * longer, _HISTORY_WEIGHT)
        for point in history.points
        if point.workers not in seen
    ]
    points = sorted([*points, *unseen])
    return scaling_of(points, fit_law(points), max_replicas)


def is_material(before: Scaling, after: Scaling) -> bool:
    """Return whether the difference is worth a new decision."""
    if not _is_close(before.e1, after.e1) or len(before.speedup) != len(after.speedup):
        return True
    return not all(map(_is_close, before.speedup, after.speedup))


def _is_close(before: float, after: float) -> bool:
    return before == after or abs(after - before) <= _MATERIAL * before < math.inf

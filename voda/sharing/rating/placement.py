"""Chooses the node and the devices of one pod after the other.

Scores of a kind of pod are kept, and only nodes that changed since are rated anew: the answer is the same as if all
were. Rule: the highest score wins; of equal ones the rater's tie, then the first node.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from voda.sharing.rating.fleet import Fleet
from voda.sharing.rating.joint import RatedNodes, rate
from voda.sharing.rating.pod import PodPlacement, PodRequest
from voda.sharing.rating.raters import Rater, RatingContext, breaks_ties

_MOST_KINDS: Final = 1_024
"""Kinds of pods whose scores are kept; the one not asked for the longest goes first."""


@dataclass(slots=True)
class _Kept:
    rated: RatedNodes
    at: int
    """The fleet's changes when it was rated."""


class PodPlacer:
    """Places pods on a fleet by a rater, and takes what they get."""

    def __init__(self, fleet: Fleet, rater: Rater, context: RatingContext) -> None:
        self.fleet = fleet
        self.context = context
        """May be replaced by one of which the rater reads nothing: kept scores stay."""
        self._rater = rater
        self._tolerance = rater.tolerance if breaks_ties(rater) else 0.0
        self._kept: OrderedDict[PodRequest, _Kept] = OrderedDict()

    def place(self, pod: PodRequest, uid: str = "") -> PodPlacement | None:
        """Return where the pod goes, and take it from the fleet; None where it fits nowhere."""
        chosen = self.choose(pod, uid)
        if chosen is not None:
            self.fleet.take(chosen)
        return chosen

    def choose(self, pod: PodRequest, uid: str = "") -> PodPlacement | None:
        """Return where the pod would go."""
        rated = self.rated(pod, uid)
        highest = rated.scores.max(initial=-np.inf)
        if highest == -np.inf:
            return None
        equal = np.flatnonzero(rated.scores >= highest - self._tolerance)
        best = int(equal[rated.ties[equal].argmax()])
        devices = tuple(tuple(np.flatnonzero(row).tolist()) for row in rated.picked[:, best])
        return PodPlacement(node=self.fleet.hardware.nodes[best].name, request=pod, devices=devices)

    def rated(self, pod: PodRequest, uid: str = "") -> RatedNodes:
        """Return the score of every node for a pod, and the devices that it would get there."""
        if self._rater.heeds_uid:
            return rate(self.fleet.rows(), pod, self._rater, replace(self.context, uid=uid))
        kept = self._kept.get(pod)
        if kept is None:
            rated = rate(self.fleet.rows(), pod, self._rater, self.context)
            self._kept[pod] = _Kept(rated, self.fleet.changes)
            if len(self._kept) > _MOST_KINDS:
                self._kept.popitem(last=False)
            return rated
        self._kept.move_to_end(pod)
        stale = np.flatnonzero(self.fleet.changed_at > kept.at)
        if len(stale):
            anew = rate(self.fleet.rows(stale), pod, self._rater, self.context)
            kept.rated.scores[stale] = anew.scores
            kept.rated.ties[stale] = anew.ties
            kept.rated.picked[:, stale] = anew.picked
            kept.at = self.fleet.changes
        return kept.rated

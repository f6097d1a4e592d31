"""Load: the device that is used the least, as measured; where nothing is measured, the emptiest."""

from typing import ClassVar

import numpy as np

from voda.sharing.rating.nodes import Bools, Floats, NodeArrays
from voda.sharing.rating.raters import ContainerChoice, RatingContext
from voda.sharing.rating.toolkit import best_devices, fullness, occupancy, touched


class LeastLoaded:
    name: ClassVar[str] = "load"
    title: ClassVar[str] = "The device with the least measured use"
    heeds_uid: ClassVar[bool] = False

    def pick(self, choice: ContainerChoice) -> Bools:
        return best_devices(-_use(choice.nodes, choice.context), choice.fitting, choice.container.count)

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        taken = touched(before, after)
        use = np.where(taken, _use(before, context), 0.0).sum(axis=1) / np.maximum(taken.sum(axis=1), 1)
        # Of devices that are used alike, the emptier one: a share that was just placed is not measured yet.
        return np.asarray(-(use + fullness(before, after) / 10))


def _use(nodes: NodeArrays, context: RatingContext) -> Floats:
    """Return shape (n, d): the measured use, or what is taken where there is no measure."""
    if context.load is None:
        return occupancy(nodes)
    measured = context.load[nodes.index]
    return np.where(np.isnan(measured), occupancy(nodes), measured)

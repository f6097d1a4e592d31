"""Spread: the emptiest device, on the emptiest node, so that pods disturb each other the least."""

from typing import ClassVar

from voda.sharing.rating.nodes import Bools, Floats, NodeArrays
from voda.sharing.rating.raters import ContainerChoice, RatingContext
from voda.sharing.rating.toolkit import best_devices, first_devices, fullness, occupancy


class Spread:
    name: ClassVar[str] = "spread"
    title: ClassVar[str] = "The emptiest device, on the emptiest node"
    heeds_uid: ClassVar[bool] = False

    def pick(self, choice: ContainerChoice) -> Bools:
        if choice.container.devices:
            return first_devices(choice.fitting, choice.container.count)
        return best_devices(-occupancy(choice.nodes), choice.fitting, 1)

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        return -fullness(before, after)

"""Binpack: the fullest device that fits, on the fullest node, so that others stay whole."""

from typing import ClassVar

from voda.sharing.rating.nodes import Bools, Floats, NodeArrays
from voda.sharing.rating.raters import ContainerChoice, RatingContext
from voda.sharing.rating.toolkit import first_devices, fullness, tightest


class Binpack:
    name: ClassVar[str] = "binpack"
    title: ClassVar[str] = "The fullest device that fits, on the fullest node"
    heeds_uid: ClassVar[bool] = False

    def pick(self, choice: ContainerChoice) -> Bools:
        if choice.container.devices:
            return first_devices(choice.fitting, choice.container.count)
        return tightest(choice.nodes, choice.fitting)

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        return fullness(before, after)

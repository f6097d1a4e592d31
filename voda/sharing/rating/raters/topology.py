"""Topology: several whole devices from the closest group that has so many free, and of such groups the fullest.

A share comes to a device in use, else to where the fewest whole devices are left in the closest group.
"""

from typing import ClassVar

import numpy as np

from voda.sharing.rating.nodes import Bools, Floats, Ints, NodeArrays
from voda.sharing.rating.raters import ContainerChoice, RatingContext
from voda.sharing.rating.toolkit import best_devices, fullness, occupancy, touched


class ClosestDevices:
    name: ClassVar[str] = "topology"
    title: ClassVar[str] = "Several devices as close as NVLink and PCIe allow; groups of devices stay whole"
    heeds_uid: ClassVar[bool] = False

    def pick(self, choice: ContainerChoice) -> Bools:
        nodes, fitting, count = choice.nodes, choice.fitting, choice.container.count
        peers = _peers(nodes)
        if not choice.container.devices:
            whole = (peers[-1] & nodes.whole[:, None, :]).sum(axis=2)
            return best_devices(~nodes.whole * (nodes.width + 1) + occupancy(nodes) - whole, fitting, 1)
        free = np.array([(level & fitting[:, None, :]).sum(axis=2) for level in peers])
        seeds = _closest(free, fitting, count)
        rows = np.arange(len(fitting))
        closeness = np.sum([level[rows, seeds] for level in peers], axis=0)
        return best_devices(closeness, fitting, count)

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        taken = touched(before, after)
        together = [~(taken[:, :, None] & taken[:, None, :] & ~level).any(axis=(1, 2)) for level in _peers(before)]
        return np.asarray(np.sum(together, axis=0) + fullness(before, after))


def _peers(nodes: NodeArrays) -> list[Bools]:
    """Return shape (n, d, d) for each level, the whole node first, the closest last: which devices are in one group."""
    groups = nodes.hardware.groups[nodes.index]
    node = np.ones((len(groups), nodes.width, nodes.width), dtype=bool)
    return [node, *(groups[:, at, :, None] == groups[:, at, None, :] for at in range(groups.shape[1]))]


def _closest(free: Ints, fitting: Bools, count: int) -> Ints:
    """Return a device of the closest group with `count` fitting devices, and of several the one with the fewest."""
    levels, _, width = free.shape
    level = np.arange(1, levels + 1)[:, None, None]
    rank = np.where(free >= count, level * (width + 1) - free, -1).max(axis=0)
    return np.asarray(np.where(fitting, rank, -1).argmax(axis=1))

"""What reclaiming costs: which opportunistic work is given up first when a guaranteed gang needs its cells.

Rule: first what shrinks a job beyond its need, then what brings one down to its minimum, then what halts one; each time
where the least is lost in GPU-seconds; at equal loss, the youngest.
"""

import math
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from voda.cells.book import CellBook
from voda.cells.gangs import OPPORTUNISTIC


class ReclaimStep(IntEnum):
    """What it means for a job that a gang of it leaves; lower ones come first."""

    SHRINK = 0
    """The job has more workers than its guaranteed ones or its minimum, and goes on with fewer."""
    MINIMUM = 1
    """An opportunistic job goes on with its minimum."""
    HALT = 2
    """The job is halted, and resumed from its checkpoint later."""


class GangLoss(NamedTuple):
    """What is lost when a gang leaves."""

    step: ReclaimStep
    gpu_s: float
    """The restart and the work since the last checkpoint."""
    since: float = 0.0
    """When it was asked for."""


Losses = Mapping[str, GangLoss]
"""Gang -> what is lost; a gang that is not named is halted at no loss."""
_UNKNOWN = GangLoss(ReclaimStep.HALT, 0.0)


def loss_in(book: CellBook, losses: Losses, cell: int) -> tuple[int, int, float, float]:
    """Return what is lost when the opportunistic gangs on a physical cell leave; the smaller the better.

    That is jobs halted, jobs brought to their minimum, GPU-seconds, and last the age of the oldest gang.
    """
    if not book.opportunistic[cell]:
        return 0, 0, 0.0, -math.inf
    leafs = (leaf for leaf in book.topology.trees.leafs[cell] if book.priority[leaf] == OPPORTUNISTIC)
    names = dict.fromkeys(book.holder[leaf] for leaf in leafs)
    lost = [losses.get(name, _UNKNOWN) for name in names]
    halted, brought_down = (sum(each.step == step for each in lost) for step in (ReclaimStep.HALT, ReclaimStep.MINIMUM))
    return halted, brought_down, sum(each.gpu_s for each in lost), -min(each.since for each in lost)

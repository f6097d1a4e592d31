"""The raters that FGD was compared with: BestFit, DotProd, GpuPacking and GpuClustering.

Weng et al., Beware of Fragmentation, USENIX ATC 2023, section 6.1, as their simulator rounds: scores are whole numbers,
and a share goes to the tightest device.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from voda.domain.gpus import MILLI_PER_DEVICE
from voda.sharing.rating.nodes import Bools, Floats, NodeArrays
from voda.sharing.rating.pod import PodPlacement
from voda.sharing.rating.raters import ContainerChoice, Rater, RatingContext
from voda.sharing.rating.toolkit import first_devices, tightest, touched

_CPU: Final = 128_000
_GPUS: Final = 8_000
"""What the scores are scaled by, whatever the nodes have."""


class _TightestDevice:
    heeds_uid: ClassVar[bool] = False

    def pick(self, choice: ContainerChoice) -> Bools:
        if choice.container.devices:
            return first_devices(choice.fitting, choice.container.count)
        return tightest(choice.nodes, choice.fitting)


class BestFit(_TightestDevice):
    name: ClassVar[str] = "BestFit"
    title: ClassVar[str] = "The node with the least left"

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        return np.asarray(np.trunc(100 * (1 - 0.5 * after.cpu / _CPU - 0.5 * after.milli.sum(axis=1) / _GPUS)))


class DotProduct(_TightestDevice):
    name: ClassVar[str] = "DotProd"
    title: ClassVar[str] = "The node whose free resources are the least like the request"

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        free, left = before.milli.sum(axis=1), after.milli.sum(axis=1)
        cpu = before.cpu * (before.cpu - after.cpu) / _CPU**2
        return np.asarray(np.trunc(100 * (1 - (cpu + free * (free - left) / _GPUS**2) / 2)))


class GpuPacking(_TightestDevice):
    name: ClassVar[str] = "GpuPacking"
    title: ClassVar[str] = "Devices in use first, then free devices of nodes in use, then free nodes"

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        taken = touched(before, after)
        whole = before.whole
        counts = before.hardware.device_counts[before.index]
        idle = whole.sum(axis=1) == counts
        used_free = (taken & whole).sum(axis=1)
        least = np.where(taken, before.milli, 0).sum(axis=1)
        in_use = np.maximum(100 - least // 10 // 10, 50)
        score = np.where(
            idle, np.maximum(33 - counts, counts), np.where(used_free, np.maximum(50 - used_free, 33), in_use)
        )
        return np.where(taken.any(axis=1), score, 0).astype(np.float64)


class GpuClustering(_TightestDevice):
    """It remembers which classes of pods each node runs, so one instance serves one run."""

    name: ClassVar[str] = "GpuClustering"
    title: ClassVar[str] = "Nodes that run pods of the same size only"

    def __init__(self) -> None:
        self._classes: dict[str, set[int]] = {}

    def placed(self, placement: PodPlacement) -> None:
        """Remember what a node runs now."""
        if placement.request.containers:
            self._classes.setdefault(placement.node, set()).add(_class_of(placement.request.total_milli))

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        asked = before.milli.sum(axis=1) - after.milli.sum(axis=1)
        names = (before.hardware.nodes[index].name for index in before.index.tolist())
        known = [self._classes.get(name, set()) for name in names]
        own = [_class_of(milli) for milli in asked.tolist()]
        base = np.array([_base(classes, this) for classes, this in zip(known, own, strict=True)])
        scaled = 25 * (_GPUS - before.milli.sum(axis=1)) // _GPUS + base
        return np.where(asked > 0, scaled, 0).astype(np.float64)


def _class_of(milli: int) -> int:
    """Return 0 for a share, else the number of devices."""
    return milli // MILLI_PER_DEVICE


def _base(classes: set[int], own: int) -> int:
    if not classes:
        return 25
    if own not in classes:
        return 0
    return 75 if len(classes) == 1 else 50


def baselines() -> Sequence[Rater]:
    """Return one of each, for one run."""
    return [BestFit(), DotProduct(), GpuPacking(), GpuClustering()]

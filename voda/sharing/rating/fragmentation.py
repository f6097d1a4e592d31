"""GPUs that typical pods cannot use: the fragment of nodes, after FGD.

Weng et al., Beware of Fragmentation, USENIX ATC 2023, section 4.2: a node's fragment for a kind of pod is all that
is free there if the kind does not fit, else what is free on devices that are too full for it; F is the mean over the
kinds. Memory is ignored, as there.

Kinds that ask for equally many devices, with equally much of each, are one size: s of them.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from voda.domain.gpus import MILLI_PER_DEVICE
from voda.sharing.rating.kinds import TypicalKind
from voda.sharing.rating.nodes import Floats, Hardware, Ints, NodeArrays


class Fragmentation:
    """Measures F on nodes."""

    def __init__(self, kinds: Sequence[TypicalKind], hardware: Hardware) -> None:
        asking = [kind for kind in kinds if kind.milli]
        sizes = sorted({(kind.milli, kind.devices) for kind in asking})
        self._device = _device_table(tuple(milli for milli, _ in sizes))
        self._devices = np.array([devices for _, devices in sizes], dtype=np.int64)
        self._cpu = np.unique([kind.cpu_milli for kind in asking])
        self._fitting = _fitting(asking, sizes, self._cpu, hardware)

    def of(self, nodes: NodeArrays) -> Floats:
        """Return shape (n,): F of each node, in milli."""
        return self._mean(nodes, self._device[nodes.milli].sum(axis=1), nodes.milli.sum(axis=1))

    def with_share(self, nodes: NodeArrays, rows: Ints, devices: Ints, milli: int) -> Floats:
        """Return F of pairs of a node and a device, once a share of that size is taken there."""
        free = nodes.milli[rows, devices]
        before = self._device[nodes.milli].sum(axis=1)[rows]
        after = before - self._device[free] + self._device[free - milli]
        pairs = NodeArrays(nodes.hardware, nodes.index[rows], nodes.free[rows])
        return self._mean(pairs, after, pairs.milli.sum(axis=1) - milli)

    def _mean(self, nodes: NodeArrays, devices: NDArray[np.float32], total: Ints) -> Floats:
        """Return F of nodes, given the sum over their devices, shape (n, 2 s), and their free compute, shape (n,)."""
        size_count = len(self._devices)
        fitting = self._fitting[nodes.model, self._cpu.searchsorted(nodes.cpu, side="right")]
        usable = total[:, None] - devices[:, :size_count]
        return np.asarray(total - (usable * fitting * (devices[:, size_count:] >= self._devices)).sum(axis=1))


# Where shares are given one after the other, the kinds stay and only their frequencies change.
@lru_cache(maxsize=16)
def _device_table(sizes: tuple[int, ...]) -> NDArray[np.float32]:
    """Return shape (1001, 2 s): for free compute of a device, what is lost to each size, and whether it serves it."""
    milli = np.array(sizes, dtype=np.int64)
    free = np.arange(MILLI_PER_DEVICE + 1)[:, None]
    return np.hstack([np.where(free < milli, free, 0), free >= milli]).astype(np.float32)


def _fitting(kinds: Sequence[TypicalKind], sizes: Sequence[tuple[int, int]], cpu: Ints, hardware: Hardware) -> Floats:
    """Return shape (models, CPU steps, s): the share of kinds of a size that fit a node of the model with that CPU."""
    table = np.zeros((len(hardware.models), len(cpu) + 1, len(sizes)))
    for kind in kinds:
        step = int(cpu.searchsorted(kind.cpu_milli)) + 1
        table[hardware.allowed(kind.models), step:, sizes.index((kind.milli, kind.devices))] += kind.share
    return table

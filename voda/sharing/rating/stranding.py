"""Compute that the next pods will strand: what they cannot use now, and what they leave when they fill the node.

FGD's fragment asks whether one more pod of a kind fits. A node with 96 cores and 8 free devices takes a pod of 12.5
cores and one device, and has no fragment; but it takes only seven of them, and the eighth device is lost. So the loss
here has two parts for each kind of pod: the fragment, and what is free once as many pods of that kind as fit are on the
node. The loss is the mean over all kinds that ask for devices, by how often they come; memory counts as CPU does.

Kinds that ask for equally many devices, with equally much of each, are one size: k kinds of s sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from voda.domain.gpus import MILLI_PER_DEVICE
from voda.sharing.rating.kinds import kind_of
from voda.sharing.rating.nodes import Floats, Hardware, Ints, NodeArrays
from voda.sharing.rating.pod import PodRequest

FILL_WEIGHT: Final = 0.2
"""Of what is left on a full node, where the fragment has 1; measured, see docs/adr/0027-look-ahead.md."""

_NOTHING: Final = 1e-6
"""Asked of what a pod asks none of, so that it limits nothing, not even on nodes that have none."""


@dataclass(frozen=True, slots=True)
class PodLimits:
    """How many pods of each kind the CPU and memory of nodes allow, whatever the devices, shape (n, k)."""

    counts: Floats

    def of(self, rows: Ints) -> "PodLimits":
        """Return those of some nodes."""
        return PodLimits(self.counts[rows])


class Stranding:
    """Measures the loss on nodes, given how many pods ask for what."""

    def __init__(self, pods: Mapping[PodRequest, int], hardware: Hardware) -> None:
        asking = {pod: count for pod, count in pods.items() if pod.total_milli}
        kinds = [kind_of(pod) for pod in asking]
        sizes = sorted({(milli, devices) for _, milli, devices, _ in kinds})
        counts = np.array(list(asking.values()), dtype=np.float64)
        self._shares = counts / max(counts.sum(), 1.0)
        self._cpu = np.array([pod.cpu_milli or _NOTHING for pod in asking], dtype=np.float64)
        self._memory = np.array([pod.memory_mib or _NOTHING for pod in asking], dtype=np.float64)
        self._size_of = np.array([sizes.index((milli, devices)) for _, milli, devices, _ in kinds], dtype=np.int64)
        self._devices = np.array([devices for _, devices in sizes], dtype=np.int64)
        self._milli_of = np.array([milli * devices for _, milli, devices, _ in kinds], dtype=np.float64)
        allowed = [hardware.allowed(pod.models) for pod in asking]
        self._demand = self._milli_of * self._shares
        self._allowed = np.array(allowed, dtype=bool).reshape(len(asking), len(hardware.models)).T
        self._by_size = np.eye(len(sizes))[self._size_of] * self._shares[:, None]
        self._device = _device_table(np.array([milli for milli, _ in sizes], dtype=np.int64))
        self.pressure = self._pressure(hardware)

    def limits(self, nodes: NodeArrays) -> PodLimits:
        """Return how many pods of each kind the CPU and memory of nodes allow."""
        cpu = np.floor((nodes.cpu[:, None] + 0.5) / self._cpu)
        memory = np.floor((nodes.memory[:, None] + 0.5) / self._memory)
        return PodLimits(np.minimum(cpu, memory) * self._allowed[nodes.model])

    def of(self, nodes: NodeArrays) -> Floats:
        """Return shape (n,): the loss on each node, in milli."""
        return self._loss(self._device[nodes.milli].sum(axis=1), nodes.milli.sum(axis=1), self.limits(nodes))

    def with_share(self, nodes: NodeArrays, rows: Ints, devices: Ints, milli: int) -> Floats:
        """Return the loss of pairs of a node and a device, once a share of that size is taken there."""
        free = nodes.milli[rows, devices]
        sums = self._device[nodes.milli].sum(axis=1)[rows] - self._device[free] + self._device[free - milli]
        return self._loss(sums, nodes.milli.sum(axis=1)[rows] - milli, self.limits(nodes).of(rows))

    def _loss(self, devices: NDArray[np.float32], total: Ints, limits: PodLimits) -> Floats:
        """Return the loss of nodes, given the sums over their devices, shape (n, 3 s), and their free compute, (n,)."""
        size_count = len(self._devices)
        lost, serving = devices[:, :size_count], devices[:, size_count : 2 * size_count]
        pods = devices[:, 2 * size_count :]
        fitting = (limits.counts >= 1.0) @ self._by_size
        usable = (total[:, None] - lost) * fitting * (serving >= self._devices)
        filled = np.minimum(limits.counts, (pods // self._devices).take(self._size_of, axis=1))
        used = filled @ self._demand
        known = self._shares.sum()
        return np.asarray(known * total - usable.sum(axis=1) + FILL_WEIGHT * (known * total - used))

    def _pressure(self, hardware: Hardware) -> Floats:
        """Return shape (models,): the demand for each model over what there is of it; 1 = as for all devices together.

        The demand of a kind spreads evenly over the devices that it may use, so pods that name no model press on all.
        """
        capacity = np.bincount(hardware.model, hardware.device_counts * MILLI_PER_DEVICE, len(hardware.models))
        demand, open_to = self._demand, self._allowed.T @ capacity
        density = np.divide(demand, open_to, out=np.zeros_like(demand), where=open_to > 0)
        return np.asarray(self._allowed @ density * capacity.sum() / max(float(demand.sum()), 1.0))


def _device_table(milli: Ints) -> NDArray[np.float32]:
    """Return shape (1001, 3 s): for free compute of a device, what is lost to a size, whether it serves, how often."""
    free = np.arange(MILLI_PER_DEVICE + 1)[:, None]
    return np.hstack([np.where(free < milli, free, 0), free >= milli, free // milli]).astype(np.float32)

"""What is free on all nodes, as pods come and go.

Rule: `release` returns exactly what `take` took, and `take` refuses what is not free.
"""

from collections.abc import Sequence
from copy import copy

import numpy as np

from voda.domain.shares import GpuRemainder
from voda.sharing.rating.nodes import CPU, FIRST_DEVICE, MEMORY, GpuNode, Ints, NodeArrays, hardware_of
from voda.sharing.rating.pod import PodPlacement


class Fleet:
    """The nodes, in the order in which equal ones are chosen; `load` is the measured use of devices, shape (n, d)."""

    def __init__(self, nodes: Sequence[GpuNode]) -> None:
        self.hardware = hardware_of(nodes)
        self.row_of = {node.name: row for row, node in enumerate(nodes)}
        self.free: Ints = self.hardware.total.copy()
        self.changes = 0
        self.changed_at: Ints = np.zeros(len(nodes), dtype=np.int64)
        """(n,): the number of the change that touched each node last."""

    def emptied(self) -> "Fleet":
        """Return the same nodes, of which nothing is taken; what they are made of is shared."""
        fleet = copy(self)
        fleet.free, fleet.changes, fleet.changed_at = self.hardware.total.copy(), 0, np.zeros_like(self.changed_at)
        return fleet

    def rows(self, index: Ints | None = None) -> NodeArrays:
        """Return what is free on the nodes of an index, all by default; the answer is a copy."""
        if index is None:
            return NodeArrays(self.hardware, np.arange(len(self.free)), self.free.copy())
        return NodeArrays(self.hardware, index, self.free[index])

    def take(self, placement: PodPlacement) -> None:
        """Take what a pod gets.

        Raises:
            ValueError: some of it is not free, or the node or a device is not there.
        """
        row, demand = self._demand(placement)
        if (self.free[row] < demand).any():
            raise ValueError(f"node {placement.node}: {placement.request} on {placement.devices} is not free there")
        self._change(row, -demand)

    def release(self, placement: PodPlacement) -> None:
        """Give back what a pod got.

        Raises:
            ValueError: more would be free than the node has.
        """
        row, demand = self._demand(placement)
        if (self.free[row] + demand > self.hardware.total[row]).any():
            raise ValueError(f"node {placement.node}: {placement.request} on {placement.devices} was not taken there")
        self._change(row, demand)

    def put_free(self, node: str, gpus: Sequence[GpuRemainder]) -> None:
        """Let so much be free of a node's GPUs, whatever was; its CPU and memory stay as they are."""
        row = self.row_of[node]
        self._change(row, self.with_free(row, gpus) - self.free[row])

    def with_free(self, row: int, gpus: Sequence[GpuRemainder]) -> Ints:
        """Return what is free on a node, as a row of `free`, if so much of its GPUs were."""
        width = self.hardware.device_memory.shape[1]
        free: Ints = self.free[row].copy()
        free[FIRST_DEVICE : FIRST_DEVICE + len(gpus)] = [gpu.milli for gpu in gpus]
        free[FIRST_DEVICE + width : FIRST_DEVICE + width + len(gpus)] = [gpu.memory_mib for gpu in gpus]
        return free

    def _change(self, row: int, by: Ints) -> None:
        self.free[row] += by
        self.changes += 1
        self.changed_at[row] = self.changes

    def _demand(self, placement: PodPlacement) -> tuple[int, Ints]:
        row = self.row_of.get(placement.node)
        if row is None:
            raise ValueError(f"there is no node {placement.node}")
        width = self.hardware.device_memory.shape[1]
        demand = np.zeros(self.free.shape[1], dtype=np.int64)
        demand[CPU], demand[MEMORY] = placement.request.cpu_milli, placement.request.memory_mib
        for container, devices in zip(placement.request.containers, placement.devices, strict=True):
            if len(set(devices)) != container.count or not set(devices) <= set(range(self.hardware.device_counts[row])):
                raise ValueError(f"node {placement.node}: devices {devices} do not serve {container}")
            for device in devices:
                demand[FIRST_DEVICE + device] += container.milli_each
                whole = int(self.hardware.device_memory[row, device])
                demand[FIRST_DEVICE + width + device] += whole if container.devices else container.memory_mib
        return row, demand

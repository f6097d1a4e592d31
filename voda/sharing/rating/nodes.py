"""Nodes as arrays, one row each: what raters and the search read.

Rule: values never change; `take` returns new ones. Shapes: n nodes, d devices (the most that any node has; devices that
a node lacks have nothing free).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from voda.domain.gpus import MILLI_PER_DEVICE, GpuDevice, GpuRequest
from voda.sharing.rating.pod import PodRequest

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

CPU, MEMORY, FIRST_DEVICE = 0, 1, 2
"""Columns of what is free: CPU, memory, then the compute of each device, then the memory of each device."""


class GpuNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node with devices, as pods find it when it is empty."""

    name: str
    cpu_milli: int
    memory_mib: int
    devices: tuple[GpuDevice, ...]
    model: str = ""
    """Of its devices."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What nodes are made of: it does not change as pods come and go."""

    nodes: Sequence[GpuNode]
    models: Sequence[str]
    model: Ints
    """(n,): index into `models`."""
    device_counts: Ints
    """(n,)."""
    device_memory: Ints
    """(n, d): MiB."""
    groups: Ints
    """(n, levels, d): see GpuDevice.groups; a level that a device lacks is a group of its own."""
    name_hash: NDArray[np.uint64]
    """(n,): a number from each name, the same everywhere."""
    total: Ints
    """(n, columns): what is free on empty nodes."""

    def allowed(self, models: Sequence[str]) -> Bools:
        """Return shape (models,): whether a pod may run on each; no models = on any."""
        return np.array([not models or model in models for model in self.models], dtype=bool)


def hardware_of(nodes: Sequence[GpuNode]) -> Hardware:
    """Return the arrays of nodes, in the order given.

    Raises:
        ValueError: two nodes share a name.
    """
    if len({node.name for node in nodes}) < len(nodes):
        raise ValueError("two nodes have the same name")
    models = sorted({node.model for node in nodes})
    width = max((len(node.devices) for node in nodes), default=0)
    counts = np.array([len(node.devices) for node in nodes], dtype=np.int64)
    memory = _padded([[device.memory_mib for device in node.devices] for node in nodes], width)
    milli = MILLI_PER_DEVICE * (np.arange(width) < counts[:, None])
    own = np.array([(node.cpu_milli, node.memory_mib) for node in nodes], dtype=np.int64).reshape(-1, FIRST_DEVICE)
    return Hardware(
        nodes=tuple(nodes),
        models=models,
        model=np.array([models.index(node.model) for node in nodes], dtype=np.int64),
        device_counts=counts,
        device_memory=memory,
        groups=_groups(nodes, width),
        name_hash=np.array([crc32(node.name.encode()) for node in nodes], dtype=np.uint64),
        total=np.hstack([own, milli, memory]).astype(np.int64),
    )


def _padded(rows: Sequence[Sequence[int]], width: int) -> Ints:
    return np.array([[*row, *[0] * (width - len(row))] for row in rows], dtype=np.int64).reshape(len(rows), width)


def _groups(nodes: Sequence[GpuNode], width: int) -> Ints:
    levels = max((len(device.groups) for node in nodes for device in node.devices), default=0)
    groups = np.broadcast_to(-1 - np.arange(width), (len(nodes), levels, width)).copy()
    for row, node in enumerate(nodes if levels else ()):
        for column, device in enumerate(node.devices):
            groups[row, : len(device.groups), column] = device.groups
    return groups


@dataclass(frozen=True, slots=True)
class NodeArrays:
    """What is free on some nodes."""

    hardware: Hardware
    index: Ints
    """(n,): rows of `hardware`."""
    free: Ints
    """(n, columns)."""

    @property
    def cpu(self) -> Ints:
        """Return shape (n,): free CPU in milli."""
        return self.free[:, CPU]

    @property
    def memory(self) -> Ints:
        """Return shape (n,): free memory in MiB."""
        return self.free[:, MEMORY]

    @property
    def milli(self) -> Ints:
        """Return shape (n, d): free compute of each device."""
        return self.free[:, FIRST_DEVICE : FIRST_DEVICE + self.width]

    @property
    def device_memory(self) -> Ints:
        """Return shape (n, d): free MiB of each device."""
        return self.free[:, FIRST_DEVICE + self.width :]

    @property
    def width(self) -> int:
        """Return d."""
        return int(self.hardware.device_memory.shape[1])

    @property
    def model(self) -> Ints:
        """Return shape (n,): index into `hardware.models`."""
        return self.hardware.model[self.index]

    @property
    def whole(self) -> Bools:
        """Return shape (n, d): devices of which nothing is taken."""
        unused = self.device_memory == self.hardware.device_memory[self.index]
        return np.asarray(unused & (self.milli == MILLI_PER_DEVICE))

    def fitting(self, container: GpuRequest) -> Bools:
        """Return shape (n, d): devices that could serve the container, or one of those that it needs."""
        if container.devices:
            return self.whole
        fits = self.milli >= container.least_milli
        return fits & (self.device_memory >= container.memory_mib) if container.memory_mib else fits

    def take_own(self, pod: PodRequest) -> "NodeArrays":
        """Return the nodes without the CPU and memory of a pod."""
        free = self.free.copy()
        free[:, CPU] -= pod.cpu_milli
        free[:, MEMORY] -= pod.memory_mib
        return NodeArrays(self.hardware, self.index, free)

    def take(self, container: GpuRequest, picked: Bools) -> "NodeArrays":
        """Return the nodes without what a container takes of the picked devices, shape (n, d)."""
        free, width = self.free.copy(), self.width
        free[:, FIRST_DEVICE : FIRST_DEVICE + width] -= picked * container.milli_each
        if container.devices:
            free[:, FIRST_DEVICE + width :] -= picked * self.hardware.device_memory[self.index]
        elif container.memory_mib:
            free[:, FIRST_DEVICE + width :] -= picked * container.memory_mib
        return NodeArrays(self.hardware, self.index, free)

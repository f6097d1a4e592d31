"""Quantities of GPUs: what nodes have, what workers need, what policies and placers hand out.

Rules: replicas times GPUs per replica are GPUs, GPUs divided by GPUs per replica are replicas. The type checker takes
no plain number where GPUs are declared; it does not see that GPUs plus replicas, or GPUs times GPUs, is wrong. `Gpus`
counts whole devices, and policies and placers of jobs hand out whole devices by this type alone. A `GpuRequest` is the
one quantity of whole devices and of shares; `voda/sharing/` places it on the `GpuDevice`s of nodes.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

if TYPE_CHECKING:

    class Gpus(int):
        """A number of whole GPUs."""

        def __neg__(self) -> "Gpus": ...
        def __add__(self, other: int, /) -> "Gpus": ...
        def __sub__(self, other: int, /) -> "Gpus": ...
        def __mul__(self, replicas: int, /) -> "Gpus": ...
        def __rmul__(self, replicas: int, /) -> "Gpus": ...

else:
    # A decision adds and compares some 100,000 of them; and numbers are what the log and the wire hold.
    Gpus = int

NO_GPUS: Final = Gpus(0)


def total(quantities: Iterable[Gpus]) -> Gpus:
    """Return the sum."""
    return sum(quantities, NO_GPUS)


MILLI_PER_DEVICE: Final = 1_000
"""The compute of one device; a share takes some thousandths of it."""
_CORE_PER_DEVICE: Final = 100
"""The compute of one device in the units of `gpu-core`."""


class GpuDevice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device of a node; its index is its place among them."""

    memory_mib: int = 0
    """0 = not known: then only shares that ask for no memory come to it."""
    groups: tuple[int, ...] = ()
    """The groups of close devices that it belongs to, from the widest (a socket) to the closest (an NVLink island)."""
    name: str = ""
    """Of a device that pods claim (dynamic resource allocation): DRIVER/POOL/DEVICE; empty: its index says all."""
    is_for_pods: bool = False
    """Whether it is none of its node's GPUs for jobs: of such a GPU, workers could not get all."""


class GpuRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one container asks of its node's devices: whole ones, a share of a single one, or nothing."""

    devices: Gpus = NO_GPUS
    """Whole devices, each with all of its memory."""
    milli: int = 0
    """Of a share: thousandths of a device's compute; 0 with some memory = memory alone."""
    memory_mib: int = 0
    """Of a share: memory on that device; 0 = none is accounted for."""

    def __post_init__(self) -> None:
        if min(self.devices, self.milli, self.memory_mib) < 0:
            raise ValueError(f"a request of GPUs is negative: {self}")
        if self.devices and self.is_share:
            raise ValueError(f"a container asks for whole GPUs or for a share of one, not for both: {self}")
        if self.milli >= MILLI_PER_DEVICE:
            raise ValueError(f"a share has {self.milli} milli, expected < {MILLI_PER_DEVICE}: ask for whole GPUs")

    @property
    def is_share(self) -> bool:
        return self.milli > 0 or self.memory_mib > 0

    @property
    def count(self) -> int:
        """Devices that it touches: those it asks for, or the one that it shares."""
        return self.devices or int(self.is_share)

    @property
    def least_milli(self) -> int:
        """Compute that has to be left of a GPU that it shares; one of which none is left is nobody's to share."""
        return max(1, self.milli)

    @property
    def milli_each(self) -> int:
        """Compute that it takes of each of those devices."""
        return MILLI_PER_DEVICE if self.devices else self.milli

    @property
    def total_milli(self) -> int:
        """Compute that it takes in all."""
        return self.count * self.milli_each


class ContainerGpus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The GPUs of one container: whole ones, or the one that it shares."""

    gpus: tuple[int, ...] = field(name="cards")
    """Their indices on the node."""
    request: GpuRequest
    """What it takes of them."""

    def __post_init__(self) -> None:
        if len(set(self.gpus)) != self.request.count or min(self.gpus, default=0) < 0:
            raise ValueError(f"GPUs {self.gpus} do not serve {self.request}")


def request_of_core(core: int, memory_mib: int) -> GpuRequest:
    """Return what `gpu-core` and `gpu-memory` ask for: 100 of core are one device, less is a share of one.

    Whole devices come with their memory, so `memory_mib` is ignored beside them.

    Raises:
        ValueError: core is negative, or above 100 and no multiple of it.
    """
    if core > _CORE_PER_DEVICE and core % _CORE_PER_DEVICE:
        raise ValueError(f"gpu-core is {core}, expected less than {_CORE_PER_DEVICE} or a multiple of it")
    if core >= _CORE_PER_DEVICE:
        return GpuRequest(devices=Gpus(core // _CORE_PER_DEVICE))
    return GpuRequest(milli=core * (MILLI_PER_DEVICE // _CORE_PER_DEVICE), memory_mib=memory_mib)

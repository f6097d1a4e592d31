"""What a pod asks for, and what it gets: values."""

from collections.abc import Sequence

from msgspec import Struct

from voda.domain.gpus import GpuRequest


class PodRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one pod asks of its node; pods that ask for the same are rated once."""

    cpu_milli: int = 0
    memory_mib: int = 0
    """Of the node, not of its devices."""
    containers: tuple[GpuRequest, ...] = ()
    """One for each container, in the pod's order."""
    models: tuple[str, ...] = ()
    """GPU models that it may run on, sorted; () = any."""

    def __post_init__(self) -> None:
        if min(self.cpu_milli, self.memory_mib) < 0:
            raise ValueError(f"a pod asks for a negative amount: {self}")

    @property
    def total_milli(self) -> int:
        """Compute of devices that its containers ask for together."""
        return sum(container.total_milli for container in self.containers)


class PodPlacement(Struct, frozen=True, kw_only=True):
    """The node of a pod, and the devices of each of its containers."""

    node: str
    request: PodRequest
    devices: Sequence[tuple[int, ...]]
    """One for each container: indices of its devices; () = it asks for none."""

"""Nodes: the machines that carry GPUs."""

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct

from voda.domain.gpus import NO_GPUS, GpuDevice, Gpus


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """One machine of one pool (accelerator type)."""

    name: str
    pool: str = "default"
    gpus: Gpus
    """Allocatable GPUs, not capacity; for a moment perhaps fewer than its workers hold."""
    foreign_gpus: Gpus = NO_GPUS
    """GPUs used by pods that voda does not manage."""
    is_ready: bool = True
    """False: it is silent; workers there may go on, so they stay for `Settings.node_grace_s`."""
    is_schedulable: bool = True
    """False: it is cordoned; it takes no new workers, those that run there stay."""
    is_draining: bool = False
    """Whether its workers are to go elsewhere at once."""
    labels: Mapping[str, str] = {}
    devices: tuple[GpuDevice, ...] = ()
    """GPUs that pods may share, by index; () = it shares none."""

    @cached_property
    def usable_gpus(self) -> Gpus:
        """GPUs for new workers; 0 while the node is silent, cordoned or draining."""
        return self.own_gpus if self.is_open else NO_GPUS

    @property
    def is_open(self) -> bool:
        """Whether it takes new workers."""
        return self.is_ready and self.is_schedulable and not self.is_draining

    @property
    def own_gpus(self) -> Gpus:
        """GPUs that others leave, whatever the node's state."""
        return max(NO_GPUS, self.gpus - self.foreign_gpus)

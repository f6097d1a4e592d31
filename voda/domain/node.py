"""Nodes: the machines that carry GPUs."""

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct

from voda.domain.gpus import NO_GPUS, Gpus


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """One machine of one pool (accelerator type)."""

    name: str
    pool: str = "default"
    gpus: Gpus
    """Allocatable GPUs, not capacity."""
    foreign_gpus: Gpus = NO_GPUS
    """GPUs used by pods that voda does not manage."""
    is_ready: bool = True
    is_schedulable: bool = True
    labels: Mapping[str, str] = {}

    @cached_property
    def usable_gpus(self) -> Gpus:
        """GPUs that a plan may hand out; 0 while the node is not ready or cordoned."""
        return max(NO_GPUS, self.gpus - self.foreign_gpus) if self.is_ready and self.is_schedulable else NO_GPUS

"""What a user can ask of a workload, beyond its name."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from voda.domain.node import Node


class WorkloadOptions(Struct, frozen=True, kw_only=True):
    """Options of the workloads that are cut or drawn; the others know none of them."""

    begins: str = ""
    """Philly: first submission, a day or an instant of the trace's own clock; "" = as the trace."""
    ends: str = ""
    """Philly: submissions before this day or instant; "" = as the trace."""
    jobs: int = 0
    """Philly: the first so many of the window, 0 = all. Poisson: so many, 0 = 200."""
    rate_per_h: float = 0.0
    """Poisson: submissions per hour; 0 = as many as `load` needs."""
    load: float = 0.7
    """Poisson: GPU time asked for on average, as a share of the GPU time there is."""
    gpu_mix: Mapping[int, float] = {}
    """Poisson: GPUs asked for -> weight; empty = as Philly."""


class WorkloadRequest(Struct, frozen=True, kw_only=True):
    """Everything a loader goes by."""

    data: Path | None = None
    """The data folder; None = found by `voda.simulator.data`."""
    nodes: tuple[Node, ...] | None = None
    """None = the cluster the workload was meant for."""
    seed: int = 0
    options: WorkloadOptions = WorkloadOptions()

"""What a simulated job really does: the ground truth that the scheduler must find out by itself.

Rule: a profile is data and pure functions; it knows neither clock nor cluster.
"""

from typing import Protocol, runtime_checkable

from msgspec import Struct

from voda.domain.job import JobSpec
from voda.domain.node import Node


class Costs(Struct, frozen=True, kw_only=True):
    """Seconds that a job stands still, its GPUs held, after each kind of change."""

    start_s: float = 0.0
    resize_s: float = 0.0
    migrate_s: float = 0.0


class Profile(Protocol):
    """The speed of one job."""

    @property
    def epochs(self) -> int:
        """Epochs until the job is complete, >= 1."""
        ...

    @property
    def costs(self) -> Costs:
        """What starts, resizes and migrations cost this job."""
        ...

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        """Return the seconds that epoch `epoch` (from 0) takes, were it run whole on this placement.

        Args:
            epoch: 0 <= epoch < epochs.
            per_node: replicas on each node used, in the order of the worker indices; (4, 2) = 6 replicas.
        """
        ...


@runtime_checkable
class MeasuresThroughput(Protocol):
    """A profile that also measures its throughput, because its epochs differ in work."""

    def samples_per_s(self, per_node: tuple[int, ...]) -> float:
        """Return the training throughput on a placement; see Profile.epoch_s for its form."""
        ...


class Arrival(Struct, frozen=True, kw_only=True):
    """One job of a workload."""

    spec: JobSpec
    submitted_s: float
    """Seconds after the workload's beginning."""
    profile: Profile


class Workload(Struct, frozen=True, kw_only=True):
    """Jobs and the cluster they were meant for."""

    name: str
    source: str
    """Where the figures come from, one line."""
    arrivals: tuple[Arrival, ...]
    """By submission time, then as in the source."""
    nodes: tuple[Node, ...]
    begins_at: float = 1_609_459_200.0
    """Instant of submitted_s == 0; seconds since the Unix epoch."""

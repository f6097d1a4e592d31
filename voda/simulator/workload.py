"""A workload: jobs that arrive, how fast they really are (which the scheduler has to learn), and their cluster.

Rule: a profile is data and pure functions; it knows neither clock nor cluster.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.errors import InvalidInput
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.sizes import JobSizes


class Costs(Struct, frozen=True, kw_only=True):
    """Seconds for which a job pauses, with its GPUs, after each kind of change."""

    start_s: float = 0.0
    resize_s: float = 0.0
    migrate_s: float = 0.0


class Profile(Protocol):
    """The speed of one job."""

    @property
    def epochs(self) -> int:
        """Epochs until the job is complete, >= 1."""

    @property
    def costs(self) -> Costs:
        """What starts, resizes and migrations cost this job."""

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        """Return the seconds that epoch `epoch` (from 0) takes, were it run whole on this placement.

        `per_node` has the replicas on each node used, in the order of the worker indices; (4, 2) = 6 replicas.
        """


@runtime_checkable
class MeasuresThroughput(Protocol):
    """A profile that also measures its throughput, because its epochs differ in work."""

    def samples_per_s(self, per_node: tuple[int, ...]) -> float:
        """Return the training throughput on a placement; see Profile.epoch_s for its form."""


class Arrival(Struct, frozen=True, kw_only=True):
    spec: JobSpec
    submitted_s: float
    """Seconds after the workload's beginning."""
    profile: Profile
    virtual_cluster: str = ""
    """Whose job it is, where virtual clusters are simulated."""


class Workload(Struct, frozen=True, kw_only=True):
    """Jobs and the cluster they were meant for."""

    name: str
    source: str
    """Where the figures come from, one line."""
    arrivals: tuple[Arrival, ...]
    """By submission time, then as in the source."""
    nodes: tuple[Node, ...]
    left_out: tuple[str, ...] = ()
    """What of its source is no part of it, for people: one sentence each."""
    begins_at: float = 1_609_459_200.0
    """Instant of submitted_s == 0; seconds since the Unix epoch."""


def at_sizes(workload: Workload, sizes: JobSizes) -> Workload:
    """Return the workload of jobs that run at these sizes alone, of those within the bounds of each.

    A job requests the largest of them that is no more than it did, else its least. InvalidInput: one has none.
    """
    arrivals = tuple([replace(arrival, spec=_spec_at(arrival.spec, sizes)) for arrival in workload.arrivals])
    return replace(workload, arrivals=arrivals)


def _spec_at(spec: JobSpec, sizes: JobSizes) -> JobSpec:
    least, most = sizes.above(spec.min_replicas - 1), sizes.floor(spec.max_replicas)
    if not 0 < least <= most:
        raise InvalidInput(
            f"sizes {sizes}: none is between {spec.min_replicas} and {spec.max_replicas}, as job {spec.job_id} asks"
        )
    requested = max(least, sizes.floor(spec.requested))
    return replace(spec, sizes=sizes, min_replicas=least, max_replicas=most, requested_replicas=requested)


class SpeedupProfile(Struct, frozen=True, kw_only=True):
    """Work on one replica, and how many times faster n replicas do it, as in voda-exp, Philly and CSV files.

    All epochs of a placement take the same time, which depends on the number of replicas and on spanning nodes.
    """

    epochs: int
    work_s: float
    """Seconds that all epochs take together on one replica."""
    speedup: Sequence[float]
    """T(n): shape (max_replicas + 1,); T(0) = 0 and T(1) = 1."""
    span_penalty: float = 0.0
    """Share by which an epoch takes longer when the replicas span nodes."""
    costs: Costs = Costs()

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        one_replica_s = self.work_s / self.epochs
        penalty = 1.0 + self.span_penalty if len(per_node) > 1 else 1.0
        return one_replica_s * penalty / self.speedup[sum(per_node)]


def speedup_law(a: float, b: float, max_replicas: int) -> tuple[float, ...]:
    """Return T(n) = n / (1 + a (n-1) + b n (n-1)) for n in 0..max_replicas.

    Args:
        a: serial share, >= 0: alone it bounds T(n) by 1/a (Amdahl).
        b: cost of talking to each other, >= 0: with it T(n) falls again beyond n = sqrt((1-a)/b).
        max_replicas: >= 1.

    Source: Gunther's Universal Scalability Law.
    """
    return (0.0, *(n / (1.0 + a * (n - 1) + b * n * (n - 1)) for n in range(1, max_replicas + 1)))

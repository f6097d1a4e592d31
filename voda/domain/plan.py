"""Plans: how many (`Allocation`), where (`Placement`), both together with reasons (`Plan`), and the actions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, TypeVar

from msgspec import Struct

from voda.domain.reasons.outcomes import Reason

T = TypeVar("T")
Placement = Mapping[str, tuple[str, ...]]
"""job id -> node of worker 0, 1, 2, ...; jobs without workers are absent.

Ordered, because the operators name workers by index and a shrink always removes the highest ones.
"""

Quotas = Mapping[str, tuple[str, ...]]
"""job id -> quota cell that guarantees worker 0, 1, 2, ...; the workers after them have no guarantee.

It is named by its type and its number among those of the virtual cluster, or of the pin: `node/3`.
"""

Devices = Mapping[str, tuple[tuple[int, ...], ...]]
"""job id -> devices, on its node, of worker 0, 1, 2, ..."""


class FirstOf(Mapping[str, T]):
    """Several mappings as one, without a copy: of a key that some of them have, it has the value in the first."""

    def __init__(self, *layers: Mapping[str, T]) -> None:
        self._layers = layers

    def __getitem__(self, key: str) -> T:
        for layer in self._layers:
            if key in layer:
                return layer[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return any(key in layer for layer in self._layers)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain.from_iterable(self._layers)))

    def __len__(self) -> int:
        return len({*chain.from_iterable(self._layers)})


class Allocation(Struct, frozen=True, kw_only=True):
    """A policy's answer."""

    replicas: Mapping[str, int]
    """job id -> replicas, for every ready job; 0 = waits."""
    reasons: Mapping[str, Reason]
    """job id -> why, for every ready job."""


class Plan(Struct, frozen=True, kw_only=True):
    """The desired state. Only jobs with at least one replica are in the placement."""

    pool: str
    number: int = 0
    based_on: int = 0
    """Position up to which the log was read for this decision."""
    policy: str = ""
    placer: str = ""
    decided_at: float = 0.0
    cause: str = ""
    """Type of the event that made the decision due, or `tick`."""
    placement: Placement = {}
    guaranteed: Quotas = {}
    """In a pool with virtual clusters: the jobs of which some workers are guaranteed."""
    devices: Devices = {}
    """In a pool with virtual clusters: of all jobs in the placement."""
    launchers: Mapping[str, str] = {}
    """Job in the placement whose launcher asks for GPUs -> its node, planned or where it is."""
    reasons: Mapping[str, Reason] = {}

    @property
    def replicas(self) -> Mapping[str, int]:
        """The allocation part: job id -> replicas > 0."""
        return {job_id: len(nodes) for job_id, nodes in self.placement.items()}

    def beside(self, job_ids: Iterable[str]) -> Mapping[str, tuple[str, ...] | None]:
        """Return for each of these jobs those on the same GPU, sorted; None: the plan names no devices of it."""
        wanted, same = list(job_ids), defaultdict[object, list[str]](list)
        for other in sorted(self.devices) if wanted else ():
            same[self.placement.get(other), self.devices[other]].append(other)
        return {
            job_id: tuple(other for other in same[self.placement.get(job_id), self.devices[job_id]] if other != job_id)
            if job_id in self.devices
            else None
            for job_id in wanted
        }


StopReason = Literal["completed", "failed", "canceled", "unknown"]


class StartJob(Struct, frozen=True, kw_only=True):
    """Start a job that has no workers: first start, or resume after a halt."""

    job_id: str
    nodes: tuple[str, ...]
    beside: tuple[str, ...] | None = None
    """Jobs of which it shares the GPU, of no others; none of them has any: it gets another GPU. None: it may share
    any that has room."""


class ResizeJob(Struct, frozen=True, kw_only=True):
    """Let a running job have one worker on each of `nodes`, by index: grow, shrink and move, all at once.

    `nodes` is all that is desired of the job: the size of a job is written nowhere else. An empty one is the place of a
    worker that is not there, and is not started yet.
    """

    job_id: str
    nodes: tuple[str, ...]
    planned: int = 0
    """Workers by the plan, where this is only a step on the way to it; 0: as many as `nodes`."""


class HaltJob(Struct, frozen=True, kw_only=True):
    """Preempt: take all workers away, keep what is needed to resume."""

    job_id: str
    is_kill: bool = False
    """Whether its processes are killed at once: they have had their time."""


class StopJob(Struct, frozen=True, kw_only=True):
    """End for good: the job is finished, canceled, or not ours to run."""

    job_id: str
    reason: StopReason
    is_kill: bool = False
    """Whether its processes are killed at once: an admin wants it."""


def places(nodes: Sequence[str]) -> dict[int, str]:
    """Return worker index -> node, without those that have none yet."""
    return {index: node for index, node in enumerate(nodes) if node}


Action = StartJob | ResizeJob | HaltJob | StopJob


class ExpectedTimes(Struct, frozen=True, kw_only=True):
    """When a live job is expected to start and to end."""

    position: int | None = None
    """In the queue, 1 = next; None: it does not wait."""
    starts_at: float | None = None
    """Instant it gets its first workers, or workers again, while it waits; seconds since the epoch."""
    finishes_at: float | None = None
    """Instant it ends; seconds since the epoch."""

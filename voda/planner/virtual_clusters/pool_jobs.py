"""The jobs of a pool as a decision in cells looks at them, kept from one state of the pool to the next.

Rule: what is kept of a job follows from the job and from its part of the plan in force, and from nothing else.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from msgspec import Struct

from voda.cells.structure.quotas import Quotas
from voda.domain.cells import DEFAULT_VIRTUAL_CLUSTER
from voda.domain.job import Job, JobSpec
from voda.domain.reasons.outcomes import Reason


class JobCells(Struct, frozen=True, kw_only=True, gc=False):
    """Where the workers of a job are, by index."""

    nodes: tuple[str, ...]
    devices: tuple[tuple[int, ...], ...]
    quotas: tuple[str, ...]
    """The quota cell of each guaranteed worker, as `Quotas.root_names` has it; they come first."""


@dataclass
class KeptPart:
    """The plan in force, of the jobs that have the cells that it names."""

    placement: dict[str, tuple[str, ...]] = field(default_factory=dict)
    devices: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    quotas: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of those of which some workers are guaranteed."""
    reasons: dict[str, Reason] = field(default_factory=dict)
    """What is said of one that keeps all that."""

    def copy(self) -> "KeptPart":
        """Return one that may change."""
        return KeptPart(self.placement.copy(), self.devices.copy(), self.quotas.copy(), self.reasons.copy())

    def put(self, job_id: str, cells: JobCells) -> None:
        """Note what a job has."""
        self.placement[job_id], self.devices[job_id] = cells.nodes, cells.devices
        if cells.quotas:
            self.quotas[job_id] = cells.quotas

    def drop(self, job_id: str) -> None:
        """Forget a job."""
        for each in (self.placement, self.devices, self.quotas, self.reasons):
            each.pop(job_id, None)


@dataclass
class Rests:
    """What jobs may have beyond their quotas, as the last decision found it (`opportunistic`)."""

    is_rigid: bool = False
    """Whether the policy gives a job as many workers as it requests, or none."""
    jobs: dict[str, Job] = field(default_factory=dict)
    served: Mapping[str, int] = field(default_factory=dict)
    caps: Mapping[str, int] = field(default_factory=dict)
    last: Set[str] = frozenset()
    """What these were found from, with the jobs themselves."""
    stale: set[str] = field(default_factory=set)
    """Jobs that have changed since."""


@dataclass
class PoolJobs:
    """All jobs that are not being canceled, in named sets."""

    kept: KeptPart = field(default_factory=KeptPart)
    by_quota: dict[tuple[str, str], dict[str, Job]] = field(default_factory=dict)
    """Virtual cluster and pinned cell, or none -> the jobs that have a part in its guarantee."""
    sure: dict[str, int] = field(default_factory=dict)
    """Job -> how many workers of it are guaranteed."""
    lent: set[str] = field(default_factory=set)
    """Jobs with workers on idle cells."""
    growing: set[str] = field(default_factory=set)
    """Jobs that may have more workers than are guaranteed."""
    partial: set[str] = field(default_factory=set)
    """Jobs of which a part of the minimum is guaranteed."""
    refusing: set[str] = field(default_factory=set)
    """Jobs that some node refuses."""
    rests: Rests = field(default_factory=Rests)
    _quota_of: dict[str, tuple[str, str]] = field(default_factory=dict)

    def put(self, job: Job, quotas: Quotas, *, sure: int, lent: int) -> None:
        """Note a job, of which so many workers are guaranteed and on idle cells."""
        spec = job.spec
        job_id, quota = spec.job_id, quota_of(quotas, spec)
        if (before := self._quota_of.get(job_id)) != quota and before is not None:
            del self.by_quota[before][job_id], self._quota_of[job_id]
        if quota is not None:
            self.by_quota.setdefault(quota, {})[job_id] = job
            self._quota_of[job_id] = quota
        self.sure[job_id] = sure
        self.rests.stale.add(job_id)
        for those, is_one in (
            (self.lent, lent > 0),
            (self.growing, sure < spec.max_replicas),
            (self.partial, 0 < sure < spec.min_replicas),
            (self.refusing, bool(job.refusals)),
        ):
            (those.add if is_one else those.discard)(job_id)

    def drop(self, job_id: str) -> None:
        """Forget a job."""
        if (quota := self._quota_of.pop(job_id, None)) is not None:
            del self.by_quota[quota][job_id]
        self.sure.pop(job_id, None)
        self.rests.stale.add(job_id)
        for those in (self.lent, self.growing, self.partial, self.refusing):
            those.discard(job_id)
        self.kept.drop(job_id)


def cluster_of(quotas: Quotas, spec: JobSpec) -> str:
    """Return the virtual cluster of a job; empty: it is there no longer."""
    name = spec.virtual_cluster or DEFAULT_VIRTUAL_CLUSTER
    return name if name in quotas.names else ""


def quota_of(quotas: Quotas, spec: JobSpec) -> tuple[str, str] | None:
    """Return the virtual cluster that guarantees cells to a job, and its pinned cell if it names one; None: none."""
    cluster, pin = key = spec.virtual_cluster or DEFAULT_VIRTUAL_CLUSTER, spec.pinned_cell
    if not spec.is_guaranteed:
        return None
    return key if (key in quotas.pin_views if pin else cluster in quotas.names) else None

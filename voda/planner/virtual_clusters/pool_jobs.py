"""The jobs of a pool as a decision in cells looks at them, kept from one state of the pool to the next.

Rule: what is kept of a job follows from the job and from its part of the plan in force, and from nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from msgspec import Struct

from voda.cells.structure.quotas import Quotas, QuotaView
from voda.domain.cells import DEFAULT_VIRTUAL_CLUSTER
from voda.domain.gpus import Gpus
from voda.domain.job import Job, JobSpec
from voda.domain.reasons.outcomes import Reason
from voda.planner.feasibility import capped_job


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
class QuotaJobs:
    """The jobs that have a part in the guarantee of a virtual cluster, or in one of its pinned cells."""

    views: Sequence[QuotaView]
    jobs: dict[str, Job] = field(default_factory=dict)
    fitting: dict[str, Job] = field(default_factory=dict)
    """Those whose minimum the quota holds, with as many workers as it holds at the most."""
    too_large: dict[str, int] = field(default_factory=dict)
    """The others -> workers that it holds."""
    _held: dict[Gpus, int] = field(default_factory=dict, compare=False)
    """GPUs of a worker -> workers that it holds."""

    def put(self, job: Job, quotas: Quotas) -> None:
        """Note a job."""
        job_id, gpus = job.spec.job_id, job.spec.gpus_per_replica
        if (most := self._held.get(gpus)) is None:
            most = self._held[gpus] = most_workers(quotas, self.views, gpus)
        self.jobs[job_id] = job
        if most < job.spec.min_replicas:
            self.too_large[job_id] = most
            self.fitting.pop(job_id, None)
        else:
            self.fitting[job_id] = job if most >= job.spec.max_replicas else capped_job(job, most)
            self.too_large.pop(job_id, None)

    def drop(self, job_ids: Iterable[str]) -> None:
        """Forget jobs."""
        for job_id in job_ids:
            for each in (self.jobs, self.fitting, self.too_large):
                each.pop(job_id, None)

    def without(self, job_ids: Set[str]) -> "QuotaJobs":
        """Return the others; the very same where none of these has a part."""
        if not (mine := [job_id for job_id in job_ids if job_id in self.jobs]):
            return self
        others = replace(self, jobs=self.jobs.copy(), fitting=self.fitting.copy(), too_large=self.too_large.copy())
        others.drop(mine)
        return others


@dataclass
class PoolJobs:
    """All jobs that are not being canceled, in named sets."""

    kept: KeptPart = field(default_factory=KeptPart)
    by_quota: dict[tuple[str, str], QuotaJobs] = field(default_factory=dict)
    """By virtual cluster and pinned cell, or none."""
    sure: dict[str, int] = field(default_factory=dict)
    """Job -> how many workers of it are guaranteed."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Job -> how many workers it has."""
    lent: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Job -> nodes of its workers on idle cells, where it has some."""
    lent_gpus: dict[str, int] = field(default_factory=dict)
    """The same jobs -> GPUs of these workers."""
    partial: set[str] = field(default_factory=set)
    """Jobs of which a part of a size is guaranteed."""
    refusing: set[str] = field(default_factory=set)
    """Jobs that some node refuses."""
    rests: Rests = field(default_factory=Rests)
    _quota_of: dict[str, tuple[str, str]] = field(default_factory=dict)

    def put(self, job: Job, quotas: Quotas, *, sure: int, lent: tuple[str, ...]) -> None:
        """Note a job, of which so many workers are guaranteed, and others on idle cells of these nodes."""
        spec = job.spec
        job_id, quota = spec.job_id, quota_of(quotas, spec)
        if (before := self._quota_of.get(job_id)) != quota and before is not None:
            self.by_quota[before].drop((job_id,))
            del self._quota_of[job_id]
        if quota is not None:
            if quota not in self.by_quota:
                self.by_quota[quota] = QuotaJobs(views_of(quotas, *quota))
            self.by_quota[quota].put(job, quotas)
            self._quota_of[job_id] = quota
        self.sure[job_id], self.sizes[job_id] = sure, sure + len(lent)
        self.rests.stale.add(job_id)
        if lent:
            self.lent[job_id], self.lent_gpus[job_id] = lent, len(lent) * spec.gpus_per_replica
        else:
            self.lent.pop(job_id, None)
            self.lent_gpus.pop(job_id, None)
        for those, is_one in (
            (self.partial, spec.size_within(sure) != sure),
            (self.refusing, bool(job.refusals)),
        ):
            (those.add if is_one else those.discard)(job_id)

    def drop(self, job_id: str) -> None:
        """Forget a job."""
        if (quota := self._quota_of.pop(job_id, None)) is not None:
            self.by_quota[quota].drop((job_id,))
        for each in (self.sure, self.sizes, self.lent, self.lent_gpus):
            each.pop(job_id, None)
        self.rests.stale.add(job_id)
        for those in (self.partial, self.refusing):
            those.discard(job_id)
        self.kept.drop(job_id)


def views_of(quotas: Quotas, cluster: str, pin: str = "") -> Sequence[QuotaView]:
    """Return the quota cells of a virtual cluster in each chain, or one of its pinned cells."""
    if pin:
        return [view for key, view in quotas.pin_views.items() if key == (cluster, pin)]
    return [view for (owner, _), view in quotas.views.items() if owner == cluster]


def most_workers(quotas: Quotas, views: Sequence[QuotaView], gpus: int) -> int:
    """Return how many workers a quota holds in one chain, were it empty and healthy."""
    leafs = quotas.trees.leafs
    return max((sum(len(leafs[node]) // gpus for node in view.nodes) for view in views), default=0)


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

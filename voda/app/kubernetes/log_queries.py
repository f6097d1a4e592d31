"""What the cluster and the metrics ask of the log, answered from this replica's projections of it.

Rule: each answer is computed when it is needed, in O(jobs or objects looked at).
"""

from collections.abc import Callable, Container, Iterable, Mapping

from voda.application.read_model import ReadModel
from voda.application.submit_job import adoption_id
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.state.job_annotations import foreign_manager
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.domain.job import Job
from voda.domain.reasons.stalls import StallReason
from voda.projections.jobs.registry import JobRegistry
from voda.projections.live import Live


class LoggedJobs:
    """The jobs of the log (see JobLog); `latest` returns, given the view's state, that of the reader which is ahead."""

    def __init__(self, view: ReadModel, latest: Callable[[Live], Live]) -> None:
        self._view = view
        self._latest = latest

    def live_job(self, job_id: str) -> Job | None:
        return self._latest(self._view.live).cluster.job(job_id)

    def ended_job(self, job_id: str) -> Job | None:
        record = self._view.job_registry.job(job_id)
        return record.job if record is not None and not record.is_live else None

    def adopted_job(self, uid: str) -> str | None:
        return self._view.job_registry.submission(adoption_id(uid))

    def live_jobs(self) -> Iterable[Job]:
        return self.by_id().values()

    def by_id(self) -> Mapping[str, Job]:
        live = self._view.cluster
        return {job_id: job for pool in live.pools() for job_id, job in live.jobs(pool).items()}

    def job_pools(self) -> Iterable[str]:
        live = self._view.cluster
        return [pool for pool in live.pools() if live.jobs(pool)]

    def stall(self, job_id: str) -> StallReason | None:
        record = self._view.job_registry.job(job_id)
        return record.stall if record is not None else None

    def launcher_node(self, job_id: str) -> str:
        cluster = self._latest(self._view.live).cluster
        job = cluster.job(job_id)
        return "" if job is None else cluster.pool(job.spec.pool).plan.launchers.get(job_id, "")

    def is_mostly_silent(self, pool: str) -> bool:
        return self._latest(self._view.live).cluster.state(pool).is_mostly_silent

    def has_ended(self, job_id: str) -> bool:
        """Say whether a job is live no more, or never was."""
        return self.live_job(job_id) is None


def unadopted(objects: Iterable[KubeJob], job_registry: JobRegistry, refused: Container[str]) -> Mapping[str, int]:
    """Return how many objects carry voda's label and are no jobs of its: waiting, or `refused` (uids)."""
    counts = {"waiting": 0, "refused": 0}
    for kind, job in objects:
        if _is_requested(kind, job) and not _is_logged(job, job_registry):
            counts["refused" if job.metadata.uid in refused else "waiting"] += 1
    return counts


def _is_requested(kind: JobKind, job: JobObject) -> bool:
    meta = job.metadata
    is_live = meta.is_managed and meta.deletion_timestamp is None and not job.has_finished
    return is_live and not foreign_manager(kind, job)


def _is_logged(job: JobObject, job_registry: JobRegistry) -> bool:
    meta = job.metadata
    if job_registry.submission(adoption_id(meta.uid)) is not None:
        return True
    record = job_registry.job(meta.annotations.get(well_known.JOB_ID, ""))
    return record is not None and record.job.uid == meta.uid

"""MPIJob v1 of training-operator, whose launcher is a pod. Pure.

Rules: once its operator calls a job failed, it does nothing for it any more, and an evicted worker is enough for
that; such a job is broken, not ended. Workers get restartPolicy ExitCode, with which a worker that failed by itself
does not end the job: they only wait to be used by the launcher, whose own restartPolicy stays what the user said.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from voda.cluster.kubernetes.kinds.failures import is_limit, lost, reason
from voda.cluster.kubernetes.kinds.mpijob import MPIJob
from voda.cluster.kubernetes.resources.objects import JobCondition, JobObject, Pod, ReplicaStatus
from voda.domain.job import JobSpec
from voda.events.types import JobCompleted, JobFailed

_LOST: Final = frozenset({"Evicted", "NodeLost", "Terminated", "Shutdown", "NodeShutdown", "Preempting"})
"""Reasons of Failed, the kind's name left out: evicted workers, and the own reason of a launcher pod that was lost."""
_INVALID: Final = "MPIJobFailedValidation"
_NONE: Final = ReplicaStatus()


class MPIJobV1(MPIJob):
    """MPIJob v1."""

    api_version: ClassVar[str] = "kubeflow.org/v1"

    def end(self, job: JobObject, pods: Sequence[Pod], job_id: str) -> JobCompleted | JobFailed | None:
        """Return how the job ended; see JobKind."""
        if job.status.condition("Succeeded") is not None:
            return JobCompleted(job_id=job_id)
        failed = job.status.condition("Failed")
        if failed is None or self._is_for_loss(job, failed, pods):
            return None
        launchers = [pod for pod in pods if self.is_launcher(pod)]
        return JobFailed(job_id=job_id, reason=reason(self.name, failed, launchers))

    def is_broken(self, job: JobObject, pods: Sequence[Pod]) -> bool:
        """Say whether the job was given up for a lost pod; see JobKind."""
        if job.status.condition("Succeeded") is not None:
            return False
        failed = job.status.condition("Failed")
        return failed is not None and self._is_for_loss(job, failed, pods)

    def _is_for_loss(self, job: JobObject, failed: JobCondition, pods: Sequence[Pod]) -> bool:
        if is_limit(self.name, failed) or failed.reason == _INVALID:
            return False
        launchers = [pod for pod in pods if self.is_launcher(pod) and pod.status.phase == "Failed"]
        if launchers:
            return any(lost(pod) for pod in launchers)
        if failed.reason.removeprefix(self.name) in _LOST:
            return True
        roles = job.status.replica_statuses
        return not roles.get("Launcher", _NONE).failed and roles.get("Worker", _NONE).failed > 0

    def _adapt(self, job: dict[str, Any], spec: JobSpec) -> None:
        job["spec"]["mpiReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"

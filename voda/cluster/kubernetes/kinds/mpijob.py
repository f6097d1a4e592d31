"""MPIJob: v2beta1 of mpi-operator, whose launcher is a Job, and v1 of training-operator, whose launcher is a pod. Pure.

Rules: in v2beta1 only the launcher's end is the job's. A lost worker is at most a condition that says Failed without a
completionTime: the operator goes on, and makes the worker anew once its pod is deleted. In v1 the operator does nothing
more for a job once it calls it failed, and an evicted worker is enough for that: such a job is broken, not ended.
Workers of v1 get restartPolicy ExitCode, with which a worker that failed by itself does not end the job: workers only
wait for the launcher, whose own restartPolicy stays as the user wrote it. A launcher that asks for GPUs, and may go
wherever workers may, has a gate as they have.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.operator_pods import is_launcher, is_over_limit, limit, lost
from voda.cluster.kubernetes.objects import JobObject, KubeCondition, Pod, ReplicaStatus
from voda.domain.job import JobSpec
from voda.kinds.base import JobManifest
from voda.kinds.mpijob import V1, V2, MPIJob
from voda.kubernetes_client.paths import api_path

_LOST: Final = frozenset({"Evicted", "NodeLost", "Terminated", "Shutdown", "NodeShutdown", "Preempting"})
"""Reasons of Failed, the kind's name left out: evicted workers, and the own reason of a launcher pod that was lost."""
_INVALID: Final = "MPIJobFailedValidation"
_NONE: Final = ReplicaStatus()


class _AnyMPIJob(JobKind):
    """An MPIJob; the launcher's host discovery tells running programs of a resize, so any size will do."""

    kind: ClassVar[type[JobManifest]] = MPIJob

    def can_resize(self, job: JobObject, replicas: int) -> bool:
        return "Worker" in job.spec.roles(self.kind.replica_specs)

    def failed_pods(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Return the launchers, as only their end is the job's, and workers that went beyond their own limits."""
        return [pod for pod in pods if is_launcher(pod) or is_over_limit(pod)]


class MPIJobV2(_AnyMPIJob):
    api_version: ClassVar[str] = V2
    operator: ClassVar[str] = "mpi-operator"

    def outdated_paths(self, namespace: str, name: str) -> Sequence[str]:
        """Return the launcher's Job, which is made at once, suspended or not, and never changed."""
        return (api_path("batch/v1", "jobs", namespace, f"{name}-launcher"),)

    def is_for_loss(self, job: JobObject, failed: KubeCondition, pods: Sequence[Pod]) -> bool:
        """Return whether the job goes on: only its launcher's failure has a completionTime."""
        return job.status.completion_time is None

    def is_broken(self, job: JobObject, pods: Sequence[Pod]) -> bool:
        """Return whether its launcher's exit code was taken for success; this operator gives no job up for a worker."""
        return job.is_void


class MPIJobV1(_AnyMPIJob):
    api_version: ClassVar[str] = V1

    def is_for_loss(self, job: JobObject, failed: KubeCondition, pods: Sequence[Pod]) -> bool:
        """Return whether a lost pod alone made the operator give the job up."""
        if limit(self.name, failed) or failed.reason == _INVALID:
            return False
        launchers = [pod for pod in pods if is_launcher(pod) and pod.status.phase == "Failed"]
        if launchers:
            return any(lost(pod) for pod in launchers)
        if any(map(is_over_limit, pods)):
            # It would be evicted again.
            return False
        if failed.reason.removeprefix(self.name) in _LOST:
            return True
        roles = job.status.replica_statuses
        return not roles.get("Launcher", _NONE).failed and roles.get("Worker", _NONE).failed > 0

    def _adapt(self, job: dict[str, Any], spec: JobSpec, *, is_new: bool) -> None:
        job["spec"]["mpiReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"

"""MPIJob v2beta1 of mpi-operator, whose launcher is a Job. Pure.

Rule: only the launcher's end is the job's. A lost worker is at most a condition that says Failed without a
completionTime: the operator goes on, and makes the worker anew once its pod is deleted.
"""

from collections.abc import Sequence
from typing import ClassVar
from urllib.parse import quote

from voda.cluster.kubernetes.kinds.failures import reason
from voda.cluster.kubernetes.kinds.mpijob import MPIJob
from voda.cluster.kubernetes.resources.objects import JobObject, Pod
from voda.events.types import JobCompleted, JobFailed


class MPIJobV2(MPIJob):
    """MPIJob v2beta1."""

    api_version: ClassVar[str] = "kubeflow.org/v2beta1"

    def outdated(self, namespace: str, name: str) -> Sequence[str]:
        """Return the launcher's Job, which is made at once, suspended or not, and never changed."""
        return (f"/apis/batch/v1/namespaces/{quote(namespace, safe='')}/jobs/{quote(name, safe='')}-launcher",)

    def end(self, job: JobObject, pods: Sequence[Pod], job_id: str) -> JobCompleted | JobFailed | None:
        """Return how the job ended; see JobKind."""
        if job.status.condition("Succeeded") is not None:
            return JobCompleted(job_id=job_id)
        failed = job.status.condition("Failed")
        if failed is None or job.status.completion_time is None:
            return None
        launchers = [pod for pod in pods if self.is_launcher(pod)]
        return JobFailed(job_id=job_id, reason=reason(self.name, failed, launchers))

    def is_broken(self, job: JobObject, pods: Sequence[Pod]) -> bool:
        """Say that this operator never gives a job up for a worker."""
        return False

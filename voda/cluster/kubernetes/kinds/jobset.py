"""JobSet v1alpha2: its controller makes one Job, `JOBSET-NAME-0`, whose pods are the replicas. Pure.

Measured with JobSet 0.10.1 and its webhooks on Kubernetes 1.37.2:
- A suspended JobSet can be given gates, labels, annotations, tolerations and a nodeSelector of pods, also after it ran;
  its Job gets them when it is resumed. Sizes and everything else are refused, suspended or not, as are gates while it
  runs.
- The Job is made at once, also of a suspended JobSet. Its parallelism and completions can be changed at any time; the
  controller writes nothing back, neither after a resize nor when the JobSet is suspended and resumed.
- A restart by failurePolicy makes the Job anew, of the size of the JobSet and with the gates.

Rules: suspend and templates are the JobSet's, size and finished indices are the Job's; how the job ended says the
JobSet alone, because it may start a failed Job again.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from voda.cluster.kubernetes.kinds.base import Patch
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1, note_start
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.domain.job import JobSpec
from voda.events.types import JobCompleted, JobFailed
from voda.kinds.base import JobManifest
from voda.kinds.jobset import JobSet


class JobSetV1Alpha2(IndexedJobV1):
    kind: ClassVar[type[JobManifest]] = JobSet
    api_version: ClassVar[str] = "jobset.x-k8s.io/v1alpha2"
    operator: ClassVar[str] = "the JobSet controller"
    # Its Job is resized first.
    is_ready_by_start: ClassVar[bool] = False

    def replicas(self, job: JobObject) -> int:
        """Return the size of its Job; 0 while that is not there."""
        return super().replicas(job.child) if job.child is not None else 0

    def resize_patch(self, job: JobObject, replicas: int) -> Patch:
        size = {"parallelism": replicas, "completions": replicas, "podReplacementPolicy": "Failed"}
        return Patch(body={"spec": size}, is_of_child=True)

    def end(self, job: JobObject, pods: Sequence[Pod], job_id: str) -> JobCompleted | JobFailed | None:
        """See JobKind; pods of a Job that was started again say nothing any more."""
        return super().end(job, [pod for pod in pods if job.owns(pod)], job_id)

    def _adapt(self, job: dict[str, Any], spec: JobSpec, *, is_new: bool) -> None:
        note_start(job, self.kind)
        if is_new:
            for each in job["spec"]["replicatedJobs"]:
                made = each["template"]["spec"]
                made["podReplacementPolicy"] = "Failed"
                made["template"]["spec"].setdefault("restartPolicy", "Never")

    def _sized(self, job: JobObject, replicas: int) -> dict[str, Any]:
        # A merge patch would replace the list of its replicated jobs.
        return {}

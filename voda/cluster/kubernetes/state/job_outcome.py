"""How a job ended: as its operator says, or because its workers failed more often than it allows. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from voda.cluster.kubernetes.kinds.failures import exhausted, lost
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import Pod
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.events.types import JobCompleted, JobFailed


def outcome_of(kube_job: KubeJob, pods: Sequence[Pod], job_id: str) -> JobCompleted | JobFailed | None:
    """Return how a job ended; None while it goes on."""
    if (end := kube_job.kind.end(kube_job.object, pods, job_id)) is not None:
        return end
    reason = exhausted(kube_job.object, worker_failures(kube_job))
    return JobFailed(job_id=job_id, reason=reason) if reason else None


def worker_failures(kube_job: KubeJob) -> int:
    """Return how many workers of the object failed by themselves so far, as noted on it."""
    text = kube_job.object.metadata.annotations.get(well_known.WORKER_FAILURES, "0")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def counted_failures(kube_job: KubeJob, over: Iterable[Pod], there: Iterable[Pod]) -> Mapping[str, str]:
    """Return the annotations that count workers which failed by themselves, before their pods go.

    A pod may exist for a while after it was counted: its deletion takes time, and voda may crash in between. So its
    uid is noted with the number for as long as the pod exists, and it is not counted twice.

    Args:
        kube_job: the job's object.
        over: pods of workers that are about to go.
        there: all of its workers' pods.

    Returns:
        Empty where there is nothing to add.
    """
    before = set(kube_job.object.metadata.annotations.get(well_known.COUNTED_FAILURES, "").split())
    counted = before & {pod.metadata.uid for pod in there}
    failed = {pod.metadata.uid for pod in over if not lost(pod)} - counted
    if not failed:
        return {}
    total = worker_failures(kube_job) + len(failed)
    return {well_known.WORKER_FAILURES: str(total), well_known.COUNTED_FAILURES: " ".join(sorted(counted | failed))}

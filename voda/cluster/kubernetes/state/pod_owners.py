"""Which pods are the workers of which job.

Rule: pure; what a pod says of itself anybody can have written, or copied with the rest, and alone it proves nothing: a
worker of a job is in the job's namespace, belongs to an object of the job's name, and is named as its replicas are.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from voda.cluster.kubernetes.kinds import pod_names as named
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import Pod
from voda.domain.job import Job

_NONE: Final[Mapping[str, Pod]] = {}


class WorkersByJob:
    """Worker pods by job.

    Args:
        job: returns a job of the log, live or ended; None where it knows none of that id.
    """

    def __init__(self, job: Callable[[str], Job | None]) -> None:
        self._job = job
        self._pods: defaultdict[str, dict[str, dict[str, Pod]]] = defaultdict(dict)
        """job id -> namespace/name of an object -> its pods that say they are the job's, by key."""

    def add(self, key: str, pod: Pod) -> None:
        """Take a pod in, if it says that it is a worker."""
        if job_id := worker_of(pod):
            self._pods[job_id].setdefault(owner_key(pod), {})[key] = pod

    def drop(self, key: str, pod: Pod) -> None:
        """Forget a pod as it was taken in."""
        job_id, owner = worker_of(pod), owner_key(pod)
        owners = self._pods.get(job_id, {})
        if owners.get(owner, {}).pop(key, None) is not None and not owners[owner]:
            del owners[owner]
            if not owners:
                del self._pods[job_id]

    def of(self, job_id: str) -> Mapping[str, Pod]:
        """Return the workers of a job, by key; of one that the log does not know, all that say they are."""
        owners = self._pods.get(job_id)
        if not owners:
            return _NONE
        if (job := self._job(job_id)) is not None:
            return owners.get(object_key(job), _NONE)
        return {key: pod for pods in owners.values() for key, pod in pods.items()}

    def has(self, pod: Pod) -> str:
        """Return the id of the job that a pod is a worker of; empty where it is none."""
        job_id = worker_of(pod)
        if not job_id or (job := self._job(job_id)) is None:
            return job_id
        return job_id if owner_key(pod) == object_key(job) else ""

    def job_ids(self) -> Iterator[str]:
        """Yield the jobs that have workers."""
        return (job_id for job_id in list(self._pods) if self.of(job_id))


def worker_of(pod: Pod) -> str:
    """Return the id of the job that a pod says it is a worker of; empty where voda does not place it."""
    if pod.spec.scheduler_name != well_known.SCHEDULER or index(pod) is None:
        return ""
    return pod.metadata.annotations.get(well_known.JOB_ID, "")


def index(pod: Pod) -> int | None:
    """Return the replica index of a pod, by its name; None where it is no replica of what it says it belongs to."""
    return named.index(pod.metadata.labels.get(well_known.OPERATOR_JOB_NAME, ""), pod)


def owner_key(pod: Pod) -> str:
    """Return namespace/name of the object that a pod says it belongs to; empty where it says none."""
    owner = pod.metadata.labels.get(well_known.OPERATOR_JOB_NAME)
    return f"{pod.metadata.namespace}/{owner}" if owner else ""


def object_key(job: Job) -> str:
    """Return namespace/name of a job's object."""
    return f"{job.spec.namespace}/{job.spec.name or job.spec.job_id}"

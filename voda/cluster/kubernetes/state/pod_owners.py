"""Which pods belong to which job and to which job object.

Rule: pure; labels and annotations of a pod prove nothing alone, because anybody can write or copy them: a worker of a
job is in the job's namespace, belongs to an object of the job's name, and is named as its replicas are.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from voda.cluster.kubernetes.kinds import pod_names as named
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import Pod
from voda.domain.job import Job

_NONE: Final[Mapping[str, Pod]] = {}


class PodOwners:
    """Pods by job object, and worker pods by job.

    Args:
        job: returns a job of the log, live or ended; None where the log has none of that id.
    """

    def __init__(self, job: Callable[[str], Job | None]) -> None:
        self._job = job
        self._workers: defaultdict[str, dict[str, dict[str, Pod]]] = defaultdict(dict)
        """job id -> namespace/name of an object -> its pods that carry the job's id, by key."""
        self._pods: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        """namespace/name of an object -> its pods, launchers too, by key."""

    def add(self, key: str, pod: Pod) -> None:
        """Store a pod."""
        owner = owner_key(pod)
        if owner:
            self._pods[owner][key] = pod
        if job_id := worker_of(pod):
            self._workers[job_id].setdefault(owner, {})[key] = pod

    def drop(self, key: str, pod: Pod) -> None:
        """Forget a pod as it was added."""
        job_id, owner = worker_of(pod), owner_key(pod)
        _remove(self._pods, owner, key)
        _remove(self._workers.get(job_id, {}), owner, key)
        if not self._workers.get(job_id, True):
            del self._workers[job_id]

    def pods(self, owner: str) -> Mapping[str, Pod]:
        """Return the pods of an object, by key.

        Args:
            owner: namespace/name of the object.
        """
        return self._pods.get(owner, _NONE)

    def workers(self, job_id: str) -> Mapping[str, Pod]:
        """Return the workers of a job, by key; of a job that the log does not have, all that carry its id."""
        owners = self._workers.get(job_id)
        if not owners:
            return _NONE
        if (job := self._job(job_id)) is not None:
            return owners.get(object_key(job), _NONE)
        return {key: pod for pods in owners.values() for key, pod in pods.items()}

    def job_of(self, pod: Pod) -> str:
        """Return the id of the job that a pod is a worker of; empty where it is none."""
        job_id = worker_of(pod)
        if not job_id or (job := self._job(job_id)) is None:
            return job_id
        return job_id if owner_key(pod) == object_key(job) else ""

    def job_ids(self) -> Iterator[str]:
        """Yield the jobs that have workers."""
        return (job_id for job_id in list(self._workers) if self.workers(job_id))


def worker_of(pod: Pod) -> str:
    """Return the id of the job that a pod carries as a worker; empty where voda does not place it."""
    if pod.spec.scheduler_name != well_known.SCHEDULER or index(pod) is None:
        return ""
    return pod.metadata.annotations.get(well_known.JOB_ID, "")


def index(pod: Pod) -> int | None:
    """Return the replica index of a pod, by its name; None where it is no replica of the object it belongs to."""
    return named.index(pod.metadata.labels.get(well_known.OPERATOR_JOB_NAME, ""), pod)


def owner_key(pod: Pod) -> str:
    """Return namespace/name of the object that a pod's label names; empty without the label."""
    owner = pod.metadata.labels.get(well_known.OPERATOR_JOB_NAME)
    return f"{pod.metadata.namespace}/{owner}" if owner else ""


def object_key(job: Job) -> str:
    """Return namespace/name of a job's object."""
    return f"{job.spec.namespace}/{job.spec.name or job.spec.job_id}"


def _remove(pods: dict[str, dict[str, Pod]], owner: str, key: str) -> None:
    if pods.get(owner, {}).pop(key, None) is not None and not pods[owner]:
        del pods[owner]

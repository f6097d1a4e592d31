"""The job objects of the cluster: by uid, by the job id that they carry, and by their own name.

Rule: no I/O; a younger version of an object replaces an older one, never the other way round.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import JobObject, ObjectMeta, Pod
from voda.cluster.kubernetes.state.paths import job_path
from voda.cluster.kubernetes.state.pod_owners import owner_key


class KubeJob(NamedTuple):
    """A job object and its kind."""

    kind: JobKind
    object: JobObject

    @property
    def path(self) -> str:
        """Path on the API server."""
        return job_path(self.kind, self.object.metadata.namespace, self.object.metadata.name)


class ObjectIndex:
    """Job objects."""

    def __init__(self) -> None:
        self.by_uid: dict[str, KubeJob] = {}
        self._by_job: defaultdict[str, set[str]] = defaultdict(set)
        """job id -> uids of the objects that carry it."""
        self._by_name: defaultdict[str, set[str]] = defaultdict(set)
        """namespace/name -> uids of the job objects of that name: one, but for kinds that share it."""

    def put(self, uid: str, kind: JobKind, now: JobObject | None) -> set[str]:
        """Store an object as it is now, None: it is gone; return the ids of the jobs that this concerns."""
        before = self.by_uid.get(uid)
        if before is not None and now is not None and is_older(now.metadata, before.object.metadata):
            return set()
        jobs: set[str] = set()
        if before is not None:
            jobs |= self._mark(uid, before.object, is_there=False)
            del self.by_uid[uid]
        if now is not None:
            self.by_uid[uid] = KubeJob(kind, now)
            jobs |= self._mark(uid, now, is_there=True)
        return jobs

    def carrying(self, job_id: str) -> Iterable[KubeJob]:
        """Return the objects that carry a job's id; a copy of the job's object does so too."""
        return [self.by_uid[uid] for uid in sorted(self._by_job.get(job_id, ()))]

    def job_ids(self) -> Iterable[str]:
        """Return the job ids that objects carry."""
        return [job_id for job_id, uids in self._by_job.items() if uids]

    def owner(self, pod: Pod) -> KubeJob | None:
        """Return the object that a pod belongs to."""
        for reference in pod.metadata.owner_references:
            if (owner := self.by_uid.get(reference.uid)) is not None:
                return owner
        # A launcher's owner may be a Job that the object owns; the label names the object all the same.
        uids = self._by_name.get(owner_key(pod), ())
        return self.by_uid[min(uids)] if uids else None

    def _mark(self, uid: str, job_object: JobObject, *, is_there: bool) -> set[str]:
        _put(self._by_name, job_object.metadata.key, uid, is_there=is_there)
        if not (job_id := job_object.metadata.annotations.get(well_known.JOB_ID, "")):
            return set()
        _put(self._by_job, job_id, uid, is_there=is_there)
        return {job_id}


def is_older(meta: ObjectMeta, than: ObjectMeta) -> bool:
    """Say whether a version of an object came before another one; those of different objects are not compared."""
    if meta.uid != than.uid:
        return False
    is_counted = meta.resource_version.isdecimal() and than.resource_version.isdecimal()
    return is_counted and int(meta.resource_version) < int(than.resource_version)


def _put(index: defaultdict[str, set[str]], key: str, uid: str, *, is_there: bool) -> None:
    if is_there:
        index[key].add(uid)
        return
    index[key].discard(uid)
    if not index[key]:
        del index[key]

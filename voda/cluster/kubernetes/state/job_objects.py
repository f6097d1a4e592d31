"""The job objects of the cluster by uid, by the job id that they carry and by their own name, and how their jobs ended.

Rules: no I/O; a younger version of an object replaces an older one, never the other way round; a job ended as its
operator says, or because its workers failed more often than it allows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from voda.backoff import delay_s
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.operator_pods import (
    ended_at,
    exhausted,
    index,
    is_launcher,
    is_taken,
    last_failure,
    lost,
)
from voda.cluster.kubernetes.kinds.success_policy import indices
from voda.cluster.kubernetes.objects import JobObject, ObjectMeta, OwnerReference, Pod
from voda.cluster.kubernetes.state.job_pods import FAILED_FOR_GOOD, SUCCESS, TERMINATED, Exit, owner_key
from voda.domain.job import Job, JobSpec
from voda.events.types import JobCompleted, JobFailed
from voda.kinds.registry import KINDS
from voda.kubernetes_client.api import Api

_FIRST_BACKOFF_S: Final = 10.0
_LONGEST_BACKOFF_S: Final = 600.0
"""Of the Job controller: the pause after a failure, doubled with each one in a row."""
_UNKNOWN: Final = "Unknown"
"""Why a container ended with code 255 that containerd found dead when it started, as after a reboot of the node."""


class KubeJob(NamedTuple):
    kind: JobKind
    object: JobObject

    @property
    def path(self) -> str:
        return self.kind.path(self.object.metadata.namespace, self.object.metadata.name)

    @property
    def done_indices(self) -> Set[int]:
        """Replicas that have succeeded or failed for good, and get no pod any more.

        The truth about them: `Job.done` is what the log has recorded of it, since plans are made from the log alone.
        """
        return (self._counted_indices - self.object.void) | self.failed_indices

    @property
    def failed_indices(self) -> Set[int]:
        """Those of them that have failed for good."""
        return indices((self.object.child or self.object).status.failed_indexes)

    @property
    def _counted_indices(self) -> Set[int]:
        return (self.object.child or self.object).status.done_indices

    @property
    def starts_together(self) -> bool:
        """Whether its replicas only work with those that were started with them; see JobKind."""
        return self.kind.starts_together(self.object)

    def was_restarted(self, pod: Pod) -> bool:
        """Whether a kubelet started the program of a pod again, which had ended."""
        status = pod.main_status(self.kind.kind.container_name)
        return status is not None and status.restart_count > 0

    def failed_in_place(self, pod: Pod) -> int | None:
        """Return the exit code with which that program had failed by itself; None where it did not, or was not
        started again.
        """
        status = pod.main_status(self.kind.kind.container_name) if self.was_restarted(pod) else None
        if status is None or (end := status.last_state.terminated) is None or end.reason == _UNKNOWN:
            return None
        is_killed = end.exit_code in TERMINATED and end.reason != "OOMKilled"
        return end.exit_code if end.exit_code and not is_killed else None

    def judged(self, pods: Iterable[Pod], job: Job) -> "KubeJob":
        """Return the object of a live job with what it takes for success and is none.

        The program of a pod that others delete may save, and exit with 0. A pod that finished by itself stays with its
        job; where the one of a success is gone, and the log has no success, nobody knows any more: it runs again.
        """
        if job.evictions_for_limits:
            return KubeJob(self.kind, replace(self.object, evictions=job.evictions_for_limits))._judged(pods, job)
        return self._judged(pods, job)

    def _judged(self, pods: Iterable[Pod], job: Job) -> "KubeJob":
        found = self.object
        if not (counted := self._counted_indices) and not found.status.has_succeeded:
            return self
        mine = [pod for pod in pods if found.owns(pod)]

        def is_void(replica: int) -> bool:
            its = [is_taken(pod) for pod in mine if index(pod) == replica]
            return all(its) if its else self._keeps_pods and job.first_started_at is not None

        if "Launcher" in self.kind.kind.role_names:
            launchers = [is_taken(pod) for pod in pods if is_launcher(pod)]
            is_gone = self._keeps_pods and job.first_started_at is not None
            return self._voided(frozenset(), is_whole=all(launchers) if launchers else is_gone)
        void = frozenset(each for each in counted - {*job.done} if is_void(each))
        if not counted:
            return self._voided(void, is_whole=0 not in job.done and is_void(0))
        is_whole = self._is_void_without(counted - void) or self._waits_for_what_is_done(counted - void, mine)
        return self._voided(void, is_whole=is_whole)

    @property
    def _keeps_pods(self) -> bool:
        """Whether its operator leaves pods there that have succeeded."""
        policy = self.object.spec.run_policy
        # That of an MPIJob v2beta1 is its launcher's alone.
        return policy.clean_pod_policy != "All" and policy.ttl_seconds_after_finished is None

    def _is_void_without(self, done: Set[int]) -> bool:
        """Say whether the Job can only run on if it is made anew, were these replicas all that succeeded."""
        if self._has_met_policy(done):
            return False
        is_short = done != self._counted_indices
        # Shrunk to no replica, or to those that are done, it would be complete.
        below = range(min(self._counted_indices - done, default=0))
        return is_short and (self.object.status.has_succeeded or done >= set(below))

    def _waits_for_what_is_done(self, done: Set[int], pods: Iterable[Pod]) -> bool:
        """Say whether replicas are to start that only work with replica 0, which is done and gets no pod any more."""
        if not self.starts_together or 0 not in done or self._has_met_policy(done):
            return False
        if self.object.is_suspended:
            return not set(range(self.kind.replicas(self.object))) <= done
        return any(well_known.GATE in pod.gates and pod.is_active for pod in pods)

    def _has_met_policy(self, done: Set[int]) -> bool:
        """Say whether the Job has succeeded by its successPolicy, were these replicas all that succeeded."""
        policy = (self.object.child or self.object).spec.success_policy
        return policy is not None and any(rule.is_met_by(done) for rule in policy.rules)

    def _voided(self, void: Set[int], *, is_whole: bool) -> "KubeJob":
        if not (void or is_whole):
            return self
        return KubeJob(self.kind, replace(self.object, void=void, is_void=is_whole))

    def is_broken(self, pods: Mapping[str, Pod]) -> bool:
        """Say whether its operator gave the job up for one of these pods, by key, that was lost; see JobKind."""
        return self.kind.is_broken(self.object, tuple(pods.values()))


def done_indices(kube_job: KubeJob | None) -> Set[int]:
    """Return the replicas that a job's Job makes no pod of any more, whatever is left of their pods."""
    return kube_job.done_indices if kube_job is not None else frozenset()


def done_exits(kube_job: KubeJob | None) -> Mapping[int, Exit]:
    """Return replica -> how it ended, of these."""
    failed = kube_job.failed_indices if kube_job is not None else frozenset[int]()
    return {index: FAILED_FOR_GOOD if index in failed else SUCCESS for index in done_indices(kube_job)}


OnJobChange = Callable[[JobKind, JobObject | None, JobObject | None], None]
"""(kind, object before, object now) -> nothing; None = was or is not there."""


class JobMirror(Protocol):
    """The job objects of a cluster as they are mirrored (see ClusterMirror); nothing here waits."""

    @property
    def api(self) -> Api: ...

    def jobs(self) -> Iterable[KubeJob]: ...

    def namespaces(self) -> Sequence[str]:
        """Return the namespaces where they are mirrored; one that is empty: everywhere."""

    def subscribe(self, on_change: OnJobChange) -> None: ...

    def kind_of(self, spec: JobSpec) -> JobKind:
        """Return the kind that runs such a job; ActionRefused: the cluster serves none."""

    def pods_of(self, job_id: str) -> Sequence[Pod]:
        """Return the pods of a job's object, as far as they are there."""


class ObjectIndex:
    def __init__(self) -> None:
        self.by_uid: dict[str, KubeJob] = {}
        self._by_job: defaultdict[str, set[str]] = defaultdict(set)
        """job id -> uids of the objects that carry it."""
        self._by_name: defaultdict[str, set[str]] = defaultdict(set)
        """namespace/name -> uids of those objects that have the name: one, but for kinds that share it."""
        self._children: dict[str, JobObject] = {}
        """namespace/uid of an object -> the Job that its controller made of it; of several the one that came last."""

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
            now = replace(now, child=self._children.get(f"{now.metadata.namespace}/{uid}"))
            self.by_uid[uid] = KubeJob(kind, now)
            jobs |= self._mark(uid, now, is_there=True)
        return jobs | self._put_child(before.object if before is not None else None, now)

    def carrying(self, job_id: str) -> Iterable[KubeJob]:
        """Return the objects that carry a job's id; a copy of the job's object does so too."""
        return [self.by_uid[uid] for uid in sorted(self._by_job.get(job_id, ()))]

    def job_ids(self) -> Iterable[str]:
        return [job_id for job_id, uids in self._by_job.items() if uids]

    def owner(self, pod: Pod) -> KubeJob | None:
        for reference in pod.metadata.owner_references:
            # A launcher's Job is in the cluster's mirror too, and no job of voda's.
            owner = self.by_uid.get(reference.uid)
            if owner is not None and well_known.JOB_ID in owner.object.metadata.annotations:
                return owner
        # A launcher's owner may be a Job that the object owns; the label names the object all the same.
        uids = self._by_name.get(owner_key(pod), ())
        return self.by_uid[min(uids)] if uids else None

    def _put_child(self, before: JobObject | None, now: JobObject | None) -> set[str]:
        """Attach an object to the one that it was made of, if to any; return the ids of the jobs that this concerns."""
        jobs: set[str] = set()
        if (job_object := now or before) is None:
            return jobs
        for owner in _makers(job_object):
            # Anybody can name an owner; only in its namespace it may be one.
            key = f"{job_object.metadata.namespace}/{owner.uid}"
            if now is not None:
                self._children[key] = now
            elif (child := self._children.get(key)) is not None and child.metadata.uid == job_object.metadata.uid:
                del self._children[key]
            if (made_of := self.by_uid.get(owner.uid)) is not None:
                child = self._children.get(f"{made_of.object.metadata.namespace}/{owner.uid}")
                self.by_uid[owner.uid] = KubeJob(made_of.kind, replace(made_of.object, child=child))
                jobs |= {made_of.object.metadata.annotations.get(well_known.JOB_ID, "")} - {""}
        return jobs

    def _mark(self, uid: str, job_object: JobObject, *, is_there: bool) -> set[str]:
        if not (job_id := job_object.metadata.annotations.get(well_known.JOB_ID, "")):
            return set()
        _put(self._by_name, job_object.metadata.key, uid, is_there=is_there)
        _put(self._by_job, job_id, uid, is_there=is_there)
        return {job_id}


def _makers(job_object: JobObject) -> Iterable[OwnerReference]:
    controllers = (owner for owner in job_object.metadata.owner_references if owner.controller)
    return (owner for owner in controllers if owner.kind in KINDS and KINDS[owner.kind].is_run_by_child)


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


def outcome_of(kube_job: KubeJob, pods: Sequence[Pod], job_id: str) -> JobCompleted | JobFailed | None:
    """Return how a job ended; None while it goes on."""
    if (end := kube_job.kind.end(kube_job.object, pods, job_id)) is not None:
        return end
    if (reason := exhausted(kube_job.object, worker_failures(kube_job))) is None:
        return None
    last = last_failure(pod for pod in pods if not lost(pod))
    return JobFailed(job_id=job_id, reason=replace(reason, last=last))


def failures_in_backoff(kube_job: KubeJob, pods: Iterable[Pod], now: float) -> int:
    """Return how many pods of a Job failed in a row, while its controller makes none at all for that; 0: it makes some.

    With backoffLimitPerIndex only the index that failed waits.
    """
    found = kube_job.object.child or kube_job.object
    if not kube_job.kind.replaces_failed_pods or found.spec.backoff_limit_per_index is not None:
        return 0
    ends = [(at, pod) for pod in pods if found.owns(pod) and (at := ended_at(pod)) is not None]
    succeeded_at = max((at for at, pod in ends if pod.status.phase == "Succeeded"), default=0.0)
    failed_at = [at for at, pod in ends if pod.status.phase == "Failed" and at >= succeeded_at]
    pause_s = delay_s(len(failed_at), first_s=_FIRST_BACKOFF_S, longest_s=_LONGEST_BACKOFF_S) if failed_at else 0.0
    return len(failed_at) if now < max(failed_at, default=0.0) + pause_s else 0


def worker_failures(kube_job: KubeJob) -> int:
    """Return how many workers of the object failed by themselves so far, as noted on it or known to the log."""
    return max(_noted_failures(kube_job), 0 if kube_job.kind.replaces_failed_pods else kube_job.object.evictions)


def _noted_failures(kube_job: KubeJob) -> int:
    text = kube_job.object.metadata.annotations.get(well_known.WORKER_FAILURES, "0")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def counted_failures(kube_job: KubeJob, over: Iterable[Pod], there: Iterable[Pod]) -> Mapping[str, str]:
    """Return the annotations that count workers which failed by themselves, before their pods go; empty: none to add.

    A pod may exist for a while after it was counted: its deletion takes time, and voda may crash in between. So its uid
    is noted with the number for as long as the pod exists, and it is not counted twice.
    """
    before = set(kube_job.object.metadata.annotations.get(well_known.COUNTED_FAILURES, "").split())
    counted = before & {pod.metadata.uid for pod in there}
    failed = {pod.metadata.uid for pod in over if not lost(pod)} - counted
    if not failed:
        return {}
    # Where one of them fails, those that were started with it fail too.
    total = _noted_failures(kube_job) + (1 if kube_job.starts_together else len(failed))
    return {well_known.WORKER_FAILURES: str(total), well_known.COUNTED_FAILURES: " ".join(sorted(counted | failed))}

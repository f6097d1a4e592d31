"""What changed in the cluster since the last look, as facts for the log.

Rule: facts follow from the difference between two states, not from single lines of a watch: eight workers that start
within a moment are one fact, and what came and went between two looks is none.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from msgspec.structs import replace

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import object_size
from voda.cluster.kubernetes.kinds.operator_pods import failure_of, is_over_limit, most_failures, restart_in_s
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_objects import KubeJob, done_exits, outcome_of, worker_failures
from voda.cluster.kubernetes.state.job_pods import FAILED_FOR_GOOD, Exit, exit_cause, worker_facts
from voda.cluster.port import Notice
from voda.domain.job import Job, Phase
from voda.domain.node import Node
from voda.domain.reasons.requests import ObjectGone
from voda.events.types import (
    JobCancelRequested,
    JobCompleted,
    JobFailed,
    NodeJoined,
    NodeLeft,
    ProgramFailed,
    WorkerExited,
    WorkerStarted,
    changed_node,
)

PoolFact = tuple[str, Notice]
"""Pool, fact."""


class Observations:
    """Compares the inventory with what it was at the last look."""

    def __init__(self, inventory: Inventory, now: Callable[[], float]) -> None:
        self.ends: dict[str, JobCompleted | JobFailed] = {}
        """Live job -> how it ended, as its object says."""
        self.sizes: dict[str, int] = {}
        """Live job -> replicas that its object asks for, of those that go on and are not suspended."""
        self._ends_of_deleted: dict[str, JobCompleted | JobFailed] = {}
        """Job -> how it ended, as its object said before it was deleted; not looked at yet."""
        self._inventory = inventory
        self._now = now
        self._nodes: dict[str, Node] = {}
        self._held_back: set[str] = set()
        """Nodes of which nothing but the room that others leave differs from the last look."""
        self._workers: dict[str, Mapping[int, Pod]] = {}
        """Job id -> the pods that hold its GPUs, by index, at the last look."""
        self._objects: dict[str, str] = {}
        """Live job -> uid of its object, once it was seen. One that was never seen may have been made just now."""

    def begin(self, jobs: Iterable[Job]) -> None:
        """Take what there is of these live jobs as the last look: the pool loop observes it at its beginning."""
        inventory = self._inventory
        found = {name: inventory.stock.node(name) for name in inventory.stock.nodes}
        self._nodes = {name: node for name, node in found.items() if node is not None}
        self._held_back.clear()
        self._workers = {job_id: inventory.holders(job_id) for job_id in inventory.jobs_with_workers()}
        self._objects.clear()
        live = inventory.job
        self._ends_of_deleted = {job_id: end for job_id, end in self._ends_of_deleted.items() if live(job_id)}
        self.ends.clear()
        self.sizes.clear()
        for job in jobs:
            self._note(job)

    def object_gone(self, last: KubeJob) -> None:
        """Keep how an object was when it went; to be called before the inventory forgets it.

        Operators delete what has finished (ttlSecondsAfterFinished), perhaps before the next look.
        """
        job_id = last.object.metadata.annotations.get(well_known.JOB_ID, "")
        job = self._inventory.job(job_id)
        if job is not None and job.uid == last.object.metadata.uid:
            pods = tuple(self._inventory.pods(last).values())
            end = outcome_of(last.judged(pods, job), pods, job_id)
            if end is not None:
                self._ends_of_deleted[job_id] = end

    def node_facts(self, name: str) -> Sequence[PoolFact]:
        """Return what changed about a node; of the room that others' pods leave alone, `room_facts` returns that."""
        before, now = self._nodes.get(name), self._inventory.stock.node(name)
        if before is not None and now is not None and replace(now, room=before.room) == before:
            (self._held_back.discard if now.room == before.room else self._held_back.add)(name)
            return []
        return self._changed_node(name)

    def room_facts(self) -> Sequence[PoolFact]:
        """Return which nodes have other room than before: pods of others may come and go at any rate."""
        names, self._held_back = sorted(self._held_back), set()
        return [fact for name in names for fact in self._changed_node(name)]

    def _changed_node(self, name: str) -> Sequence[PoolFact]:
        before, now = self._nodes.pop(name, None), self._inventory.stock.node(name)
        self._held_back.discard(name)
        if now is not None:
            self._nodes[name] = now
            if now == before:
                return []
            return [(now.pool, NodeJoined(node=now) if before is None else changed_node(before, now))]
        if before is None:
            return []
        is_there = name in self._inventory.stock.nodes
        return [(before.pool, NodeLeft(name=name, pool=before.pool, how="no_pool" if is_there else "deleted"))]

    def job_facts(self, job_id: str, desired: Mapping[int, str]) -> Sequence[PoolFact]:
        """Return what changed about a job; of one that is not live, that its last workers went.

        The last action asked for workers on the `desired` nodes.
        """
        before, now = self._workers.pop(job_id, {}), self._inventory.holders(job_id)
        if now:
            self._workers[job_id] = now
        job = self._inventory.job(job_id)
        if job is None:
            self.ends.pop(job_id, None)
            self.sizes.pop(job_id, None)
            self._objects.pop(job_id, None)
            self._ends_of_deleted.pop(job_id, None)
            return self._exits_after_end(job_id, before, now)
        facts = [*self._ending(job), *self._moving(job_id, before, now, desired)]
        return [(job.spec.pool, fact) for fact in facts]

    def _ending(self, job: Job) -> Iterator[JobCompleted | JobFailed | JobCancelRequested]:
        job_id = job.spec.job_id
        before = self.ends.get(job_id)
        end = self._note(job)
        if end is not None and before is None:
            yield end
        elif end is None and self._was_deleted(job):
            del self._objects[job_id]
            yield JobCancelRequested(job_id=job_id, reason=ObjectGone(object=job.spec.kind))

    def _note(self, job: Job) -> JobCompleted | JobFailed | None:
        """Keep how a job ended, or how many replicas it is to have."""
        job_id = job.spec.job_id
        kube_job = self._inventory.object_of(job_id)
        self.sizes.pop(job_id, None)
        if kube_job is None:
            if (end := self._ends_of_deleted.pop(job_id, None)) is not None:
                self.ends[job_id] = end
            return self.ends.get(job_id)
        if kube_job.object.metadata.deletion_timestamp is None:
            self._objects[job_id] = kube_job.object.metadata.uid
        pods = tuple(self._inventory.pods(kube_job).values())
        if (end := outcome_of(kube_job, pods, job_id)) is not None:
            self.ends[job_id] = end
        elif not kube_job.object.is_suspended and not kube_job.kind.is_broken(kube_job.object, pods):
            self.sizes[job_id] = self._size(kube_job, job_id)
        return end

    def _size(self, kube_job: KubeJob, job_id: str) -> int:
        """Return the size of the plan that the object was made to fit: spare pods are none of it."""
        size, held = kube_job.kind.replicas(kube_job.object), len(self._inventory.gpu_nodes(job_id))
        return held if held and object_size(kube_job.kind, kube_job.object, held) == size else size

    def _moving(
        self, job_id: str, before: Mapping[int, Pod], now: Mapping[int, Pod], desired: Mapping[int, str]
    ) -> Iterator[Notice]:
        gone = {index: pod for index, pod in before.items() if not _is_where(now.get(index), pod)}
        end = self.ends.get(job_id)
        kube_job = self._inventory.object_of(job_id)
        done = done_exits(kube_job)
        together = kube_job if kube_job is not None and kube_job.starts_together else None
        if kube_job is not None and kube_job.object.is_suspended:
            # Those whose place is the same were ended by voda, not by others: they start anew.
            desired = {i: node for i, node in desired.items() if i in before and before[i].spec.node_name != node}
        exits = {
            i: done[i] if i in done else self._exit(pod, desired.get(i), end, together=together)
            for i, pod in gone.items()
        }
        yield from self._given_up(job_id, kube_job, {*before, *now})
        # A successor on the same node is another worker: what ran before it is lost.
        was = {index: pod.spec.node_name for index, pod in before.items()}
        is_now = {index: pod.spec.node_name for index, pod in now.items()}
        restarted = {index for index in gone if is_now.get(index) == was[index]}
        left = {index: node for index, node in is_now.items() if index not in restarted}
        over = {i for i, pod in gone.items() if is_over_limit(self._last(pod))}
        for fact in worker_facts(job_id, was, left, exits):
            is_over = isinstance(fact, WorkerExited) and fact.cause == "failed" and not over.isdisjoint(fact.workers)
            yield replace(fact, is_over_limit=True, retry_at=self._retry_at(job_id, kube_job)) if is_over else fact
        if end is None and (failed := [pod for i, pod in gone.items() if exits[i][0] == "failed"]):
            yield from self._failure(job_id, failed, kube_job)
        if restarted:
            yield WorkerStarted(job_id=job_id, workers={index: is_now[index] for index in sorted(restarted)})

    def _failure(self, job_id: str, before: Sequence[Pod], kube_job: KubeJob | None) -> Iterator[ProgramFailed]:
        """Yield how workers failed by themselves, as they were `before`, unless that is the end of their job."""
        last = [self._last(pod) for pod in before]
        failed = failure_of([pod for pod in last if pod.status.phase == "Failed"] or last)
        fact = ProgramFailed(job_id=job_id, replica=failed.replica, reason=failed.how)
        if kube_job is None or kube_job.kind.replaces_failed_pods:
            # Its controller counts the tries.
            yield fact
        elif (tries := worker_failures(kube_job) + 2) <= (most := most_failures(kube_job.object) + 1):
            yield replace(fact, next_try=tries, most_tries=most)
        elif any(pod.metadata.uid in self._inventory.over_limits for pod in before):
            # Its operator has deleted it: nothing else will say why.
            yield fact

    def _last(self, pod: Pod) -> Pod:
        """Return the last that was seen of a pod: as it is now, or went beyond its limits before it went."""
        now = self._inventory.pods_by_key.get(pod.metadata.key)
        if now is not None and now.metadata.uid == pod.metadata.uid:
            return now
        return self._inventory.over_limits.get(pod.metadata.uid, pod)

    def _retry_at(self, job_id: str, kube_job: KubeJob | None) -> float | None:
        """Return when a job may start anew of which a worker went beyond its limits; None: its operator says it."""
        job = self._inventory.job(job_id)
        if job is None or kube_job is None or kube_job.kind.replaces_failed_pods:
            return None
        return self._now() + restart_in_s(job.evictions_for_limits + 1)

    def _given_up(self, job_id: str, kube_job: KubeJob | None, seen: Set[int]) -> Iterator[WorkerExited]:
        """Yield that replicas failed for good of which the log has only that they failed: their Job says so later."""
        job = self._inventory.job(job_id)
        if kube_job is not None and job is not None and (late := kube_job.failed_indices - {*job.done} - seen):
            yield WorkerExited(job_id=job_id, workers=tuple(sorted(late)), cause=FAILED_FOR_GOOD[0])

    def _exits_after_end(self, job_id: str, before: Mapping[int, Pod], now: Mapping[int, Pod]) -> Sequence[PoolFact]:
        """Return which workers of an ended job hold their GPUs no more: the job is charged for them until then."""
        gone = {index: pod for index, pod in before.items() if not _is_where(now.get(index), pod)}
        past = self._inventory.logged_job(job_id)
        pools = (self._inventory.stock.pool_of(pod.spec.node_name) for pod in gone.values())
        pool = past.spec.pool if past is not None else next(filter(None, pools), None)
        if not gone or pool is None:
            return []
        end = _end(past) if past is not None else None
        was = {index: pod.spec.node_name for index, pod in gone.items()}
        exits = {index: self._exit(pod, None, end) for index, pod in gone.items()}
        return [(pool, fact) for fact in worker_facts(job_id, was, {}, exits)]

    def _exit(
        self, before: Pod, wanted: str | None, end: JobCompleted | JobFailed | None, *, together: KubeJob | None = None
    ) -> Exit:
        inventory = self._inventory
        found = exit_cause(
            before,
            self._last(before),
            node=inventory.stock.nodes.get(before.spec.node_name),
            wanted=wanted,
            ended=end,
        )
        # Its kubelet started it again, for which all were ended.
        code = together.failed_in_place(before) if together is not None and found[0] == "stopped" else None
        return found if code is None else ("failed", code)

    def _was_deleted(self, job: Job) -> bool:
        """Say whether the object that a job had was deleted, by somebody other than voda."""
        job_id = job.spec.job_id
        if not job.uid or job.is_canceling or self._objects.get(job_id) != job.uid:
            return False
        kube_job = self._inventory.object_of(job_id)
        return kube_job is None or kube_job.object.metadata.deletion_timestamp is not None


def _end(past: Job) -> JobCompleted | JobFailed | None:
    """Return how a job of the log ended; None: it was canceled."""
    if past.phase is Phase.COMPLETED:
        return JobCompleted(job_id=past.spec.job_id)
    return JobFailed(job_id=past.spec.job_id) if past.phase is Phase.FAILED else None


def _is_where(now: Pod | None, before: Pod) -> bool:
    return now is not None and now.metadata.uid == before.metadata.uid and now.spec.node_name == before.spec.node_name

"""What the cluster shows, by job and by node: nodes, pods and job objects as the watches tell them.

Rules: no I/O; every change costs O(pods of the job or node concerned); an answer of the API server and the watch's
older word about the same object may come in any order, and the younger one stands.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import JobObject, Metadata, NodeObject, Pod
from voda.cluster.kubernetes.resources.pod_requests import NodeLoad, pod_requests
from voda.cluster.kubernetes.state.nodes import PoolRule, as_node, is_ready, pool_of
from voda.cluster.kubernetes.state.pod_owners import Workers, index, object_key, owner_key, worker_of
from voda.cluster.kubernetes.state.worker_pods import held, is_held
from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.node import Node

_log = logging.getLogger(__name__)

_EMPTY: Final[Mapping[str, Pod]] = {}
_NOWHERE: Final[Mapping[int, str]] = {}


class Seen(NamedTuple):
    """A job object and what it is."""

    kind: JobKind
    object: JobObject


class Inventory:
    """The mirror that decisions about single jobs and nodes are made from.

    Args:
        rule: which nodes form which pools.
        job: returns a live job of the log.
        past: returns a job that has ended for the log; None: it never heard of it, or forgot it.
    """

    def __init__(
        self, rule: PoolRule, job: Callable[[str], Job | None], past: Callable[[str], Job | None] = lambda job_id: None
    ) -> None:
        self.rule = rule
        self.job = job
        self._past = past
        self.nodes: dict[str, NodeObject] = {}
        self.loads: defaultdict[str, NodeLoad] = defaultdict(NodeLoad)
        """node -> what all pods on it take."""
        self.objects: dict[str, Seen] = {}
        """uid -> job object."""
        self.dirty_jobs: set[str] = set()
        self.dirty_nodes: set[str] = set()
        self._pods: dict[str, Pod] = {}
        self._on_node: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        self._workers = Workers(self.known)
        self._of_object: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        """namespace/name of a job object -> its pods, launchers too."""
        self._claims: defaultdict[str, set[str]] = defaultdict(set)
        """job id -> uids of the objects that say they are its."""
        self._named: defaultdict[str, set[str]] = defaultdict(set)
        """namespace/name -> uids of the job objects of that name: one, but for kinds that share it."""
        self._held: dict[str, Mapping[int, str]] = {}
        self._known_nodes: dict[str, Node | None] = {}
        self._foreign: dict[str, frozenset[str]] = {}
        """node -> keys of the pods on it that were counted as others' when it was last looked at."""

    # ---- what is told

    def see_node(self, name: str, now: NodeObject | None) -> None:
        """Take in a node as it is now; None: it is gone."""
        if now is None:
            self.nodes.pop(name, None)
            self._forget_node(name)
        else:
            self.nodes[name] = now
        self._touch(name)
        self.dirty_jobs.update(filter(None, map(self._job_of, self._on_node.get(name, _EMPTY).values())))

    def see_pod(self, key: str, now: Pod | None) -> None:
        """Take in a pod as it is now; None: it is gone."""
        before = self._pods.get(key)
        if before is not None and now is not None and _is_older(now.metadata, before.metadata):
            return
        if before is not None:
            self._drop(key, before)
        if now is not None:
            self._add(key, now)
        for pod in (before, now):
            if pod is not None and (job_id := self._job_of(pod)):
                self.dirty_jobs.add(job_id)
                self._held.pop(job_id, None)

    def see_object(self, uid: str, kind: JobKind, now: JobObject | None) -> None:
        """Take in a job object as it is now; None: it is gone."""
        before = self.objects.get(uid)
        if before is not None and now is not None and _is_older(now.metadata, before.object.metadata):
            return
        if before is not None:
            self._mark(uid, before.object, is_there=False)
            del self.objects[uid]
        if now is not None:
            self.objects[uid] = Seen(kind, now)
            self._mark(uid, now, is_there=True)

    def hear_pod(self, key: str, now: Pod) -> None:
        """Take in a pod as an answer has it: one that went meanwhile stays gone, only the watch tells of new ones."""
        before = self._pods.get(key)
        if before is not None and before.metadata.uid == now.metadata.uid:
            self.see_pod(key, now)

    def hear_object(self, uid: str, kind: JobKind, now: JobObject | None) -> None:
        """Take in a job object as an answer has it: one that went meanwhile stays gone."""
        if uid in self.objects:
            self.see_object(uid, kind, now)

    # ---- what is asked

    def held(self, job_id: str) -> Mapping[int, str]:
        """Return worker index -> node, of the workers that hold GPUs."""
        found = self._held.get(job_id)
        if found is None and (pods := self.workers(job_id)):
            found = self._held[job_id] = held(pods.values(), index)
        return found if found is not None else _NOWHERE

    def working(self) -> Iterable[str]:
        """Return the ids of the jobs that have worker pods."""
        return list(self._workers.job_ids())

    def workers(self, job_id: str) -> Mapping[str, Pod]:
        """Return the worker pods of a job, by key."""
        return self._workers.of(job_id)

    def pod(self, key: str) -> Pod | None:
        """Return the pod of that key."""
        return self._pods.get(key)

    def pods(self, seen: Seen) -> Mapping[str, Pod]:
        """Return all pods of a job object, launchers too, by key."""
        return self._of_object.get(seen.object.metadata.key, _EMPTY)

    def object_of(self, job_id: str) -> Seen | None:
        """Return the object of a job: the one that the log knows, else the one of its name that says it is the job's.

        A copy of it says so too, and is none of the job's, even where it has the name by now.
        """
        job = self.known(job_id)
        if job is not None and job.uid:
            return self.objects.get(job.uid)
        claims = (self.objects[uid] for uid in sorted(self._claims.get(job_id, ())))
        return next((seen for seen in claims if job is None or seen.object.metadata.key == object_key(job)), None)

    def known(self, job_id: str) -> Job | None:
        """Return a job of the log, live or ended; None: it never heard of it, or forgot it."""
        job = self.job(job_id)
        return job if job is not None else self._past(job_id)

    def claimed(self) -> Iterable[str]:
        """Return the ids of the jobs that objects say they are of."""
        return [job_id for job_id, uids in self._claims.items() if uids]

    def pool(self, job_id: str) -> str | None:
        """Return the pool of a job: as the log has it, else that of a node where a worker of it is."""
        if (job := self.known(job_id)) is not None:
            return job.spec.pool
        nodes = (self.nodes.get(name) for name in self.held(job_id).values())
        return next((pool for node in nodes if node is not None and (pool := pool_of(node, self.rule))), None)

    def gpus_per_replica(self, job_id: str) -> Gpus:
        """Return the GPUs of each worker of a job that has worker pods."""
        if (job := self.known(job_id)) is not None:
            return job.spec.gpus_per_replica
        return Gpus(max(1, *(-(-self._takes(pod) // 1000) for pod in self.workers(job_id).values())))

    def node(self, name: str) -> Node | None:
        """Return a node as plans see it; None: it is gone, or no pool's."""
        if name not in self.nodes:
            return None
        if name not in self._known_nodes:
            self._known_nodes[name] = self._node(name)
        return self._known_nodes[name]

    def pool_nodes(self, pool: str) -> Mapping[str, Node]:
        """Return the nodes of a pool, by name."""
        found = ((name, self.node(name)) for name in self.nodes)
        return {name: node for name, node in found if node is not None and node.pool == pool}

    def pools(self) -> frozenset[str]:
        """Return the pools that nodes form."""
        return frozenset(node.pool for name in self.nodes if (node := self.node(name)) is not None)

    def dead_nodes(self, pods: Iterable[Pod]) -> Mapping[str, bool]:
        """Return the nodes of pods that do not answer; True: there is no such node any more."""
        found = {name: self.nodes.get(name) for name in {pod.spec.node_name for pod in pods} if name}
        return {name: node is None for name, node in found.items() if node is None or not is_ready(node)}

    def holders(self, job_id: str) -> Mapping[int, Pod]:
        """Return worker index -> pod, of the workers that hold GPUs."""
        pods = self.workers(job_id).values()
        return {number: pod for pod in pods if is_held(pod) and (number := index(pod)) is not None}

    def _node(self, name: str) -> Node | None:
        found = self.nodes.get(name)
        if found is None or (pool := pool_of(found, self.rule)) is None:
            return None
        foreign = {
            key: pod for key, pod in self._on_node.get(name, _EMPTY).items() if not self._is_worker_in(pod, pool)
        }
        self._foreign[name] = frozenset(foreign)
        taken = sum(map(self._takes, foreign.values()))
        return as_node(found, self.rule, foreign_milli=taken)

    # ---- inside

    def _add(self, key: str, pod: Pod) -> None:
        self._pods[key] = pod
        # Room that kube-scheduler made by preemption is not free, though nobody has it yet: a worker that was sent away
        # for it would take it back.
        if node := pod.takes_from:
            self._on_node[node][key] = pod
            self._load(node, key, pod)
            self._touch_for(node, pod)
        self._workers.add(key, pod)
        if owner := owner_key(pod):
            self._of_object[owner][key] = pod

    def _drop(self, key: str, pod: Pod) -> None:
        del self._pods[key]
        node = pod.takes_from
        if self._on_node.get(node, {}).pop(key, None) is not None:
            self.loads[node].remove(key)
            if key in self._foreign.get(node, ()):
                self._touch(node)
            self._forget_node(node)
        self._workers.drop(key, pod)
        owner = owner_key(pod)
        if owner and self._of_object[owner].pop(key, None) is not None and not self._of_object[owner]:
            del self._of_object[owner]

    def _forget_node(self, name: str) -> None:
        """Keep nothing of a node that is gone: where machines come and go, none has the name of another."""
        if name not in self.nodes and not self._on_node.get(name):
            self._on_node.pop(name, None)
            self._foreign.pop(name, None)
            self.loads.pop(name, None)

    def _load(self, node: str, key: str, pod: Pod) -> None:
        try:
            self.loads[node].add(key, pod)
        except InvalidInput as error:
            # Another scheduler's business: nothing here may stop for it.
            _log.warning("not counted node=%s reason=%s", node, error)

    def _touch_for(self, node: str, pod: Pod) -> None:
        """Note that others may hold more of a node; workers of its own pool are no others."""
        found = self.nodes.get(node)
        pool = pool_of(found, self.rule) if found is not None else None
        if pool is None or not self._is_worker_in(pod, pool):
            self._touch(node)

    def _touch(self, name: str) -> None:
        self.dirty_nodes.add(name)
        self._known_nodes.pop(name, None)

    def _mark(self, uid: str, job_object: JobObject, *, is_there: bool) -> None:
        _put(self._named, job_object.metadata.key, uid, is_there=is_there)
        if job_id := job_object.metadata.annotations.get(well_known.JOB_ID, ""):
            _put(self._claims, job_id, uid, is_there=is_there)
            self.dirty_jobs.add(job_id)
            self._held.pop(job_id, None)

    def _job_of(self, pod: Pod) -> str:
        """Return the id of the job that a pod is a worker or the launcher of; empty for others."""
        if job_id := worker_of(pod):
            return job_id
        seen = self._owner(pod)
        return seen.object.metadata.annotations.get(well_known.JOB_ID, "") if seen is not None else ""

    def _owner(self, pod: Pod) -> Seen | None:
        for reference in pod.metadata.owner_references:
            if (seen := self.objects.get(reference.uid)) is not None:
                return seen
        # A launcher's owner may be a Job that the object owns; the label names the object all the same.
        uids = self._named.get(owner_key(pod), ())
        return self.objects[min(uids)] if uids else None

    def _is_worker_in(self, pod: Pod, pool: str) -> bool:
        if not (job_id := self._workers.has(pod)):
            return False
        job = self.known(job_id)
        return job is None or job.spec.pool == pool

    def _takes(self, pod: Pod) -> int:
        """Return the thousandths of the pool's resource that a pod takes."""
        try:
            return pod_requests(pod).get(self.rule.resource, 0)
        except InvalidInput:
            return 0


def _put(index: defaultdict[str, set[str]], key: str, uid: str, *, is_there: bool) -> None:
    if is_there:
        index[key].add(uid)
        return
    index[key].discard(uid)
    if not index[key]:
        del index[key]


def _is_older(meta: Metadata, than: Metadata) -> bool:
    """Say whether a version of an object came before another one; those of different objects are not compared."""
    if meta.uid != than.uid:
        return False
    is_counted = meta.resource_version.isdecimal() and than.resource_version.isdecimal()
    return is_counted and int(meta.resource_version) < int(than.resource_version)

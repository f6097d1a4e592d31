"""What the cluster shows, by job and by node: watches put nodes, pods and job objects in; all decisions read it.

Rules: no I/O; every change costs O(pods of the job or node concerned); an answer of the API server and an older line
of the watch about the same object may come in any order, and the younger one stands; only a watch or a list says that
something is new or gone, an answer never does: it may be about an object whose name another one has by now. A node that
is gone leaves nothing behind, because where machines come and go none has the name of another.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from msgspec.structs import replace

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.operator_pods import is_launcher, is_over_limit
from voda.cluster.kubernetes.objects import JobObject, NodeObject, Pod
from voda.cluster.kubernetes.state.devices import DeviceStock, devices_for_plans
from voda.cluster.kubernetes.state.job_objects import KubeJob, ObjectIndex, is_older
from voda.cluster.kubernetes.state.job_pods import PodOwners, gpu_nodes, holders, object_key, owner_key, worker_of
from voda.cluster.kubernetes.state.nodes import NONE_TAKEN, PoolRule, as_node, is_ready, offered_milli, pool_of
from voda.cluster.kubernetes.state.sharing_pods import GatedPods, GpuPods
from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.node import PODS, Node
from voda.kinds.quantities import pod_requests

_log = logging.getLogger(__name__)
_NO_PODS: Final[Mapping[str, Pod]] = {}
_NOWHERE: Final[Mapping[int, str]] = {}

_MOST_OVER: Final = 1_000
"""Pods that went beyond their limits: more do not go between two looks."""


class Inventory:
    """The mirror that decisions about single jobs and nodes are made from.

    `job` returns a live job of the log, `past` one that has ended; None: the log never had it, or forgot it. `adopted`
    returns the id of the job that was made of an object (uid), whether or not the object carries it yet.
    """

    def __init__(
        self,
        rule: PoolRule,
        job: Callable[[str], Job | None],
        past: Callable[[str], Job | None] = lambda job_id: None,
        *,
        adopted: Callable[[str], str | None] = lambda uid: None,
    ) -> None:
        self.job = job
        self.stock = NodeStock(rule, self._pool_of_worker, partial(_job_of_launcher, self))
        self.sharing = GpuPods(rule.share_resources)
        self.claiming = GatedPods()
        self.dirty_jobs: set[str] = set()
        """Jobs about which something changed."""
        self._past = past
        self._adopted = adopted
        self._index = ObjectIndex()
        self.objects: Mapping[str, KubeJob] = self._index.by_uid
        """uid -> job object."""
        self._pods: dict[str, Pod] = {}
        self.pods_by_key: Mapping[str, Pod] = self._pods
        self.over_limits: dict[str, Pod] = {}
        """uid -> the last of a pod that has gone, of those that went beyond their own limits; the newest few."""
        self._owners = PodOwners(self.logged_job)
        self._gpu_nodes: dict[str, Mapping[int, str]] = {}

    # ---- changes

    def put_node(self, name: str, now: NodeObject | None) -> None:
        self.stock.put(name, now)
        self.dirty_jobs.update(filter(None, map(self._job_of, self.stock.pods_on(name).values())))

    def put_pod(self, key: str, now: Pod | None) -> None:
        before = self._pods.get(key)
        if before is not None and now is not None and is_older(now.metadata, before.metadata):
            return
        if before is not None:
            if (now is None or now.metadata.uid != before.metadata.uid) and is_over_limit(before):
                self.over_limits = {**dict([*self.over_limits.items()][-_MOST_OVER:]), before.metadata.uid: before}
            del self._pods[key]
            self.stock.drop_pod(key, before)
            self._owners.drop(key, before)
        if now is not None:
            self._pods[key] = now
            self.stock.add_pod(key, now)
            self._owners.add(key, now)
        self.sharing.put(before, now)
        self.claiming.put(before, now)
        self._touch(job_id for pod in (before, now) if pod is not None and (job_id := self._job_of(pod)))

    def put_object(self, uid: str, kind: JobKind, now: JobObject | None) -> None:
        before = self.objects.get(uid)
        jobs = self._index.put(uid, kind, now)
        if not jobs and (job_id := self._adopted(uid)) is not None:
            # Its start will write the id on it.
            jobs = {job_id}
        self._touch(jobs)
        for key in {each.metadata.key for each in (now, before and before.object) if each is not None}:
            for pod in self._owners.pods(key).values():
                if is_launcher(pod) and pod.takes_from:
                    # Whose launcher a pod is, its object says.
                    self.stock.touch(pod.takes_from)

    def update_pod(self, now: Pod) -> None:
        """Store a pod as the answer to a write has it, where the inventory still has this very pod."""
        before = self._pods.get(now.metadata.key)
        if before is not None and before.metadata.uid == now.metadata.uid:
            self.put_pod(now.metadata.key, now)

    def update_object(self, kind: JobKind, now: JobObject) -> None:
        """Store a job object as the answer to a write has it, where the inventory still has this very object."""
        if now.metadata.uid in self.objects:
            self.put_object(now.metadata.uid, kind, now)

    def take_dirty(self) -> tuple[set[str], set[str]]:
        """Return the nodes and the jobs about which something changed, and clear both."""
        nodes, self.stock.dirty = self.stock.dirty, set()
        jobs, self.dirty_jobs = self.dirty_jobs, set()
        return nodes, jobs

    # ---- queries

    def gpu_nodes(self, job_id: str) -> Mapping[int, str]:
        """Return worker index -> node, of the workers that hold GPUs."""
        found = self._gpu_nodes.get(job_id)
        if found is None and (pods := self.workers(job_id)):
            found = self._gpu_nodes[job_id] = gpu_nodes(pods.values())
        return found if found is not None else _NOWHERE

    def holders(self, job_id: str) -> Mapping[int, Pod]:
        """Return worker index -> pod, of the workers that hold GPUs."""
        return holders(self.workers(job_id).values())

    def jobs_with_workers(self) -> Iterable[str]:
        return list(self._owners.job_ids())

    def jobs_with_objects(self) -> Iterable[str]:
        return self._index.job_ids()

    def workers(self, job_id: str) -> Mapping[str, Pod]:
        return self._owners.workers(job_id)

    def pods(self, job: KubeJob) -> Mapping[str, Pod]:
        """Return all pods of a job object, launchers too, by key."""
        return self._owners.pods(job.object.metadata.key)

    def object_of(self, job_id: str) -> KubeJob | None:
        """Return the object of a job: the one that the log knows, else the one of its name that carries its id.

        A copy of it carries the id too, and is none of the job's, even where it has the name by now.
        """
        job = self.logged_job(job_id)
        if job is not None and job.uid:
            found = self.objects.get(job.uid)
        else:
            of_name = (each for each in self._index.carrying(job_id) if _is_named(each, job))
            found = next(of_name, None)
        live = self.job(job_id)
        return found.judged(self.pods(found).values(), live) if found is not None and live is not None else found

    def logged_job(self, job_id: str) -> Job | None:
        """Return a job of the log, live or ended; None: the log never had it, or forgot it."""
        job = self.job(job_id)
        return job if job is not None else self._past(job_id)

    def pool(self, job_id: str) -> str | None:
        """Return the pool of a job: as the log has it, else that of a node where a worker of it is."""
        if (job := self.logged_job(job_id)) is not None:
            return job.spec.pool
        return next(filter(None, map(self.stock.pool_of, self.gpu_nodes(job_id).values())), None)

    def gpus_per_replica(self, job_id: str) -> Gpus:
        if (job := self.logged_job(job_id)) is not None:
            return job.spec.gpus_per_replica
        # The workers of a job that the log lacks may have gone since somebody saw them.
        return Gpus(max([1, *(-(-self.stock.needed_milli(pod) // 1000) for pod in self.workers(job_id).values())]))

    def _touch(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self.dirty_jobs.add(job_id)
            self._gpu_nodes.pop(job_id, None)

    def _job_of(self, pod: Pod) -> str:
        """Return the id of the job that a pod is a worker or the launcher of; empty for others."""
        if job_id := worker_of(pod):
            return job_id
        owner = self._index.owner(pod)
        return owner.object.metadata.annotations.get(well_known.JOB_ID, "") if owner is not None else ""

    def _pool_of_worker(self, pod: Pod) -> str | None:
        """Return the pool of the job that a pod is a worker of; empty: the log does not know it, None: it is none."""
        if not (job_id := self._owners.job_of(pod)):
            return None
        job = self.logged_job(job_id)
        return "" if job is None else job.spec.pool


def _job_of_launcher(inventory: Inventory, pod: Pod) -> str:
    """Return the id of the job that a pod is the launcher of; empty: it is none."""
    if not is_launcher(pod) or not (job_id := inventory._job_of(pod)):
        return ""
    job = inventory.logged_job(job_id)
    return job_id if job is not None and object_key(job) == owner_key(pod) else ""


def _is_named(found: KubeJob, job: Job | None) -> bool:
    return job is None or found.object.metadata.key == object_key(job)


class NodeStock:
    """Nodes by name, and what their pods take; all but the workers of a pool's jobs use a node up for plans."""

    def __init__(
        self,
        rule: PoolRule,
        pool_of_worker: Callable[[Pod], str | None],
        job_of_launcher: Callable[[Pod], str] = lambda pod: "",
    ) -> None:
        self.rule = rule
        self.nodes: dict[str, NodeObject] = {}
        self.dirty: set[str] = set()
        """Nodes of which plans may see something else than before."""
        self.devices = DeviceStock(rule, self._touch_node, self._touch_all)
        self._pool_of_worker = pool_of_worker
        self._job_of_launcher = job_of_launcher
        self._labels: defaultdict[str, set[str]] = defaultdict(set)
        """pool -> the values of the pool label that its nodes have had; kept, so that a warning comes once."""
        self._pods: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        self._cached: dict[str, Node | None] = {}
        self._pools: frozenset[str] | None = None
        """Of all nodes; None: a node has changed since."""
        self._foreign: dict[str, frozenset[str]] = {}
        """node -> keys of the pods that `_cached` counts as others'."""

    def put(self, name: str, now: NodeObject | None) -> None:
        if now is None:
            self.nodes.pop(name, None)
            self._forget(name)
        else:
            self.nodes[name] = now
            self._warn_of_merged_labels(now)
        self._touch_node(name)

    def pods_on(self, name: str) -> Mapping[str, Pod]:
        """Return the pods on a node, or for which kube-scheduler makes room there, by key."""
        return self._pods.get(name, _NO_PODS)

    def add_pod(self, key: str, pod: Pod) -> None:
        # Room that kube-scheduler made by preemption is not free, though no pod has it yet: a worker that was sent away
        # for it would take it back.
        if not (name := pod.takes_from):
            return
        self._pods[name][key] = pod
        _touch_if_it_decides(self, name, pod)
        if self._pool_of_worker(pod) not in (self.pool_of(name), ""):
            self.touch(name)

    def drop_pod(self, key: str, pod: Pod) -> None:
        """Count a pod no more, as it was added."""
        name = pod.takes_from
        if self._pods.get(name, {}).pop(key, None) is not None:
            _touch_if_it_decides(self, name, pod)
            # Whoever waits for what a worker had is to look again.
            (self.touch if key in self._foreign.get(name, ()) else self.dirty.add)(name)
            self._forget(name)

    def pool_of(self, name: str) -> str | None:
        """Return the pool of a node; None: it is gone, or no pool's."""
        if (found := self.nodes.get(name)) is None:
            return None
        return pool_of(found, self.rule, self.devices.of(name), of_workers=_pool_of_workers(self, name))

    def node(self, name: str) -> Node | None:
        """Return a node as plans see it; None: it is gone, or no pool's."""
        if name not in self.nodes:
            return None
        if name not in self._cached:
            self._cached[name] = self._node(self.nodes[name])
        return self._cached[name]

    def pool_nodes(self, pool: str) -> Mapping[str, Node]:
        found = ((name, self.node(name)) for name in self.nodes)
        return {name: node for name, node in found if node is not None and node.pool == pool}

    def free_milli(self, name: str) -> int:
        """Return the thousandths of a node's GPUs that no pod has, or has room made for, and no claim."""
        resource = self.rule.resource
        taken = sum(taken_milli(pod, resource) for pod in self.pods_on(name).values())
        claimed = 1000 * self.devices.taken(name)
        return offered_milli(self.nodes[name], self.rule, self.devices.of(name)) - taken - claimed

    def needed_milli(self, pod: Pod) -> int:
        """Return the thousandths of GPUs that a pod takes, or will take once it has a node."""
        return taken_milli(pod, self.rule.resource) + 1000 * self.devices.requested(pod)

    def awaited_milli(self, pod: Pod, name: str) -> int:
        """Return what a pod will take of a node beyond what its claims have there: they get it before the pod does."""
        return max(0, self.needed_milli(pod) - 1000 * self.devices.taken_by(pod.metadata.uid, name))

    def pools(self) -> frozenset[str]:
        if self._pools is None:
            found = map(self.pool_of, self.nodes)
            self._pools = frozenset(pool for pool in found if pool is not None)
        return self._pools

    def unready(self, pods: Iterable[Pod]) -> Mapping[str, bool]:
        """Return the nodes of pods that do not answer; True: there is no such node any more."""
        found = {name: self.nodes.get(name) for name in {pod.spec.node_name for pod in pods} if name}
        return {name: node is None for name, node in found.items() if node is None or not is_ready(node)}

    def _node(self, found: NodeObject) -> Node | None:
        name = found.metadata.name
        if (pool := self.pool_of(name)) is None:
            return None
        foreign = {key: pod for key, pod in self.pods_on(name).items() if self._pool_of_worker(pod) not in (pool, "")}
        self._foreign[name] = frozenset(foreign)
        taken = Counter({PODS: 1000 * len(foreign)})
        for pod in foreign.values():
            taken.update(taken_of_node(pod, self.rule.resource))
        own = {key for key in self.devices.holders(name) if not self._is_foreign(key, foreign)}
        taken[self.rule.resource] += 1000 * self.devices.taken_by_others(name, own)
        devices = devices_for_plans(self.devices, name, own)
        node = as_node(found, self.rule, taken=taken, devices=devices, of_workers=pool)
        with_gpus = (pod for pod in foreign.values() if taken_milli(pod, self.rule.resource))
        launchers = tuple(sorted(filter(None, map(self._job_of_launcher, with_gpus))))
        return replace(node, launchers=launchers) if node is not None and launchers else node

    def _is_foreign(self, claim: str, foreign: Collection[str]) -> bool:
        """Say whether a claim on a node is others'; one whose pod is not there is about to come, or to go."""
        pod = self.devices.claims[claim].pod
        return not pod or pod in foreign

    def _forget(self, name: str) -> None:
        if name not in self.nodes and not self._pods.get(name):
            self._pods.pop(name, None)
            self._foreign.pop(name, None)

    def _warn_of_merged_labels(self, node: NodeObject) -> None:
        """Say once that nodes with another value of the pool label are in the same pool: `1.5` and `1-5`."""
        value, pool = node.metadata.labels.get(self.rule.label), pool_of(node, self.rule)
        if not value or pool is None or value in (labels := self._labels[pool]):
            return
        labels.add(value)
        if len(labels) > 1:
            names = ", ".join(sorted(labels))
            _log.warning("pool=%s is one pool of nodes with %s: %s; dots become dashes", pool, self.rule.label, names)

    def _touch_node(self, name: str) -> None:
        self.touch(name)
        self._pools = None

    def _touch_all(self) -> None:
        for name in self.nodes:
            self.touch(name)

    def touch(self, name: str) -> None:
        """Look at a node anew."""
        self.dirty.add(name)
        self._cached.pop(name, None)


def _pool_of_workers(stock: NodeStock, name: str) -> str:
    """Return the pool of the jobs that have workers on a node without a label; empty: there are none."""
    if stock.rule.label in stock.nodes[name].metadata.labels:
        return ""
    bound = (pod for pod in stock.pods_on(name).values() if pod.spec.node_name)
    return next(filter(None, map(stock._pool_of_worker, bound)), "")


def _touch_if_it_decides(stock: NodeStock, name: str, pod: Pod) -> None:
    """Look at a node anew whose pool may be that of its workers, once one of them comes or goes."""
    found = stock.nodes.get(name)
    if found is not None and stock.rule.label not in found.metadata.labels and stock._pool_of_worker(pod):
        stock._touch_node(name)


def taken_milli(pod: Pod, resource: str) -> int:
    """Return the thousandths of GPUs, which `resource` counts, that a pod takes; see `taken_of_node`."""
    return taken_of_node(pod, resource).get(resource, 0)


def taken_of_node(pod: Pod, gpu_resource: str) -> Mapping[str, int]:
    """Return what a pod takes of its node, resource -> thousandths, without GPUs that a claim has.

    Nothing where it cannot be read.
    """
    try:
        taken = pod_requests(pod.spec, f"pod {pod.metadata.key}")
    except InvalidInput:
        return NONE_TAKEN
    if pod.status.extended_resource_claim_status is not None:
        taken.pop(gpu_resource, None)
    return taken

"""What must hold of a cluster and of its log once nothing moves any more.

Rule: pure; each is given the state that the log leads to and lists of the objects that are there, asks nothing else,
and returns one sentence for each thing that is wrong. No code of voda's that reads objects is used, so that a mistake
there shows here.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.kube.client import Object, controller_of
from tests.kube.objects import GPU, MANAGED, POOL
from tests.monkey.claims import claimed_gpus, offered
from voda.domain.job import Job, Phase
from voda.domain.state import ClusterState

GATE = "voda.dev/placement"
_INDEX = "batch.kubernetes.io/job-completion-index"
_WORKER = re.compile(r"-worker-(\d+)$")


@dataclass(frozen=True)
class Scene:
    """What a fresh list has."""

    nodes: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    objects: Sequence[Object] = field(default=())
    """Of jobs, of all kinds."""
    slices: Sequence[Object] = ()
    """Of devices that nodes offer."""
    claims: Sequence[Object] = ()
    rules: Sequence[Object] = ()
    """That take devices out."""

    @property
    def gpus(self) -> Mapping[str, int]:
        """Node -> GPUs that it offers, counted or as devices."""
        devices = offered(self.slices, self.claims, self.rules)
        counted = {_name(node): int(node["status"]["allocatable"].get(GPU, 0)) for node in self.nodes}
        return {name: gpus + devices[name] for name, gpus in counted.items()}


def violations(state: ClusterState, scene: Scene) -> list[str]:
    """Return all that is wrong."""
    return [
        *violations_despite_quota(state, scene),
        *unlike_plan(state, scene),
        *gated(state, scene),
        *idle(state, scene),
    ]


def violations_despite_quota(state: ClusterState, scene: Scene) -> list[str]:
    """Return what is wrong whatever keeps pods of jobs from being made, or from being bound."""
    return [
        *unlike_nodes(state, scene),
        *beyond_plan(state),
        *unlike_objects(state, scene),
        *unlike_cluster(state, scene),
        *overfull(scene),
        *left_behind(state, scene),
    ]


def unlike_nodes(state: ClusterState, scene: Scene) -> Iterator[str]:
    """Say which nodes the log has otherwise than the cluster."""
    pool = [_name(node) for node in scene.nodes if node["metadata"]["labels"].get(POOL) == state.pool]
    # Without any it is a node of no pool.
    there = {name: gpus for name in pool if (gpus := scene.gpus[name])}
    believed = {name: int(node.gpus) for name, node in state.nodes.items() if node.gpus}
    for name in sorted(there.keys() | believed.keys()):
        if there.get(name) != believed.get(name):
            yield f"node {name} has {there.get(name)} GPUs, and {believed.get(name)} by the log"


def unlike_plan(state: ClusterState, scene: Scene) -> Iterator[str]:
    """Say which live jobs have other workers, by the log, than the plan gives them, but for those that are done; and
    which have planned workers that are all done, for these have ended.
    """
    done = _done_indices(scene)
    for job_id, job in sorted(state.jobs.items()):
        nodes = state.plan.placement.get(job_id, ())
        planned = {index: node for index, node in enumerate(nodes) if index not in done.get(job.uid, ())}
        if nodes and not planned:
            yield f"{job_id} lives by the log, all of its {len(nodes)} planned workers are done"
        if planned != dict(job.workers):
            yield f"{job_id} is planned on {planned}, the log has it on {dict(job.workers)}"


def beyond_plan(state: ClusterState) -> Iterator[str]:
    """Say which live jobs have workers, by the log, where the plan has none of theirs."""
    for job_id, job in sorted(state.jobs.items()):
        planned = dict(enumerate(state.plan.placement.get(job_id, ())))
        if not job.workers.items() <= planned.items():
            yield f"the log has {job_id} on {dict(job.workers)}, beyond its plan {planned}"


def unlike_objects(state: ClusterState, scene: Scene) -> Iterator[str]:
    """Say of which jobs the pods ask for other GPUs than the log has."""
    live = {job.uid: job for job in state.jobs.values()}
    for each in scene.objects:
        job = live.get(str(each["metadata"]["uid"]))
        if each["kind"] == "Job" and job is not None:
            pod = each["spec"]["template"]
            gpus = _limits(pod) + claimed_gpus(pod)
            if gpus != job.spec.gpus_per_replica:
                yield f"pods of {_name(each)} ask for {gpus} GPUs, by the log for {job.spec.gpus_per_replica}"


def unlike_cluster(state: ClusterState, scene: Scene) -> Iterator[str]:
    """Say which live jobs have workers elsewhere, by their pods, than the log believes, and which do not run."""
    workers = _workers(scene)
    uids = {str(each["metadata"]["uid"]) for each in scene.objects}
    for job_id, job in sorted(state.jobs.items()):
        if job.uid not in uids:
            yield f"{job_id} lives by the log, its object {job.uid} is not there"
        bound = {index: pod for index, pod in workers.get(job.uid, ()) if _node(pod) and not _is_over(pod)}
        held = {index: _node(pod) for index, pod in sorted(bound.items())}
        if held != dict(job.workers):
            yield f"the log has {job_id} on {dict(job.workers)}, its pods are on {held}"
        ready = {_name(node) for node in scene.nodes if _is_ready(node)}
        for pod in bound.values():
            if pod["status"].get("phase") != "Running" and _node(pod) in ready:
                yield f"{job_id}: {_name(pod)} on {_node(pod)} is {pod['status'].get('phase')}"


def overfull(scene: Scene) -> Iterator[str]:
    """Say which nodes have pods that request more GPUs than they have."""
    held = _held(scene.pods)
    workers = _held([pod for pod in scene.pods if _index(pod) is not None])
    for name, gpus in scene.gpus.items():
        # Where none are said, pods of others stay.
        if (held if gpus else workers)[name] > gpus:
            yield f"{name} has {gpus} GPUs, its pods hold {held[name]}"


def gated(state: ClusterState, scene: Scene) -> Iterator[str]:
    """Say which pods wait for a gate that the plan wants lifted."""
    workers = _workers(scene)
    for job_id, nodes in sorted(state.plan.placement.items()):
        job = state.jobs.get(job_id)
        for index, pod in workers.get(job.uid, ()) if job is not None else ():
            if index < len(nodes) and _is_gated(pod):
                yield f"{_name(pod)} of {job_id} is gated, and planned on {nodes[index]}"


def idle(state: ClusterState, scene: Scene) -> Iterator[str]:
    """Say which waiting jobs have no workers though GPUs for as many as they need at least are free, and which could
    grow.
    """
    held, gpus = _held(scene.pods), scene.gpus
    free = {name: gpus[name] - held[name] for name in map(_name, filter(_is_open, scene.nodes))}
    for job_id, job in sorted(state.jobs.items()):
        size, planned = int(job.spec.gpus_per_replica), len(state.plan.placement.get(job_id, ()))
        room = sum(max(0, left) // size for name, left in free.items() if name not in job.refusals)
        if not job.workers and _may_run(job) and room >= job.spec.min_replicas:
            yield f"{job_id} waits for {job.spec.min_replicas} x {size} GPUs, free are {free}"
        # One of which replicas are done keeps its size: see voda/planner/done_replicas.py.
        may_grow = _may_run(job) and job.backoff is None and not job.done
        if job.workers and may_grow and room and planned < job.spec.max_replicas:
            yield f"{job_id} has {planned} of up to {job.spec.max_replicas} x {size} GPUs, free are {free}"


def left_behind(state: ClusterState, scene: Scene) -> Iterator[str]:
    """Say which pods of jobs that do not live, by the log, hold GPUs or wait for them."""
    live, closed = {job.uid for job in state.jobs.values()}, {_name(n) for n in scene.nodes if not _is_ready(n)}
    for uid, pods in sorted(_workers(scene).items()):
        for _, pod in pods if uid not in live else ():
            # What a dead node holds of a deleted job, nobody can free before it is back or gone.
            is_stuck = "deletionTimestamp" in pod["metadata"] and _node(pod) in closed
            if not _is_over(pod) and not is_stuck:
                yield f"{_name(pod)} holds {_node(pod) or 'a place in the queue'}, its job has ended"


def unknown(known: Collection[str], scene: Scene) -> Iterator[str]:
    """Say which objects are of jobs that the log, by the uids that it knows, never heard of."""
    for each in scene.objects:
        if each["metadata"].get("labels", {}).get(MANAGED) == "true" and each["metadata"]["uid"] not in known:
            yield f"{each['kind']} {_name(each)} is no job of the log"


def wrong_ends(ended: Mapping[str, Phase], allowed: Mapping[str, Collection[Phase]]) -> Iterator[str]:
    """Say which jobs ended in a way that nobody brought about; `ended` and `allowed` are by the object's name."""
    for name, phase in sorted(ended.items()):
        if phase not in allowed.get(name, ()):
            yield f"{name} ended as {phase}, and nobody did that to it"


def _done_indices(scene: Scene) -> Mapping[str, Collection[int]]:
    """Return uid of a job's object -> the replicas that have succeeded; a JobSet's are those of its Job."""
    owners = _owners(scene)
    found: defaultdict[str, set[int]] = defaultdict(set)
    for each in scene.objects:
        uid = str(each["metadata"]["uid"])
        found[owners.get(uid, uid)] |= set(_done(each))
    return found


def _owners(scene: Scene) -> Mapping[str, str]:
    """Return uid of a Job -> uid of the JobSet that it belongs to."""
    owned = ((str(each["metadata"]["uid"]), controller_of(each)) for each in scene.objects)
    return {uid: str(owner["uid"]) for uid, owner in owned if owner.get("kind") == "JobSet"}


def _done(each: Object) -> Collection[int]:
    """Return the indices of a Job that have succeeded, which it never runs again: `1,3-5`."""
    done = set[int]()
    for part in filter(None, str(each.get("status", {}).get("completedIndexes", "")).split(",")):
        first, _, last = part.partition("-")
        done |= set(range(int(first), int(last or first) + 1))
    return done


def _may_run(job: Job) -> bool:
    return not (job.is_halted or job.is_canceling or job.waits_for)


def _workers(scene: Scene) -> Mapping[str, Sequence[tuple[int, Object]]]:
    """Return uid of a job's object -> its workers, with their indices."""
    owners = _owners(scene)
    found: defaultdict[str, list[tuple[int, Object]]] = defaultdict(list)
    for pod in scene.pods:
        if (index := _index(pod)) is not None:
            uid = controller_of(pod).get("uid", "")
            found[owners.get(uid, uid)].append((index, pod))
    return found


def _index(pod: Object) -> int | None:
    """Return the index of a pod that is a worker of a job of voda's, None of any other."""
    if "voda.dev/job-id" not in pod["metadata"].get("annotations", {}):
        return None
    if (named := _WORKER.search(_name(pod))) is not None:
        return int(named[1])
    index = pod["metadata"]["annotations"].get(_INDEX)
    return int(index) if index is not None and controller_of(pod).get("kind") == "Job" else None


def _held(pods: Sequence[Object]) -> Counter[str]:
    """Return node -> GPUs that pods hold there, by their limits and their claims."""
    held = Counter[str]()
    for pod in pods:
        if _node(pod) and not _is_over(pod):
            held[_node(pod)] += _limits(pod) + claimed_gpus(pod)
    return held


def _limits(pod: Object) -> int:
    limits = [each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"]]
    return sum(int(each.get(GPU, 0)) for each in limits)


def _name(thing: Object) -> str:
    return str(thing["metadata"]["name"])


def _node(pod: Object) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _is_over(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _is_gated(pod: Object) -> bool:
    return GATE in [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]


def _is_ready(node: Object) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])


def _is_open(node: Object) -> bool:
    return _is_ready(node) and not node["spec"].get("unschedulable") and not node["spec"].get("taints")

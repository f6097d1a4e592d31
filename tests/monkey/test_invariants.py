"""Every invariant holds of a cluster that is as it has to be, and is broken by what it is about."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.builders import a_job, a_state
from tests.builders import a_node as a_known_node
from tests.kube.client import Object
from tests.kube.devices import DRIVER, a_slice, a_taint_rule, partitioned_slices
from tests.kube.objects import GPU, a_node, a_pod, an_indexed_job, an_mpijob
from tests.monkey import invariants
from tests.monkey.claims import claim, offered
from tests.monkey.invariants import Scene
from voda.domain.job import Job, Phase
from voda.domain.reasons.requests import Requested
from voda.domain.state import ClusterState

POOL = "default"


def a_worker(index: int = 0, node: str = "n1", *, phase: str = "Running", owner: str = "uid-a", **spec: Any) -> Object:
    """Return a worker of an MPIJob as its operator makes it."""
    reference = {"kind": "MPIJob", "uid": owner, "controller": True}
    pod = a_pod(f"a-worker-{index}", "ns", gpus=1, node=node, annotations={"voda.dev/job-id": "a"}, spec=spec)
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [reference]}, "status": {"phase": phase}}


def an_index(index: int) -> Object:
    """Return a pod of an Indexed Job."""
    pod, notes = a_worker(index), {"batch.kubernetes.io/job-completion-index": str(index)}
    pod["metadata"] |= {"name": f"a-{index}-x7k2p", "annotations": {**pod["metadata"]["annotations"], **notes}}
    pod["metadata"]["ownerReferences"][0]["kind"] = "Job"
    return pod


def an_object(uid: str = "uid-a") -> Object:
    job = an_mpijob("a", "ns")
    return {**job, "metadata": {**job["metadata"], "uid": uid}}


def a_scene(*pods: Object, nodes: int = 1, **changes: Any) -> Scene:
    return Scene(
        nodes=[a_node(f"n{1 + n}", 4, POOL, **changes) for n in range(nodes)], pods=pods, objects=[an_object()]
    )


def a_log(*, nodes: int = 1, planned: int | None = None, job: Job | None = None, **fields: Any) -> ClusterState:
    """Return a state with job `a`, on n1 and planned there unless told otherwise."""
    workers = fields.pop("workers", {0: "n1"})
    most = max(len(workers), fields.get("min_replicas", 1))
    live = job or a_job("a", **{"uid": "uid-a", "max_replicas": most, "workers": workers, **fields})
    size = len(live.workers) if planned is None else planned
    known = [a_known_node(f"n{1 + n}") for n in range(nodes)]
    return a_state(jobs=[live], nodes=known, placement={"a": ("n1",) * size} if size else {})


def test_of_a_cluster_as_it_has_to_be_nothing_is_said() -> None:
    assert invariants.violations(a_log(), a_scene(a_worker())) == []
    assert invariants.violations(a_log(workers={0: "n1", 1: "n1"}), a_scene(an_index(0), an_index(1))) == []
    assert list(invariants.unknown({"uid-a"}, a_scene())) == []
    assert list(invariants.wrong_ends({"a": Phase.COMPLETED}, {"a": {Phase.COMPLETED}})) == []


@pytest.mark.parametrize(
    ("state", "scene", "said"),
    [
        (a_log(nodes=2), a_scene(a_worker()), "node n2 has None GPUs, and 4 by the log"),
        (a_log(), a_scene(a_worker(), nodes=2), "node n2 has 4 GPUs, and None by the log"),
        (a_log(planned=2), a_scene(a_worker()), "a is planned on {0: 'n1', 1: 'n1'}, the log has it on {0: 'n1'}"),
        (a_log(), a_scene(), "the log has a on {0: 'n1'}, its pods are on {}"),
        (a_log(), a_scene(a_worker(), a_worker(1)), "its pods are on {0: 'n1', 1: 'n1'}"),
        (a_log(), a_scene(a_worker(phase="Failed")), "the log has a on {0: 'n1'}, its pods are on {}"),
        (a_log(), a_scene(a_worker(owner="uid-of-before")), "the log has a on {0: 'n1'}, its pods are on {}"),
        (a_log(uid="uid-b"), a_scene(), "a lives by the log, its object uid-b is not there"),
        (a_log(), a_scene(a_worker(phase="Pending")), "a: a-worker-0 on n1 is Pending"),
        (a_log(), a_scene(a_worker(owner="uid-b")), "a-worker-0 holds n1, its job has ended"),
        (a_log(), a_scene(a_worker(node="", owner="uid-b")), "holds a place in the queue, its job has ended"),
        (
            a_log(workers={}, planned=1),
            a_scene(a_worker(node="", phase="Pending", schedulingGates=[{"name": invariants.GATE}])),
            "a-worker-0 of a is gated, and planned on n1",
        ),
        (a_log(), a_scene(a_worker(), a_pod("p", "ns", gpus=4, node="n1") | {"status": {}}), "its pods hold 5"),
        (a_log(workers={}), a_scene(), "a waits for 1 x 1 GPUs, free are {'n1': 4}"),
        (a_log(workers={}, gpus_per_replica=2, min_replicas=2), a_scene(), "a waits for 2 x 2 GPUs"),
        (a_log(max_replicas=3), a_scene(a_worker()), "a has 1 of up to 3 x 1 GPUs, free are {'n1': 3}"),
    ],
)
def test_what_is_wrong_is_said(state: ClusterState, scene: Scene, said: str) -> None:
    assert any(said in each for each in invariants.violations(state, scene)), invariants.violations(state, scene)


@pytest.mark.parametrize(
    ("fields", "scene"),
    [
        ({"halt": Requested(by="ada")}, a_scene()),
        ({"is_canceling": True}, a_scene()),
        ({"refusals": {"n1": "no room"}}, a_scene()),
        ({"gpus_per_replica": 3, "min_replicas": 2}, a_scene()),
        ({}, a_scene(taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])),
        ({}, a_scene(a_pod("p", "ns", gpus=4, node="n1") | {"status": {"phase": "Running"}})),
    ],
)
def test_job_that_cannot_use_what_is_free_may_wait(fields: Mapping[str, Any], scene: Scene) -> None:
    assert list(invariants.idle(a_log(workers={}, **fields), scene)) == []


def test_job_of_which_replicas_are_done_need_not_grow() -> None:
    job = a_job("a", uid="uid-a", max_replicas=3, workers={0: "n1"}, done=(1,), done_of=2)
    assert list(invariants.idle(a_log(job=job), a_scene(an_index(0)))) == []


def test_of_a_quota_nothing_is_said_but_of_workers_that_no_plan_has() -> None:
    refused = a_log(planned=3, max_replicas=3)
    assert invariants.violations(refused, a_scene(a_worker())) != []
    assert invariants.violations_despite_quota(refused, a_scene(a_worker())) == []
    beyond = a_log(workers={0: "n1", 1: "n1"}, planned=1)
    said = invariants.violations_despite_quota(beyond, a_scene(a_worker(), a_worker(1)))
    assert said == ["the log has a on {0: 'n1', 1: 'n1'}, beyond its plan {0: 'n1'}"]
    assert "the log has a on {0: 'n1'}, its pods are on {}" in invariants.violations_despite_quota(a_log(), a_scene())


def test_index_that_succeeded_need_not_run() -> None:
    scene = a_scene(an_index(0))
    state = a_log(planned=6)
    scene.objects[0]["status"] = {"completedIndexes": "1,3-5"}
    assert list(invariants.unlike_plan(state, scene)) == [
        "a is planned on {0: 'n1', 2: 'n1'}, the log has it on {0: 'n1'}"
    ]
    scene.objects[0]["status"] = {"completedIndexes": "1-5"}
    assert list(invariants.unlike_plan(state, scene)) == []


def test_job_whose_planned_workers_are_all_done_has_ended() -> None:
    scene = a_scene()
    scene.objects[0]["status"] = {"completedIndexes": "0,1"}
    said = list(invariants.unlike_plan(a_log(workers={}, planned=2), scene))
    assert said == ["a lives by the log, all of its 2 planned workers are done"]
    assert list(invariants.unlike_plan(a_log(workers={}), scene)) == []


def test_workers_of_a_jobset_are_those_of_its_job() -> None:
    pod = an_index(0)
    pod["metadata"]["ownerReferences"][0]["uid"] = "uid-of-the-job"
    scene = a_scene(pod)
    owner = {"kind": "JobSet", "uid": "uid-a", "controller": True}
    child = {"name": "a-node-0", "uid": "uid-of-the-job", "ownerReferences": [owner]}
    whole = Scene(scene.nodes, scene.pods, [*scene.objects, {"kind": "Job", "metadata": child}])
    assert invariants.violations(a_log(), whole) == []
    assert "the log has a on {0: 'n1'}, its pods are on {}" in invariants.violations(a_log(), scene)


def test_gated_pod_that_no_plan_wants_may_wait() -> None:
    waiting = a_worker(1, "", phase="Pending", schedulingGates=[{"name": invariants.GATE}])
    assert list(invariants.gated(a_log(), a_scene(a_worker(), waiting))) == []


def test_deleted_pod_of_a_dead_node_may_stay() -> None:
    leaving = a_worker(owner="uid-b")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    scene = a_scene(leaving)
    assert list(invariants.left_behind(a_log(), scene)) == ["a-worker-0 holds n1, its job has ended"]
    scene.nodes[0]["status"]["conditions"][0]["status"] = "Unknown"
    assert list(invariants.left_behind(a_log(), scene)) == []


def test_object_that_the_log_never_heard_of_is_said() -> None:
    assert list(invariants.unknown(set(), a_scene())) == ["MPIJob a is no job of the log"]


def test_end_that_nobody_brought_about_is_said() -> None:
    ended, allowed = {"a": Phase.FAILED, "b": Phase.COMPLETED}, {"a": {Phase.COMPLETED}, "b": {Phase.COMPLETED}}
    assert list(invariants.wrong_ends(ended, allowed)) == ["a ended as Failed, and nobody did that to it"]


def test_gpus_are_those_of_allocatable() -> None:
    scene = a_scene(a_worker())
    scene.nodes[0]["status"] = {**scene.nodes[0]["status"], "allocatable": {GPU: "0"}}
    assert list(invariants.overfull(scene)) == ["n1 has 0 GPUs, its pods hold 1"]


def test_gpus_are_devices_too_which_pods_claim() -> None:
    claiming = a_pod("p", "ns", node="n1", spec=claim(3)) | {"status": {"phase": "Running"}}
    scene = Scene(nodes=[a_node("n1", 0, POOL)], pods=[claiming], slices=[a_slice("n1", 2)])
    assert list(invariants.overfull(scene)) == ["n1 has 2 GPUs, its pods hold 3"]
    assert list(invariants.unlike_nodes(a_log(), scene)) == ["node n1 has 2 GPUs, and 4 by the log"]


def test_gpus_of_devices_are_those_that_are_had_or_can_be() -> None:
    slices, claims, rules = partitioned_slices("n1", 4), list[Object](), [closed("gpu-3-gpu-0")]
    assert offered(slices, claims, rules) == {"n1": 3}
    claims.append(having("gpu-0-1g-2"))
    assert offered(slices, claims, rules) == {"n1": 2}
    claims.append(having("gpu-3-gpu-0"))
    assert offered(slices, claims, rules) == {"n1": 3}
    assert offered(slices[:1], claims, rules) == offered(slices[1:], claims, rules) == {}


def test_job_whose_pods_ask_for_other_gpus_than_the_log_has_is_said() -> None:
    scene = Scene(objects=[{**an_indexed_job("a", "ns", gpus=2), "kind": "Job"}])
    scene.objects[0]["metadata"]["uid"] = "uid-a"
    said = list(invariants.unlike_objects(a_log(), scene))
    assert said == ["pods of a ask for 2 GPUs, by the log for 1"]
    assert list(invariants.unlike_objects(a_log(gpus_per_replica=2), scene)) == []


def test_pods_of_others_may_stay_where_no_gpus_are_said() -> None:
    other = a_pod("p", "ns", gpus=1, node="n1") | {"status": {"phase": "Running"}}
    scene = Scene(nodes=[a_node("n1", 0, POOL)], pods=[other])
    assert list(invariants.overfull(scene)) == []


def having(device: str) -> Object:
    results = [{"driver": DRIVER, "pool": "n1", "device": device}]
    return {"status": {"allocation": {"devices": {"results": results}}}}


def closed(device: str) -> Object:
    rule = a_taint_rule("bad", "NoSchedule", driver=DRIVER, pool="n1")
    rule["spec"]["deviceSelector"]["device"] = device
    return rule

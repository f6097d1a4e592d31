"""What is kept of a cluster: the same as if it were read anew, whatever order the news come in, and no more."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.builders import a_job
from tests.kube.trimmed import a_node_object
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV2
from voda.cluster.kubernetes.objects import JobObject, NodeObject, Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.job import Job

KIND = MPIJobV2()
LIVE: Mapping[str, Job] = {
    "a": a_job("a", name="a", namespace="ns", pool="a100", uid="object-1"),
    "b": a_job("b", name="b", namespace="ns", pool="v100"),
}
"""c is a job that the log does not know."""
JOBS = ("a", "b", "c")
NODES = ("n1", "n2", "n3")
LOOKED_UP = ("stock._foreign", "stock._cached", "inventory._gpu_nodes")


def a_pod(name: str, *, uid: str, version: int, **fields: Any) -> Pod:
    job, _, role = name.partition("-")
    labels = {"training.kubeflow.org/job-name": job} if job in JOBS else {}
    labels |= {"training.kubeflow.org/job-role": "launcher"} if role == "launcher" else {}
    notes = {"voda.dev/job-id": job} if "worker" in role else {}
    metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    requests = {"nvidia.com/gpu": fields["gpus"], "cpu": "500m"}
    spec = {
        "nodeName": fields["node"],
        "schedulerName": "voda" if notes else "default-scheduler",
        "containers": [{"resources": {"requests": requests}}],
    }
    whole = {"metadata": {**metadata, "labels": labels, "annotations": notes}, "spec": spec}
    return msgspec.convert({**whole, "status": {"phase": fields["phase"]}}, Pod)


def an_object(job: str, uid: str, version: int, *, is_claimed: bool) -> JobObject:
    notes = {"voda.dev/job-id": job} if is_claimed else {}
    metadata = {"name": job, "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    return msgspec.convert({"metadata": {**metadata, "annotations": notes}}, JobObject)


def shown(inventory: Inventory) -> Any:
    """Return all answers that an inventory gives."""
    return {
        "nodes": {name: inventory.stock.node(name) for name in NODES},
        "pools": {pool: inventory.stock.pool_nodes(pool) for pool in ("a100", "v100")},
        "names": inventory.stock.pools(),
        "held": {job: inventory.gpu_nodes(job) for job in JOBS},
        "holders": {job: inventory.holders(job) for job in JOBS},
        "workers": {job: inventory.workers(job) for job in JOBS},
        "pool of": {job: inventory.pool(job) for job in JOBS},
        "gpus": {job: inventory.gpus_per_replica(job) for job in inventory.jobs_with_workers()},
        "object": {job: inventory.object_of(job) for job in JOBS},
        "pods": {uid: inventory.pods(seen) for uid, seen in inventory.objects.items()},
        "working": sorted(inventory.jobs_with_workers()),
        "claimed": sorted(inventory.jobs_with_objects()),
        "free": {name: inventory.stock.free_milli(name) for name in inventory.stock.nodes},
    }


def kept(inventory: Inventory) -> Any:
    """Return all that an inventory keeps, but for what is to be told of it, or was warned of."""
    left_out = (
        "pods_by_key",
        "devices",
        "dirty_jobs",
        "dirty",
        "job",
        "stock",
        "sharing",
        "claiming",
        "_past",
        "_job",
        "_pool_of_worker",
        "_job_of_launcher",
        "_labels",
        "_pools",
        "_index",
        "_owners",
    )
    parts = {"inventory": inventory, "stock": inventory.stock, "index": inventory._index, "owners": inventory._owners}
    found = {
        f"{part}.{key}": value for part, it in parts.items() for key, value in vars(it).items() if key not in left_out
    }
    sharing, claiming = inventory.sharing, inventory.claiming
    return {**found, "sharing": (sharing.by_uid, sharing.by_node), "claiming": claiming.by_uid}


def kept_of_pods(inventory: Inventory) -> Any:
    """Return what it keeps, but for what is empty or was only looked up."""
    found = {key: value for key, value in kept(inventory).items() if key not in LOOKED_UP}
    return {**found, "stock._pods": {name: on for name, on in found["stock._pods"].items() if on}}


def test_ended_job_whose_workers_linger_is_of_its_own_pool_whatever_their_node_says_by_now() -> None:
    past = {"a": a_job("a", name="a", namespace="ns", pool="a100", gpus_per_replica=2)}
    inventory = Inventory(PoolRule(), lambda job_id: None, past.get)
    inventory.put_node("n1", a_node_object("n1", labels={"vodascheduler/accelerator": "v100"}))
    inventory.put_pod("ns/a-worker-0", a_pod("a-worker-0", uid="p", version=1, node="n1", phase="Running", gpus="1"))
    assert (inventory.pool("a"), inventory.gpus_per_replica("a")) == ("a100", 2)
    # For the pool that the node is in by now, they are others'.
    node = inventory.stock.node("n1")
    assert node is not None
    assert node.foreign_gpus == 1


def test_node_names_the_job_of_a_launcher_that_has_gpus_of_it_whatever_is_known_first() -> None:
    launcher = a_pod("a-launcher", uid="p", version=1, node="n1", phase="Running", gpus="1")
    inventory = Inventory(PoolRule(), LIVE.get)
    inventory.put_node("n1", a_node_object("n1", labels={"vodascheduler/accelerator": "a100"}))
    inventory.put_pod("ns/a-launcher", launcher)
    found = []
    for seen in (an_object("a", "object-1", 2, is_claimed=True), None):
        inventory.put_object("object-1", KIND, seen)
        node = inventory.stock.node("n1")
        assert node is not None
        found.append((node.foreign_gpus, node.launchers))
    assert found == [(1, ("a",)), (1, ())]


@pytest.mark.parametrize("restarts", [False, True])
def test_node_without_label_stays_in_its_pool_without_gpus_for_as_long_as_a_worker_is_there(restarts: bool) -> None:
    live = {"a": a_job("a", name="a", namespace="ns", pool="gpus")}
    whole = a_node_object("n1", labels={})
    bare = a_node_object("n1", labels={}, allocatable={"nvidia.com/gpu": "0"})
    pod = a_pod("a-worker-0", uid="p", version=1, node="n1", phase="Running", gpus="1")

    def seen(node: NodeObject) -> Inventory:
        inventory = Inventory(PoolRule(default_pool="gpus"), live.get)
        inventory.put_node("n1", node)
        inventory.put_pod("ns/a-worker-0", pod)
        return inventory

    inventory = seen(whole)
    assert [(node.gpus, node.foreign_gpus) for node in inventory.stock.pool_nodes("gpus").values()] == [(8, 0)]
    inventory.put_node("n1", bare)
    # Another leader may see it for the first time now.
    inventory = seen(bare) if restarts else inventory
    assert [(node.gpus, node.foreign_gpus) for node in inventory.stock.pool_nodes("gpus").values()] == [(0, 0)]
    inventory.take_dirty()
    inventory.put_pod("ns/a-worker-0", None)
    assert inventory.take_dirty()[0] == {"n1"}
    assert inventory.stock.node("n1") is None


@pytest.mark.parametrize("gates", [[], [{"name": "example.com/own"}], [{"name": "voda.dev/placement"}]])
@pytest.mark.parametrize("job", ["", "a", "c"])
def test_pod_that_says_itself_which_node_it_is_let_go_to_takes_nothing_of_it(
    gates: list[dict[str, str]], job: str
) -> None:
    inventory = Inventory(PoolRule(), LIVE.get)
    inventory.put_node("n1", a_node_object("n1", labels={"vodascheduler/accelerator": "a100"}))
    before = inventory.stock.node("n1"), inventory.stock.free_milli("n1")
    pod = {
        "metadata": {
            "name": f"{job or 'other'}-worker-0",
            "namespace": "elsewhere",
            "uid": "p",
            "labels": {"training.kubeflow.org/job-name": job} if job else {},
            "annotations": {"voda.dev/node": "n1", **({"voda.dev/job-id": job} if job else {})},
        },
        "spec": {"schedulingGates": gates, "containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]},
        "status": {"phase": "Pending"},
    }
    inventory.put_pod("elsewhere/p", msgspec.convert(pod, Pod))
    assert (inventory.stock.node("n1"), inventory.stock.free_milli("n1")) == before
    # The room that kube-scheduler makes for it is another matter.
    making_room = {**pod, "status": {"phase": "Pending", "nominatedNodeName": "n1"}}
    inventory.put_pod("elsewhere/p", msgspec.convert(making_room, Pod))
    assert inventory.stock.free_milli("n1") == before[1] - 4000


class Watched(RuleBasedStateMachine):
    """Objects that come, change and go, beside an inventory that is told of it."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, NodeObject] = {}
        self.pods: dict[str, Pod] = {}
        self.objects: dict[str, JobObject] = {}
        self.former: list[Pod] = []
        self.version = 0
        self.inventory = Inventory(PoolRule(), LIVE.get)

    def next_version(self) -> int:
        self.version += 1
        return self.version

    @rule(name=st.sampled_from(NODES), pool=st.sampled_from(["a100", "v100", ""]), gpus=st.integers(0, 4))
    def node_changes(self, name: str, pool: str, gpus: int) -> None:
        labels = {"vodascheduler/accelerator": pool} if pool else {}
        self.nodes[name] = a_node_object(name, labels=labels, allocatable={"nvidia.com/gpu": str(gpus)})
        self.inventory.put_node(name, self.nodes[name])

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.inventory.put_node(name, None)

    @rule(
        name=st.sampled_from(["a-worker-0", "a-worker-1", "b-worker-0", "c-worker-10", "a-launcher", "other"]),
        node=st.sampled_from(["", *NODES]),
        phase=st.sampled_from(["Pending", "Running", "Failed", "Succeeded"]),
        gpus=st.sampled_from(["1", "2", "odd"]),
        is_new=st.booleans(),
    )
    def pod_changes(self, name: str, node: str, phase: str, gpus: str, is_new: bool) -> None:
        key, version = f"ns/{name}", self.next_version()
        before = self.pods.get(key)
        if before is not None:
            self.former.append(before)
        uid = f"pod-{version}" if before is None or is_new else before.metadata.uid
        self.pods[key] = a_pod(name, uid=uid, version=version, node=node, phase=phase, gpus=gpus)
        self.inventory.put_pod(key, self.pods[key])

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def pod_goes(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.pods)))
        del self.pods[key]
        self.inventory.put_pod(key, None)

    @precondition(lambda self: self.former)
    @rule(data=st.data())
    def pod_is_told_of_late(self, data: st.DataObject) -> None:
        """The watch's older word about what an answer of the server has told already."""
        old = data.draw(st.sampled_from(self.former))
        now = self.pods.get(old.metadata.key)
        if now is not None and now.metadata.uid == old.metadata.uid:
            self.inventory.put_pod(old.metadata.key, old)

    @rule(job=st.sampled_from(JOBS), number=st.integers(1, 4), is_claimed=st.booleans())
    def object_changes(self, job: str, number: int, is_claimed: bool) -> None:
        uid = f"object-{number}"
        before = self.objects.get(uid)
        name = before.metadata.name if before is not None else job
        self.objects[uid] = an_object(name, uid, self.next_version(), is_claimed=is_claimed)
        self.inventory.put_object(uid, KIND, self.objects[uid])
        if before is not None:
            self.inventory.put_object(uid, KIND, before)

    @rule(number=st.integers(1, 4))
    def object_goes(self, number: int) -> None:
        self.objects.pop(f"object-{number}", None)
        self.inventory.put_object(f"object-{number}", KIND, None)

    @invariant()
    def is_as_read_anew(self) -> None:
        anew = Inventory(PoolRule(), LIVE.get)
        for key, pod in self.pods.items():
            anew.put_pod(key, pod)
        for uid, seen in self.objects.items():
            anew.put_object(uid, KIND, seen)
        for name, node in self.nodes.items():
            anew.put_node(name, node)
        assert shown(self.inventory) == shown(anew)
        assert kept_of_pods(self.inventory) == kept_of_pods(anew)

    def teardown(self) -> None:
        """What is gone leaves nothing."""
        for key in self.pods:
            self.inventory.put_pod(key, None)
        for uid in self.objects:
            self.inventory.put_object(uid, KIND, None)
        for name in self.nodes:
            self.inventory.put_node(name, None)
        shown(self.inventory)
        assert kept(self.inventory) == kept(Inventory(PoolRule(), LIVE.get))


Watched.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
test_inventory_when_news_come_in_any_order_is_as_read_anew = Watched.TestCase

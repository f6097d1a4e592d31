"""GPUs of nodes as devices: which count, who has them, and how they are counted beside extended resources."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.builders import a_job
from tests.kube.devices import CLASS, a_claim_template, a_device, a_device_class, a_gpu, a_slice, claims_of
from tests.kube.trimmed import a_node_object
from voda.cluster.kubernetes.device_objects import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.claim_ledger import CapacityNames
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_claims import job_gpus
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.errors import InvalidField, MissingReference
from voda.domain.node import Node
from voda.kinds.pod_template import PodClaim

RULE = PoolRule(device_classes=(CLASS,), pool_attribute=f"{CLASS}/productName", default_pool="any")


def an_inventory(*, ext: int = 0, pool: str = "a100", rule: PoolRule = RULE) -> Inventory:
    """Return an inventory with node n1, which has so many GPUs as an extended resource, and the class of GPUs."""
    inventory = Inventory(rule, {"a": a_job("a", name="a", namespace="ns", pool=pool)}.get)
    labels = {"vodascheduler/accelerator": pool} if pool else {}
    inventory.put_node("n1", a_node_object("n1", allocatable={"nvidia.com/gpu": str(ext)}, labels=labels))
    inventory.stock.devices.put_class(CLASS, msgspec.convert(a_device_class(), DeviceClass))
    return inventory


def publish(inventory: Inventory, devices: int | Sequence[Any] = 4, *, node: str = "n1", **changes: Any) -> None:
    made = msgspec.convert(a_slice(node, devices, **changes), ResourceSlice)
    inventory.stock.devices.put_slice(made.metadata.name, made)


def allocate(inventory: Inventory, name: str, *devices: str, pod: str = "", **fields: Any) -> None:
    owners = [{"kind": "Pod", "name": pod, "controller": True}] if pod else []
    results = [{"driver": CLASS, "pool": "n1", "device": each, **fields} for each in devices]
    metadata = {"name": name, "namespace": "ns", "ownerReferences": owners}
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    claim = msgspec.convert({"metadata": metadata, "status": status}, ResourceClaim)
    inventory.stock.devices.put_claim(claim.metadata.key, claim)


def add_pod(inventory: Inventory, name: str, *, job: str = "", gpus: int = 0, **fields: Any) -> Pod:
    labels = {"training.kubeflow.org/job-name": job} if job else {}
    notes = {"voda.dev/job-id": job} if job else {}
    requests = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    spec = {"nodeName": "n1", "containers": [{"resources": {"requests": requests}}], **fields.pop("spec", {})}
    metadata = {"name": name, "namespace": "ns", "labels": labels, "annotations": notes}
    pod = msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": "Running", **fields}}, Pod)
    inventory.put_pod(pod.metadata.key, pod)
    return pod


def node_of(inventory: Inventory) -> Node:
    node = inventory.stock.node("n1")
    assert node is not None
    return node


def test_gpus_of_a_node_are_whole_open_devices_that_a_gpu_class_selects() -> None:
    inventory = an_inventory()
    closed = [{"key": "broken", "effect": "NoExecute"}]
    told = [{"key": "noted", "effect": "None"}]
    devices = [
        a_device("whole"),
        a_device("noted", taints=told),
        a_device("tainted", taints=closed),
        a_device("shared", allowMultipleAllocations=True),
        a_device("mig", attributes={"type": "mig"}),
    ]
    publish(inventory, devices)
    publish(inventory, 8, name="nics", driver="nic.example.com")
    assert node_of(inventory).gpus == 2
    inventory.stock.devices.put_class(CLASS, None)
    assert node_of(inventory).gpus == 0


def test_devices_of_a_slice_for_several_nodes_count_on_the_nodes_that_they_name() -> None:
    inventory = an_inventory()
    publish(inventory, [a_device("one", nodeName="n1"), a_device("two", nodeName="n2"), a_device("far")], node="")
    assert node_of(inventory).gpus == 1


def test_newest_generation_counts_once_it_is_complete_and_until_then_the_last_one_that_was() -> None:
    inventory = an_inventory()
    publish(inventory, 4, name="one", slices=2)
    assert node_of(inventory).gpus == 0
    publish(inventory, [a_device("gpu-4")], name="two", slices=2)
    assert node_of(inventory).gpus == 5
    publish(inventory, 2, name="one", slices=2, generation=2)
    assert node_of(inventory).gpus == 5
    publish(inventory, [a_device("gpu-4")], name="two", slices=2, generation=2)
    assert node_of(inventory).gpus == 3
    inventory.stock.devices.put_slice("one", None)
    assert node_of(inventory).gpus == 3
    inventory.stock.devices.put_slice("two", None)
    assert node_of(inventory).gpus == 0


def test_gpus_that_claims_of_workers_have_are_their_jobs_and_those_of_other_pods_are_not() -> None:
    rule = PoolRule(device_classes=(CLASS,), default_pool="any", gpu_capacities=CapacityNames())
    inventory = an_inventory(rule=rule)
    publish(inventory, [a_gpu("n1", number) for number in range(4)])
    add_pod(inventory, "a-worker-0", job="a")
    add_pod(inventory, "notebook")
    add_pod(inventory, "copy", job="b")
    for number, pod in enumerate(("notebook", "a-worker-0", "copy")):
        allocate(inventory, f"claim-{number}", f"gpu-{number}", pod=pod, shareID="s")
    assert job_gpus(inventory, "n1") == {1: "a"}
    assert job_gpus(inventory, "n2") == {}


def test_gpus_that_a_node_offers_by_both_ways_count_once() -> None:
    inventory = an_inventory(ext=4)
    publish(inventory, 4)
    add_pod(inventory, "other", gpus=1)
    allocate(inventory, "claim", "gpu-0")
    assert (node_of(inventory).gpus, node_of(inventory).foreign_gpus) == (4, 2)
    assert inventory.stock.free_milli("n1") == 2000


def test_devices_that_others_claim_are_foreign_and_those_of_workers_are_not() -> None:
    inventory = an_inventory()
    publish(inventory, 8)
    add_pod(inventory, "a-worker-0", job="a")
    allocate(inventory, "mine", "gpu-0", "gpu-1", pod="a-worker-0")
    allocate(inventory, "alone", "gpu-2")
    allocate(inventory, "look", "gpu-3", adminAccess=True)
    allocate(inventory, "theirs", "gpu-4", "gpu-5", "gpu-6", pod="other")
    # Nobody has seen its pod: it is about to come, or to go.
    assert node_of(inventory).foreign_gpus == 1
    add_pod(inventory, "other")
    assert node_of(inventory).foreign_gpus == 4
    assert inventory.stock.free_milli("n1") == 2000
    inventory.put_pod("ns/other", None)
    allocate(inventory, "theirs", pod="other")
    inventory.put_pod("ns/a-worker-0", None)
    assert node_of(inventory).foreign_gpus == 1
    # What its pod left is taken until the claim has given it back.
    assert inventory.stock.free_milli("n1") == 5000


def test_node_is_looked_at_again_when_a_claim_takes_or_returns_devices() -> None:
    inventory = an_inventory()
    publish(inventory)
    inventory.take_dirty()
    allocate(inventory, "claim", "gpu-0")
    assert inventory.take_dirty()[0] == {"n1"}
    allocate(inventory, "claim", "gpu-0")
    allocate(inventory, "elsewhere", "gpu-77")
    assert inventory.take_dirty()[0] == set()
    inventory.stock.devices.put_claim("ns/claim", None)
    assert inventory.take_dirty()[0] == {"n1"}


def test_device_that_is_tainted_while_a_claim_has_it_counts_until_it_is_given_back() -> None:
    inventory = an_inventory()
    allocate(inventory, "claim", "gpu-0", pod="a-worker-0")
    publish(inventory, [a_device("gpu-0", taints=[{"key": "old", "effect": "NoSchedule"}]), a_device("gpu-1")])
    assert node_of(inventory).gpus == 2
    inventory.stock.devices.put_claim("ns/claim", None)
    assert node_of(inventory).gpus == 1


def test_pod_whose_extended_resource_kube_scheduler_took_from_devices_counts_once() -> None:
    inventory = an_inventory()
    publish(inventory)
    add_pod(inventory, "other", gpus=2, extendedResourceClaimStatus={"resourceClaimName": "made"})
    allocate(inventory, "made", "gpu-0", "gpu-1", pod="other")
    assert node_of(inventory).foreign_gpus == 2


@pytest.mark.parametrize(
    ("pool", "products", "expected"),
    [
        ("a100", ["Example H100"] * 2, "a100"),
        ("", ["Example H100", "Old", "Example H100"], "Example-H100"),
        ("", [""], "any"),
    ],
)
def test_pool_of_a_node_without_the_label_is_that_of_most_devices(
    pool: str, products: list[str], expected: str
) -> None:
    inventory = an_inventory(pool=pool)
    publish(inventory, [a_device(f"g{at}", attributes={"productName": name}) for at, name in enumerate(products)])
    assert node_of(inventory).pool == expected


def test_claimed_gpus_of_a_replica_add_up_and_what_is_missing_is_named() -> None:
    inventory = an_inventory()
    devices = inventory.stock.devices
    for name, gpus in (("two", 2), ("one", 1)):
        made = msgspec.convert(a_claim_template(name, "ns", gpus), ResourceClaimTemplate)
        devices.put_template(made.metadata.key, made)
    claims = [PodClaim(resource_claim_template_name=name) for name in ("two", "one")]
    assert devices.claimed("ns", claims) == 3
    pod = add_pod(inventory, "a-worker-0", job="a", spec=claims_of("two"))
    assert (devices.requested(pod), inventory.stock.needed_milli(pod)) == (2, 2000)
    with pytest.raises(MissingReference, match="namespace other has no ResourceClaimTemplate 'two'") as missing:
        devices.claimed("other", claims)
    assert missing.value.field == "resourceClaims[0].resourceClaimTemplateName"
    devices.put_class(CLASS, None)
    with pytest.raises(MissingReference, match=f"ResourceClaimTemplate two asks for DeviceClass '{CLASS}', which is"):
        devices.claimed("ns", claims)


def test_claim_of_gpus_that_replicas_would_share_is_refused() -> None:
    devices = an_inventory().stock.devices
    spec = a_claim_template("x", "ns")["spec"]["spec"]
    shared = msgspec.convert({"metadata": {"name": "x", "namespace": "ns"}, "spec": spec}, ResourceClaim)
    devices.put_claim("ns/x", shared)
    with pytest.raises(InvalidField, match="replicas cannot share GPUs: expected resourceClaimTemplateName"):
        devices.claimed("ns", [PodClaim(resource_claim_name="x")])
    assert devices.claimed("ns", [PodClaim(resource_claim_name="others")]) == 0

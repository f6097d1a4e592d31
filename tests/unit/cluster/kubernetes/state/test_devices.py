"""GPUs of nodes as devices: which count, who has them, and how they are counted beside extended resources."""

from collections.abc import Sequence
from time import thread_time
from typing import Any

import msgspec
import pytest

from tests.builders import a_job
from tests.kube.devices import (
    CLASS,
    a_claim_template,
    a_device,
    a_device_class,
    a_gpu,
    a_slice,
    a_taint_rule,
    claims_of,
    class_of,
    partitioned_slices,
)
from tests.kube.trimmed import a_node_object
from voda.cluster.kubernetes.device_objects import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.claim_ledger import CapacityNames
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_claims import contested_gpu, job_gpus
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
    inventory.stock.devices.published.put_class(CLASS, msgspec.convert(a_device_class(), DeviceClass))
    return inventory


def publish(inventory: Inventory, devices: int | Sequence[Any] = 4, *, node: str = "n1", **changes: Any) -> None:
    made = msgspec.convert(a_slice(node, devices, **changes), ResourceSlice)
    inventory.stock.devices.published.put_slice(made.metadata.name, made)


def publish_partitions(inventory: Inventory) -> None:
    for each in partitioned_slices("n1", 2):
        inventory.stock.devices.published.put_slice(each["metadata"]["name"], msgspec.convert(each, ResourceSlice))


def allocate(inventory: Inventory, name: str, *devices: str, pod: str = "", at: str = "", **fields: Any) -> None:
    owners = [{"kind": "Pod", "name": pod, "controller": True}] if pod else []
    results = [{"driver": CLASS, "pool": "n1", "device": each, **fields} for each in devices]
    metadata = {"name": name, "namespace": "ns", "ownerReferences": owners}
    status = {"allocation": {"devices": {"results": results}, "allocationTimestamp": at}} if devices else {}
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
    inventory.stock.devices.published.put_class(CLASS, None)
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


@pytest.mark.parametrize("lost", ["one", "two"])
def test_pool_that_loses_a_slice_of_its_generation_has_no_gpus_until_that_is_back(lost: str) -> None:
    inventory = an_inventory()
    for name in ("one", "two"):
        publish(inventory, [a_device(f"gpu-{name}")], name=name, slices=2)
    inventory.stock.devices.published.put_slice(lost, None)
    assert node_of(inventory).gpus == 0
    publish(inventory, [a_device(f"gpu-{lost}")], name=lost, slices=2)
    assert node_of(inventory).gpus == 2


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


def test_tainted_device_of_a_worker_whose_claim_tolerates_it_is_no_room_for_others() -> None:
    inventory = an_inventory()
    taints = [{"key": "sick", "effect": "NoExecute"}]
    publish(inventory, [a_device("gpu-0", taints=taints), *(a_device(f"gpu-{number}") for number in range(1, 4))])
    add_pod(inventory, "a-worker-0", job="a")
    tolerations = [{"operator": "Exists"}]
    allocate(inventory, "mine", "gpu-0", pod="a-worker-0", tolerations=tolerations)
    assert node_of(inventory).gpus == 3
    # Those who have all of them keep them.
    allocate(inventory, "more", "gpu-1", "gpu-2", "gpu-3", pod="a-worker-0")
    assert node_of(inventory).gpus == 4
    # Others' does not use up a GPU that is well.
    allocate(inventory, "more", pod="a-worker-0")
    allocate(inventory, "mine", "gpu-0", tolerations=tolerations)
    assert (node_of(inventory).gpus, node_of(inventory).own_gpus) == (4, 3)


def test_gpu_that_two_claims_have_is_one_and_the_worker_leaves_it_that_came_later() -> None:
    inventory = an_inventory()
    publish(inventory)
    workers = {name: add_pod(inventory, name, job="a", **claim_status(name)) for name in ("a-worker-0", "a-worker-1")}
    for name, at in (("a-worker-0", "2026-01-01T00:00:02Z"), ("a-worker-1", "2026-01-01T00:00:01Z")):
        allocate(inventory, f"{name}-gpu", "gpu-0", pod=name, at=at)
    assert contested_gpu(inventory, workers["a-worker-0"]) == (f"{CLASS}/n1/gpu-0", "ns/a-worker-1")
    assert contested_gpu(inventory, workers["a-worker-1"]) is None
    # Others are not voda's to move, and have no GPU of their own.
    add_pod(inventory, "other")
    for number in range(2):
        allocate(inventory, f"other-{number}", "gpu-0", "gpu-1", pod="other", at="2026-01-01T00:00:03Z")
    assert contested_gpu(inventory, workers["a-worker-1"]) == (f"{CLASS}/n1/gpu-0", "ns/other")
    assert (node_of(inventory).gpus, node_of(inventory).foreign_gpus) == (4, 1)


def claim_status(pod: str) -> Any:
    return {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{pod}-gpu"}]}


def test_whole_gpus_count_that_the_partitions_in_use_leave() -> None:
    inventory = an_inventory()
    publish_partitions(inventory)
    assert (node_of(inventory).gpus, node_of(inventory).foreign_gpus) == (2, 0)
    inventory.take_dirty()
    # Whoever has them: they are no GPUs of a class.
    allocate(inventory, "theirs", "gpu-0-1g-0", "gpu-0-1g-1", pod="a-worker-0")
    assert inventory.take_dirty()[0] == {"n1"}
    assert (node_of(inventory).gpus, node_of(inventory).foreign_gpus) == (1, 0)
    allocate(inventory, "whole", "gpu-1-gpu-0")
    assert (node_of(inventory).gpus, node_of(inventory).foreign_gpus, inventory.stock.free_milli("n1")) == (1, 1, 0)
    inventory.stock.devices.put_claim("ns/theirs", None)
    assert (node_of(inventory).gpus, node_of(inventory).foreign_gpus, inventory.stock.free_milli("n1")) == (2, 1, 1000)


def test_partitions_of_a_class_count_that_others_leave_of_their_gpus() -> None:
    inventory = an_inventory(rule=PoolRule(device_classes=("1g",), default_pool="any"))
    inventory.stock.devices.published.put_class(
        "1g", msgspec.convert(a_device_class("1g", class_of("1g")), DeviceClass)
    )
    publish_partitions(inventory)
    assert node_of(inventory).gpus == 14
    allocate(inventory, "whole", "gpu-0-gpu-0")
    allocate(inventory, "mine", "gpu-1-1g-3")
    allocate(inventory, "third", "gpu-1-3g-0")
    assert (node_of(inventory).gpus, inventory.stock.free_milli("n1")) == (4, 3000)


def test_of_gpus_and_their_partitions_the_class_counts_that_is_first_in_the_settings() -> None:
    inventory = an_inventory(rule=PoolRule(device_classes=(CLASS, "1g"), default_pool="any"))
    devices = inventory.stock.devices
    devices.published.put_class("1g", msgspec.convert(a_device_class("1g", class_of("1g")), DeviceClass))
    made = msgspec.convert(
        a_claim_template("small", "ns", request={"exactly": {"deviceClassName": "1g"}}), ResourceClaimTemplate
    )
    devices.put_template("ns/small", made)
    claims = [PodClaim(resource_claim_template_name="small")]
    assert devices.claimed("ns", claims) == 1
    publish_partitions(inventory)
    assert node_of(inventory).gpus == 2
    with pytest.raises(InvalidField, match=f"'1g' gives partitions of devices that count for DeviceClass '{CLASS}'"):
        devices.claimed("ns", claims)
    for name in ("n1-counters", "n1-devices"):
        devices.published.put_slice(name, None)
    assert devices.claimed("ns", claims) == 1


def test_partition_that_takes_of_a_counter_which_nobody_publishes_is_no_gpu() -> None:
    inventory = an_inventory()
    takes = [{"counterSet": "gone", "counters": {"slices": {"value": "1"}}}]
    publish(inventory, [a_device("part", consumesCounters=takes), a_device("whole")])
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
    devices.published.put_class(CLASS, None)
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


def test_rule_that_taints_a_device_counts_as_long_as_it_names_it_and_its_status_costs_nothing() -> None:
    inventory = an_inventory()
    for number in range(1, 301):
        publish(inventory, 8, node=f"n{number}")
    published = inventory.stock.devices.published

    def write(**selector: str) -> None:
        raw = a_taint_rule("sick", "NoSchedule", driver=CLASS, **selector)
        published.put_taint_rule("sick", msgspec.convert(raw, DeviceTaintRule))

    def closed() -> list[str]:
        return [
            name for name in ("n1", "n2") for number in range(8) if published.is_closed((CLASS, name, f"gpu-{number}"))
        ]

    write(pool="n1", device="gpu-0")
    assert closed() == ["n1"]
    write(pool="n2")
    assert closed() == ["n2"] * 8
    write()
    began = thread_time()
    for _ in range(300):
        write()
    assert thread_time() - began < 1.0
    assert closed() == ["n1"] * 8 + ["n2"] * 8
    published.put_taint_rule("sick", None)
    assert closed() == []

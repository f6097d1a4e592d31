"""What claims take of GPUs that they share: asked for, and had."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from tests.kube.client import Object
from tests.kube.devices import CLASS, DRIVER, a_device, a_device_class, a_gpu, a_slice
from tests.kube.trimmed import a_node_object
from voda.cluster.kubernetes.device_objects import DeviceClass, ResourceClaim, ResourceSlice
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.claim_ledger import CapacityNames, ClaimLedger
from voda.cluster.kubernetes.state.claimed_amounts import WHOLE, asked_of_gpus, given_gpus, nodes_too_small
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.errors import InvalidInput
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.domain.shares import SharingNode

RULE = PoolRule(device_classes=(CLASS,), default_pool="any", gpu_capacities=CapacityNames())


def an_inventory(devices: Sequence[Object], rule: PoolRule = RULE) -> Inventory:
    """Return an inventory with node n1, which has these devices."""
    inventory = Inventory(rule, lambda job_id: None)
    inventory.put_node("n1", a_node_object("n1", allocatable={}, labels={}))
    inventory.stock.devices.published.put_class(CLASS, msgspec.convert(a_device_class(), DeviceClass))
    put_slice(inventory, "n1", devices)
    return inventory


def put_slice(inventory: Inventory, node: str, devices: Sequence[Object]) -> None:
    made = msgspec.convert(a_slice(node, devices), ResourceSlice)
    inventory.stock.devices.published.put_slice(made.metadata.name, made)


def gpus_of(*devices: Object) -> ClaimLedger:
    return an_inventory(devices).stock.devices.shared


def a_claim(*requests: Object, results: Sequence[Object] = (), name: str = "a-gpu-x1", uid: str = "pod-a") -> Object:
    """Return the claim gpu of pod ns/a."""
    owner = {"kind": "Pod", "name": "a", "uid": uid, "controller": True}
    notes = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "ownerReferences": [owner], "annotations": notes}
    status = {"allocation": {"devices": {"results": list(results)}}} if results else {}
    return {"metadata": metadata, "spec": {"devices": {"requests": list(requests)}}, "status": status}


def a_request(name: str = "part", device_class: str = CLASS, **capacities: str) -> Object:
    return {"name": name, "exactly": {"deviceClassName": device_class, "capacity": {"requests": capacities}}}


def a_result(device: str, request: str = "part", **consumed: str) -> Object:
    at = {"driver": DRIVER, "pool": "n1", "device": device, "request": request}
    return {**at, "shareID": "1", "consumedCapacity": consumed}


def read(claim: Object) -> ResourceClaim:
    return msgspec.convert(claim, ResourceClaim)


def a_pod(node: str = "", claim: str = "a-gpu-x1") -> Pod:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    statuses = [{"name": "gpu", "resourceClaimName": claim}] if claim else []
    metadata = {"name": "a", "namespace": "ns", "uid": "pod-a"}
    spec = {"nodeName": node, "resourceClaims": claims}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"resourceClaimStatuses": statuses}}, Pod)


def some(count: int, **capacities: str) -> Object:
    """Return a request of so many devices."""
    request = a_request(**capacities)
    return {**request, "exactly": {**request["exactly"], "allocationMode": "ExactCount", "count": count}}


def asked(gpus: ClaimLedger, *requests: Object) -> Mapping[str, GpuRequest]:
    return asked_of_gpus(a_pod(), {"gpu": read(a_claim(*requests))}, [CLASS], gpus)


def test_gpus_of_a_node_are_devices_that_claims_share_in_the_order_of_their_numbers() -> None:
    inventory = an_inventory([a_gpu("n1", number) for number in (10, 2)] + [a_device("whole")])
    node = inventory.stock.node("n1")
    assert node is not None
    names = [f"{DRIVER}/n1/gpu-2", f"{DRIVER}/n1/gpu-10"]
    assert node.devices == tuple(GpuDevice(memory_mib=81_920, name=name) for name in names)
    assert node.gpus == 3
    put_slice(inventory, "n1", [])
    assert inventory.stock.node("n1") is None


def test_gpu_of_which_a_worker_would_not_get_all_is_for_pods_alone() -> None:
    less, same, counted, slots = (a_gpu("n1", number) for number in range(4))
    less["capacity"]["milli"]["requestPolicy"] = {"default": "100"}
    same["capacity"]["milli"]["requestPolicy"] = {"default": "1000"}
    counted["consumesCounters"] = [{"counterSet": "gpu"}]
    slots["capacity"] = {"slots": {"value": "10"}}
    node = an_inventory([less, same, counted, slots]).stock.node("n1")
    assert node is not None
    assert node.gpus == 1
    assert [device.is_for_pods for device in node.devices] == [True, False, True]


def test_gpus_of_a_node_are_close_where_they_have_a_socket_or_a_pcie_root_in_common() -> None:
    gpus = [a_gpu("n1", number) for number in range(4)]
    for gpu, root in zip(gpus, ("pci0000:00", "pci0000:40", "pci0000:40"), strict=False):
        gpu["attributes"]["resource.kubernetes.io/pcieRoot"] = {"string": root}
        gpu["attributes"]["resource.kubernetes.io/numaNode"] = {"int": 0}
    # Kubernetes has lists too, for devices that are in several places.
    gpus[3]["attributes"]["resource.kubernetes.io/pcieRoot"] = {"strings": ["pci0000:00", "pci0000:40"]}
    shared = gpus_of(*gpus)
    assert [gpu.groups for gpu in shared.devices("n1")] == [(0, 0), (0, 1), (0, 1), (4, 5)]
    assert [gpu.groups for gpu in gpus_of(a_gpu("n1", 0)).devices("n1")] == [()]


def test_gpus_when_sharing_by_claims_is_off_are_none_of_vodas_business() -> None:
    inventory = an_inventory([a_gpu("n1", 0)], PoolRule(device_classes=(CLASS,), default_pool="any"))
    assert inventory.stock.node("n1") is None


def test_device_without_either_capacity_is_no_gpu() -> None:
    device = a_device("gpu-0", allowMultipleAllocations=True, capacity={"slots": {"value": "8"}})
    assert gpus_of(device).nodes == {}


def test_selector_is_the_uuid_and_a_gpu_like_all_others_has_none() -> None:
    inventory = an_inventory([a_gpu("n1", 0)])
    capacity = {"milli": {"value": "1000"}}
    put_slice(inventory, "n2", [a_device("gpu-0", allowMultipleAllocations=True, capacity=capacity) for _ in "ab"])
    gpus = inventory.stock.devices.shared
    uuid = f'device.attributes["{DRIVER}"].uuid'
    told = f'device.driver == "{DRIVER}" && has({uuid}) && {uuid} == "GPU-n1-0"'
    assert gpus.selector(gpus.nodes["n1"][0]) == told
    assert gpus.selector(gpus.nodes["n2"][0]) == ""


def test_attribute_that_would_end_the_quotes_selects_nothing() -> None:
    device = a_gpu("n1", 0)
    device["attributes"] = {"type": {"string": "gpu"}, "uuid": {"string": '" || true || "'}}
    del device["attributes"]["type"]
    inventory = an_inventory([])
    inventory.stock.devices.published.put_class(
        CLASS, msgspec.convert(a_device_class(expression=f'device.driver == "{DRIVER}"'), DeviceClass)
    )
    put_slice(inventory, "n1", [device])
    gpus = inventory.stock.devices.shared
    assert gpus.selector(gpus.nodes["n1"][0]) == ""


def test_selector_of_several_gpus_names_each_of_them_and_no_other() -> None:
    odd = a_gpu("n1", 2)
    odd["attributes"] = {"type": {"string": "gpu"}, "serial": {"string": "S2"}}
    gpus = gpus_of(a_gpu("n1", 0), a_gpu("n1", 1), odd)
    one, two, other = gpus.nodes["n1"]
    uuid, serial = (f'device.attributes["{DRIVER}"].{name}' for name in ("uuid", "serial"))
    pair = f'device.driver == "{DRIVER}" && has({uuid}) && {uuid} in ["GPU-n1-0", "GPU-n1-1"]'
    assert gpus.selector(one, two) == pair
    single = f'device.driver == "{DRIVER}" && has({serial}) && {serial} == "S2"'
    assert gpus.selector(one, two, other) == f"({pair}) || ({single})"


def test_gpu_that_is_tainted_or_a_partition_or_like_others_is_left_alone_and_why() -> None:
    tainted, part, alike = (a_gpu("n1", number) for number in range(3))
    tainted["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    part["consumesCounters"] = [{"counterSet": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}]
    del alike["attributes"]["uuid"]
    gpus = gpus_of(tainted, part, alike, a_gpu("n1", 3))
    told = ["tainted", "a partition of a device", "like others in all attributes", ""]
    assert [gpus.obstacle(gpu) for gpu in gpus.nodes["n1"]] == told


@pytest.mark.parametrize(
    ("capacities", "request_"),
    [
        ({"milli": "250", "memory": "4Gi"}, GpuRequest(milli=250, memory_mib=4_096)),
        ({"milli": "0", "memory": "1500Ki"}, GpuRequest(memory_mib=2)),
        ({f"{DRIVER}/milli": "1", "memory": "0"}, GpuRequest(milli=1)),
        ({"milli": "1000", "memory": "80Gi"}, WHOLE),
        ({"milli": "250"}, WHOLE),
        ({"memory": "4Gi"}, WHOLE),
    ],
)
def test_request_takes_what_it_says_and_all_of_what_it_does_not_say(
    capacities: Mapping[str, str], request_: GpuRequest
) -> None:
    assert asked(gpus_of(a_gpu("n1", 0)), a_request(**capacities)) == {"gpu": request_}


@pytest.mark.parametrize("capacities", [{}, {"milli": "1000", "memory": "80Gi"}])
def test_request_of_several_devices_takes_whole_gpus(capacities: Mapping[str, str]) -> None:
    assert asked(gpus_of(a_gpu("n1", 0)), some(3, **capacities)) == {"gpu": GpuRequest(devices=Gpus(3))}


def test_request_of_whole_gpus_when_there_are_none_yet_is_of_whole_gpus() -> None:
    assert asked(gpus_of(), some(2)) == {"gpu": GpuRequest(devices=Gpus(2))}


def test_nodes_with_too_few_gpus_of_a_size_are_too_small() -> None:
    gpus = gpus_of(a_gpu("n1", 0), a_gpu("n1", 1), a_gpu("n1", 2, memory="40Gi"))
    large = {"milli": "1000", "memory": "80Gi"}
    found = [set(nodes_too_small({"gpu": read(a_claim(some(count, **large)))}, [CLASS], gpus)) for count in (1, 2, 3)]
    assert found == [set(), set(), {"n1"}]


def test_request_takes_the_drivers_default_of_what_it_does_not_say() -> None:
    gpu = a_gpu("n1", 0)
    gpu["capacity"]["memory"]["requestPolicy"] = {"default": "1Gi"}
    assert asked(gpus_of(gpu), a_request(milli="100")) == {"gpu": GpuRequest(milli=100, memory_mib=1_024)}


def test_compute_in_other_units_becomes_thousandths_of_the_smallest_gpu_rounded_up() -> None:
    gpus = gpus_of(a_gpu("n1", 0, milli=132), a_gpu("n1", 1, milli=108))
    assert asked(gpus, a_request(milli="33", memory="0")) == {"gpu": GpuRequest(milli=306)}


def test_several_requests_of_a_claim_have_names_of_their_own_and_other_classes_do_not_count() -> None:
    found = asked(
        gpus_of(a_gpu("n1", 0)),
        a_request("one", milli="100", memory="1Gi"),
        a_request("two", milli="200", memory="1Gi"),
        a_request("nic", "nic.example.com"),
    )
    assert {key: each.milli for key, each in found.items()} == {"gpu/one": 100, "gpu/two": 200}


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"name": "p", "firstAvailable": [{"name": "x", "deviceClassName": CLASS}]}, "firstAvailable leaves open"),
        (some(2, milli="400", memory="0"), "it asks for a part of 2 GPUs each, expected a request for each part"),
        (some(33), "it asks for 33 devices, expected 32 at most"),
        ({"name": "p", "exactly": {"deviceClassName": CLASS, "allocationMode": "All"}}, "All takes whatever a node"),
        ({"name": "p", "exactly": {"deviceClassName": CLASS, "adminAccess": True}}, "adminAccess takes nothing"),
        (a_request(milli="0", memory="0"), "it takes nothing of a GPU"),
        (a_request(milli="1001", memory="0"), "it takes more than any GPU has"),
        (a_request(milli="1000", memory="81Gi"), "it takes more than any GPU has"),
        (a_request(milli="much", memory="0"), "claim gpu, request part: .*much"),
        (a_request("nic", "nic.example.com"), "claims no part of a GPU: expected a resourceClaimTemplateName"),
    ],
)
def test_claim_for_which_no_gpu_can_be_chosen_is_refused_in_a_sentence(request_: Object, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        asked(gpus_of(a_gpu("n1", 0)), request_)


def test_pod_with_so_many_claims_that_others_would_wait_is_refused() -> None:
    with pytest.raises(InvalidInput, match="claims 129 devices, expected 128 at most"):
        asked(gpus_of(a_gpu("n1", 0)), *(a_request(str(number), milli="1", memory="0") for number in range(129)))


def test_given_gpus_are_what_was_consumed_of_this_node() -> None:
    gpus = gpus_of(a_gpu("n1", 0), a_gpu("n1", 1))
    results = [a_result("gpu-1", milli="400", memory="20Gi"), {**a_result("gpu-0"), "pool": "n2"}]
    share = ContainerGpus(gpus=(1,), request=GpuRequest(milli=400, memory_mib=20_480))
    assert given_gpus(read(a_claim(a_request(), results=results)), gpus.nodes["n1"], gpus.names) == {"gpu": share}


def test_given_gpus_of_one_request_are_one_share_where_they_are_whole() -> None:
    gpus = gpus_of(*(a_gpu("n1", number) for number in range(4)))
    whole = {"milli": "1000", "memory": "80Gi"}
    results = [a_result(f"gpu-{number}", **whole) for number in (2, 0)]
    found = given_gpus(read(a_claim(some(2), results=results)), gpus.nodes["n1"], gpus.names)
    assert found == {"gpu": ContainerGpus(gpus=(0, 2), request=GpuRequest(devices=Gpus(2)))}
    results += [a_result("gpu-3", milli="400", memory="20Gi"), a_result("gpu-3", milli="400", memory="20Gi")]
    found = given_gpus(read(a_claim(some(4), results=results)), gpus.nodes["n1"], gpus.names)
    assert {key: each.gpus for key, each in found.items()} == {"gpu": (0, 2), "gpu/2": (3,), "gpu/3": (3,)}


@pytest.mark.parametrize("name", ["", "a" * 200_000, "gpu\n\x1b[31m"])
def test_claim_that_says_it_is_one_of_no_possible_name_goes_by_its_own(name: str) -> None:
    claim = a_claim(a_request(), results=[a_result("gpu-0", milli="400")])
    claim["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": name}
    gpus = gpus_of(a_gpu("n1", 0))
    assert given_gpus(read(claim), gpus.nodes["n1"], gpus.names).keys() == {"a-gpu-x1"}


def test_all_that_a_gpu_gives_fits_on_it_whatever_its_driver_counts_in() -> None:
    gpus = gpus_of(a_gpu("n1", 0, milli=7, memory="1000001Ki"))
    results = [a_result("gpu-0", str(number), milli="1", memory="142857Ki") for number in range(6)]
    results.append(a_result("gpu-0", "rest", milli="1", memory="142859Ki"))
    claim = read(a_claim(*(a_request(str(number)) for number in range(7)), results=results))
    account = SharingNode(devices=gpus.devices("n1"))
    assert len(shares := given_gpus(claim, gpus.nodes["n1"], gpus.names)) == 7
    assert account.refusal(shares) == ""


def test_claims_on_a_node_are_those_that_share_devices_of_its_pools_until_they_give_them_back() -> None:
    inventory = an_inventory([a_gpu("n1", 0)])
    devices, result = inventory.stock.devices, a_result("gpu-0", milli="400")
    devices.put_claim("ns/a", read(a_claim(a_request(), results=[result])))
    assert devices.shared.claims_on("n1").keys() == {"ns/a"}
    assert devices.shared.claims_of("pod-a").keys() == {"ns/a"}
    devices.put_claim("ns/a", read(a_claim(a_request())))
    assert devices.shared.claims_on("n1") == {}
    devices.put_claim("ns/a", None)
    assert devices.shared.claims_of("pod-a") == {}

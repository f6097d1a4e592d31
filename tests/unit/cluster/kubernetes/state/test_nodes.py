"""Nodes become pools by one rule, and change only by what matters to a plan."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.trimmed import a_node_object
from voda.cluster.kubernetes.state.inventory import NodeStock
from voda.cluster.kubernetes.state.nodes import (
    MOST_GPUS,
    NONE_TAKEN,
    NodeDevices,
    PoolRule,
    as_node,
    pool_name,
    pool_of,
)
from voda.domain.gpus import Gpus
from voda.domain.node import Node
from voda.manifests import names

RULE = PoolRule()
CPUS = PoolRule(resource="cpu", default_pool="cpus")


def seen(rule: PoolRule = RULE, *, taken: Mapping[str, int] = NONE_TAKEN, **fields: Any) -> Node:
    node = as_node(a_node_object(**fields), rule, taken=taken)
    assert node is not None
    return node


def test_node_with_the_label_is_of_its_pool_with_its_allocatable_gpus() -> None:
    labels = {"vodascheduler/accelerator": "a100", "feature.node.kubernetes.io/cpu-hardware": "x" * 63}
    room = {"cpu": 4_000, "pods": 110_000}
    allocatable = {"cpu": "4", "pods": "110", "nvidia.com/gpu": "8"}
    expected = Node(name="gpu-1", pool="a100", gpus=Gpus(8), labels=labels, room=room)
    assert seen(labels=labels, allocatable=allocatable) == expected


def test_node_has_the_room_that_others_leave_of_each_resource_but_gpus() -> None:
    allocatable = {"cpu": "8", "memory": "1Gi", "pods": "10", "rdma/hca": "2", "nvidia.com/gpu": "8"}
    taken = {"cpu": 2_500, "memory": 2**31 * 1000, "pods": 3_000, "nvidia.com/gpu": 1_000, "other": 5}
    assert seen(allocatable=allocatable, taken=taken).room == {"cpu": 5_500, "pods": 7_000, "rdma/hca": 2_000}


def test_node_of_a_resource_that_is_given_as_devices_has_room_for_all_who_ask_for_it() -> None:
    devices = NodeDevices(extended_resources=("example.com/nic", "nvidia.com/gpu"))
    node = as_node(a_node_object(allocatable={"cpu": "1"}), RULE, devices=devices)
    assert node is not None
    assert node.room == {"cpu": 1_000, "example.com/nic": 2**63 - 1}


def test_node_that_says_very_much_fits_into_an_event() -> None:
    labels = {RULE.label: "a100"} | {f"a/{number}": "x" for number in range(5_000)}
    taints = [{"key": f"k{number}", "effect": "NoSchedule"} for number in range(5_000)]
    allocatable = {f"example.com/r{number}": "9E" for number in range(5_000)}
    node = seen(labels=labels, taints=taints, allocatable=allocatable)
    assert (len(node.labels), len(node.taints), len(node.room or ())) == (1_000, 100, 200)
    assert RULE.label in node.labels
    assert len(msgspec.json.encode(node)) < 500_000


@pytest.mark.parametrize("quantity", ["many", "-5", "", "1e99999", "٣", "9" * 300])
def test_quantity_of_a_broken_kubelet_gives_no_room_that_an_event_could_not_hold(quantity: str) -> None:
    room = seen(allocatable={"cpu": quantity, "pods": "1"}).room
    assert room is not None
    assert room.keys() <= {"cpu", "pods"}
    assert msgspec.json.decode(msgspec.json.encode(room)) == room


def test_node_without_gpus_is_of_the_pool_its_label_names() -> None:
    assert seen(allocatable={"cpu": "4"}).gpus == 0


@pytest.mark.parametrize(("default_pool", "pool"), [("", None), ("any", "any")])
def test_node_without_the_label_is_of_the_default_pool(default_pool: str, pool: str | None) -> None:
    assert pool_of(a_node_object(labels={}), PoolRule(default_pool=default_pool)) == pool


def test_node_without_label_and_gpus_is_none_of_ours() -> None:
    plain = a_node_object(labels={}, allocatable={"cpu": "4", "nvidia.com/gpu": "0"})
    assert as_node(plain, PoolRule(default_pool="any")) is None


def test_node_with_another_label_and_resource_is_found_by_a_rule_of_them() -> None:
    rule = PoolRule(label="amd.com/gpu.product", resource="amd.com/gpu")
    node = seen(rule, labels={"amd.com/gpu.product": "AMD_Instinct_MI300X"}, allocatable={"amd.com/gpu": "8"})
    assert (node.pool, node.gpus) == ("AMD_Instinct_MI300X", 8)


@pytest.mark.parametrize(
    ("value", "pool"),
    [("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"), ("1.5", "1-5"), ("Tesla_V100", "Tesla_V100"), ("", None)],
)
def test_pool_name_of_a_label_keeps_all_but_dots(value: str, pool: str | None) -> None:
    assert pool_name(value) == pool


def test_pool_of_two_labels_that_differ_in_dots_alone_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    stock = NodeStock(RULE, lambda _pod: None)
    for _ in range(2):
        stock.put("n1", a_node_object(labels={RULE.label: "1.5"}))
        stock.put("n2", a_node_object(labels={RULE.label: "1-5"}))
        stock.put("n3", a_node_object(labels={RULE.label: "a100"}))
    assert [record.getMessage() for record in caplog.records] == [
        "pool=1-5 is one pool of nodes with vodascheduler/accelerator: 1-5, 1.5; dots become dashes"
    ]


@given(st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True))
def test_pool_name_of_any_legal_label_is_one_that_manifests_may_name(value: str) -> None:
    pool = pool_name(value)
    assert pool is not None
    assert names.pool(pool, "pool") == pool


@pytest.mark.parametrize("value", ["..", "a b", "x" * 64, "a\n", "../../etc", "é"])
def test_pool_name_of_what_is_no_label_is_none(value: str) -> None:
    assert pool_name(value) is None


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_node_that_is_not_ready_has_nothing_to_hand_out(ready: str) -> None:
    node = seen(ready=ready)
    assert (node.is_ready, node.gpus, node.usable_gpus) == (False, 8, 0)


def test_node_that_never_reported_is_not_ready() -> None:
    bare = msgspec.structs.replace(a_node_object(), status=type(a_node_object().status)())
    node = as_node(bare, RULE)
    assert node is not None
    assert not node.is_ready


@pytest.mark.parametrize(
    ("fields", "is_schedulable", "is_draining"),
    [
        ({"is_cordoned": True}, False, False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, True, True),
        ({"taints": [{"key": "spot", "effect": "NoExecute"}]}, True, False),
        ({"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]}, True, False),
        ({"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}, False, False),
        ({"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}, True, False),
        ({"taints": [{"key": "slow", "effect": "PreferNoSchedule"}]}, True, False),
    ],
)
def test_node_that_is_cordoned_takes_no_new_workers_and_one_that_is_drained_loses_those_there(
    fields: dict[str, Any], is_schedulable: bool, is_draining: bool
) -> None:
    node = seen(**fields)
    assert (node.is_schedulable, node.is_draining) == (is_schedulable, is_draining)
    assert bool(node.usable_gpus) == (is_schedulable and not is_draining)


def test_taints_that_keep_workers_off_are_the_nodes_in_one_order_whatever_the_servers() -> None:
    spot, dedicated = {"key": "spot", "effect": "NoExecute"}, {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    others = [
        {"key": "slow", "effect": "PreferNoSchedule"},
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
    ]
    node = seen(taints=[spot, *others, dedicated])
    assert [taint.text for taint in node.taints] == ["dedicated=x:NoSchedule", "spot:NoExecute"]
    assert node.taints == seen(taints=[dedicated, spot]).taints


@pytest.mark.parametrize("key", ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"])
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_taint_of_the_node_controller_is_no_cordon_and_changes_nothing_beside_the_condition(
    key: str, effect: str
) -> None:
    assert seen(ready="False", taints=[{"key": key, "effect": effect}]) == seen(ready="False")


@pytest.mark.parametrize(
    ("foreign_milli", "foreign", "usable"), [(0, 0, 7), (910, 0, 7), (911, 1, 6), (7910, 7, 0), (20_000, 7, 0)]
)
def test_cpus_of_a_node_are_the_whole_ones_left_beside_others(foreign_milli: int, foreign: int, usable: int) -> None:
    node = seen(CPUS, allocatable={"cpu": "7910m"}, labels={}, taken={"cpu": foreign_milli})
    assert (node.pool, node.gpus, node.foreign_gpus, node.usable_gpus) == ("cpus", 7, foreign, usable)


@pytest.mark.parametrize(("offered", "gpus"), [("1e30", MOST_GPUS), ("-5", 0), ("many", 0)])
def test_gpus_of_a_broken_kubelet_stay_within_reason(offered: str, gpus: int) -> None:
    assert seen(allocatable={"nvidia.com/gpu": offered}).gpus == gpus


def test_node_after_a_heartbeat_is_the_same() -> None:
    heartbeat = a_node_object(annotations={"beat": "2"}, resourceVersion="9", generation=4)
    assert as_node(heartbeat, RULE) == as_node(a_node_object(), RULE)


def test_node_without_label_or_gpus_is_of_the_pool_of_the_workers_there() -> None:
    bare = a_node_object(labels={}, allocatable={"cpu": "4", "nvidia.com/gpu": "0"})
    assert pool_of(bare, PoolRule(default_pool="any"), of_workers="a100") == "a100"
    named = a_node_object(labels={"vodascheduler/accelerator": "v100"}, allocatable={})
    assert pool_of(named, RULE, of_workers="a100") == "v100"
    # Whoever takes the label away wants another pool, or none.
    assert pool_of(a_node_object(labels={}), PoolRule(default_pool="any"), of_workers="a100") == "any"


def test_node_whose_devices_are_not_published_is_of_the_pool_of_the_workers_there_though_it_has_gpus_too() -> None:
    rule = PoolRule(default_pool="any", device_classes=("gpu",), pool_attribute="productName")
    assert pool_of(a_node_object(labels={}), rule, of_workers="h100") == "h100"
    assert pool_of(a_node_object(labels={}), rule) == "any"

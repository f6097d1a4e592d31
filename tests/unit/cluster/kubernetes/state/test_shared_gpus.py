"""Shared GPUs by extended resources: the GPUs of nodes, and requests that are read as meant or refused."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.kube.trimmed import a_node_object
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.nodes import PoolRule, as_node
from voda.cluster.kubernetes.state.shared_gpus import ShareResources, gpus_of, share_requests
from voda.domain.errors import InvalidInput
from voda.domain.gpus import GpuDevice, GpuRequest, Gpus

CORE, MEMORY = "elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"
ALIAS = "elasticgpu.com/gpu-core"


def a_pod(
    *requests: Mapping[str, Any], init: Mapping[str, Any] | None = None, limits: Mapping[str, Any] | None = None
) -> Pod:
    containers = [
        {"name": f"c{number}", "resources": {"requests": each, "limits": {**each, **(limits or {})}}}
        for number, each in enumerate(requests)
    ]
    init_containers = [] if init is None else [{"name": "setup", "resources": {"limits": init}}]
    spec = {"containers": containers, "initContainers": init_containers}
    return msgspec.convert({"metadata": {"name": "p", "namespace": "ml"}, "spec": spec}, Pod)


def refusal(pod: Pod) -> str:
    with pytest.raises(InvalidInput) as refused:
        share_requests(pod)
    return str(refused.value)


def test_container_when_it_asks_for_less_than_a_gpu_has_a_share() -> None:
    assert share_requests(a_pod({CORE: "25", MEMORY: "4096"})) == {"c0": GpuRequest(milli=250, memory_mib=4096)}
    assert share_requests(a_pod({MEMORY: 512})) == {"c0": GpuRequest(memory_mib=512)}


def test_container_when_it_asks_for_whole_gpus_has_them_with_their_memory() -> None:
    assert share_requests(a_pod({CORE: "200", MEMORY: "1"})) == {"c0": GpuRequest(devices=Gpus(2))}


def test_containers_when_some_ask_for_nothing_are_left_out() -> None:
    pod = a_pod({}, {CORE: "80"}, {"cpu": "1"}, {CORE: "80"}, {CORE: "0"})
    assert share_requests(pod) == {"c1": GpuRequest(milli=800), "c3": GpuRequest(milli=800)}


def test_request_when_it_uses_the_other_name_means_the_same() -> None:
    assert share_requests(a_pod({ALIAS: "30"})) == share_requests(a_pod({CORE: "30"}))


def test_request_when_the_resource_is_unknown_is_none() -> None:
    assert share_requests(a_pod({"elasticgpu.org/gpu-core": "30"})) == {}


def test_request_when_resources_have_other_names_is_read_by_them() -> None:
    names = ShareResources(core=("example.com/core",), memory=())
    assert share_requests(a_pod({"example.com/core": "30", CORE: "50"}), names) == {"c0": GpuRequest(milli=300)}


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (a_pod({CORE: "150"}), "container c0: gpu-core is 150, expected less than 100 or a multiple of it"),
        (
            a_pod({CORE: "30", ALIAS: "30"}),
            f"container c0: it asks for {CORE} and for {ALIAS}, expected one of them: they are the same resource",
        ),
        (
            a_pod({CORE: "30"}, limits={CORE: "40"}),
            f"container c0: {CORE}: its request is 30 and its limit 40, expected the same",
        ),
        (a_pod({CORE: "500m"}), f"container c0: {CORE} is 500m, expected a whole number from 0"),
        (a_pod({CORE: "-30"}), f"container c0: {CORE} is -30, expected a whole number from 0"),
        (a_pod({CORE: "many"}), "container c0: expected a Kubernetes quantity such as 500m, 2 or 16Gi, got 'many'"),
        (
            a_pod({}, init={CORE: "30"}),
            f"init container setup asks for {CORE}, expected containers alone to ask: a GPU is kept for a container as"
            " long as the pod lives",
        ),
    ],
)
def test_request_when_it_cannot_be_had_is_refused_in_a_sentence(pod: Pod, reason: str) -> None:
    assert refusal(pod) == f"pod ml/p: {reason}"


def test_node_when_it_offers_core_has_gpus_of_equal_memory() -> None:
    node = a_node_object(allocatable={CORE: "250", MEMORY: "32000"})
    assert gpus_of(node) == (GpuDevice(memory_mib=16_000),) * 2
    assert gpus_of(a_node_object(allocatable={ALIAS: "100"})) == (GpuDevice(),)


def test_node_when_it_offers_both_names_has_each_gpu_once() -> None:
    assert len(gpus_of(a_node_object(allocatable={CORE: "400", ALIAS: "400"}))) == 4


@pytest.mark.parametrize("core", ["99", "-100", "many", ""])
def test_node_when_it_offers_no_whole_gpu_has_none(core: str) -> None:
    assert gpus_of(a_node_object(allocatable={CORE: core})) == ()


def test_node_when_memory_is_not_shared_has_gpus_without_it() -> None:
    node = a_node_object(allocatable={CORE: "200", MEMORY: "32000"})
    assert gpus_of(node, ShareResources(memory=())) == (GpuDevice(),) * 2


def test_node_when_its_kubelet_is_broken_has_gpus_within_reason() -> None:
    assert len(gpus_of(a_node_object(allocatable={CORE: "9E"}))) == 1_024


def test_node_when_it_has_gpus_and_no_label_is_of_the_default_pool() -> None:
    node = as_node(a_node_object(labels={}, allocatable={CORE: "200"}), PoolRule(default_pool="any"))
    assert node is not None
    assert (node.pool, node.gpus, len(node.devices)) == ("any", 0, 2)


def test_node_when_it_shares_no_gpus_is_as_before() -> None:
    node = as_node(a_node_object(), PoolRule())
    assert node is not None
    assert b"devices" not in msgspec.json.encode(node)

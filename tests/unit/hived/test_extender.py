"""kube-scheduler's three calls over a book of cells, and a restart from the annotations of bound pods."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.unit.cells.book_check import assert_consistent
from tests.unit.cells.clusters import a_book, a_cluster
from tests.unit.hived.pods import a_group, a_pod
from voda.cells.book import CellBook
from voda.cells.health import set_node_bad
from voda.domain.errors import InvalidInput, NotFound, WrongState
from voda.extender.wire import ExtenderBindingArgs, ExtenderFilterResult
from voda.hived.bind_info import BIND_INFO, ISOLATION, read_bound_pod
from voda.hived.extender import HivedExtender
from voda.hived.pod_request import HivedPod

NODES = ("r0n0", "r0n1")


def a_cluster_book() -> CellBook:
    return a_book(a_cluster(racks=1, quotas={"a": {"rack.node": 1}, "b": {"rack.node": 1}}))


def filtered(extender: HivedExtender, pod: HivedPod, nodes: tuple[str, ...] = NODES) -> ExtenderFilterResult:
    return extender.filter(pod, nodes)


def preempted(extender: HivedExtender, pod: HivedPod) -> Any:
    result = extender.preempt(pod, NODES)
    return msgspec.json.decode(msgspec.json.encode(result))["NodeNameToMetaVictims"]


def bound(extender: HivedExtender, pod: HivedPod) -> HivedPod:
    """Filter and bind a pod; return it with the annotations that it is bound with."""
    (node,) = filtered(extender, pod).node_names
    arguments = ExtenderBindingArgs(pod.metadata.name, "team", pod.metadata.uid, node)
    annotations = extender.bind(arguments)
    assert annotations == extender.bind(arguments)
    return replace(pod, metadata=replace(pod.metadata, annotations={**(pod.metadata.annotations or {}), **annotations}))


def test_filter_when_a_gang_has_room_gives_each_pod_its_node_and_the_same_again() -> None:
    extender = HivedExtender("default", a_cluster_book())
    pods = [a_pod(f"p{n}", leafCellNumber=2, affinityGroup=a_group("g", (2, 2))) for n in range(2)]
    assert [filtered(extender, pod).node_names for pod in pods] == [("r0n0",), ("r0n0",)]
    assert filtered(extender, pods[1]) == ExtenderFilterResult(node_names=("r0n0",))
    assert [bound(extender, pod).annotation(ISOLATION) for pod in pods] == ["0,1", "2,3"]
    with pytest.raises(InvalidInput, match="all of them have a place"):
        filtered(extender, a_pod("p2", leafCellNumber=2, affinityGroup=a_group("g", (2, 2))))


def test_filter_when_the_quota_is_used_says_why_for_every_node_until_a_pod_is_gone() -> None:
    extender = HivedExtender("default", a_cluster_book())
    first, second = a_pod("first", leafCellNumber=4), a_pod("second", leafCellNumber=2)
    bound(extender, first)
    refused = filtered(extender, second)
    assert refused.node_names == ()
    assert set(refused.failed_and_unresolvable_nodes) == set(NODES)
    assert "too few cells of the virtual cluster's quota are free" in refused.failed_and_unresolvable_nodes["r0n0"]
    extender.remove("first")
    assert filtered(extender, second).node_names
    assert_consistent(extender.book)


def test_filter_when_kube_scheduler_leaves_the_pods_node_out_keeps_its_cells() -> None:
    extender = HivedExtender("default", a_cluster_book())
    pod = a_pod("p", leafCellNumber=4)
    (node,) = filtered(extender, pod).node_names
    (other,) = set(NODES) - {node}
    refused = filtered(extender, pod, (other,))
    assert refused.failed_and_unresolvable_nodes == {
        other: f"the pod has its cells on node {node}, which kube-scheduler does not offer"
    }
    assert filtered(extender, pod).node_names == (node,)


def test_preempt_when_opportunistic_pods_are_in_the_way_names_them_and_reserves_their_cells() -> None:
    extender = HivedExtender("default", a_cluster_book())
    group = a_group("o", (2, 4))
    for name in ("o0", "o1"):
        bound(extender, a_pod(name, virtualCluster="b", priority=-1, leafCellNumber=4, affinityGroup=group))
    pod = a_pod("g", leafCellNumber=4)
    assert "these gangs have left its cells: o" in filtered(extender, pod).failed_nodes["r0n0"]
    victims = {
        "r0n0": {"Pods": [{"UID": "o0"}], "NumPDBViolations": 0},
        "r0n1": {"Pods": [{"UID": "o1"}], "NumPDBViolations": 0},
    }
    assert preempted(extender, pod) == victims
    assert preempted(extender, pod) == victims
    for uid in ("o0", "o1"):
        extender.remove(uid)
    assert preempted(extender, pod) == {}
    assert filtered(extender, pod).node_names
    assert_consistent(extender.book)


def test_preempt_when_the_pod_is_gone_gives_the_cells_back() -> None:
    extender = HivedExtender("default", a_cluster_book())
    bound(extender, a_pod("low", leafCellNumber=4))
    high = a_pod("high", leafCellNumber=4, priority=1)
    assert preempted(extender, high)
    extender.remove("high")
    assert list(extender.book.gangs) == ["team/low"]
    assert_consistent(extender.book)


def test_bind_when_the_pod_has_no_cells_or_others_is_refused() -> None:
    extender = HivedExtender("default", a_cluster_book())
    with pytest.raises(NotFound, match=r"pod team/p .* has no cells"):
        extender.bind(ExtenderBindingArgs("p", "team", "p", "r0n0"))
    filtered(extender, a_pod("p"))
    with pytest.raises(WrongState, match="has its cells on node r0n0, and cannot be bound to r0n1"):
        extender.bind(ExtenderBindingArgs("p", "team", "p", "r0n1"))


def test_filter_when_a_pod_names_another_virtual_clusters_gang_is_refused() -> None:
    extender = HivedExtender("default", a_cluster_book())
    filtered(extender, a_pod("p", affinityGroup=a_group("g", (2, 1))))
    with pytest.raises(InvalidInput, match="gang g is of virtual cluster a, and a pod of b cannot join it"):
        filtered(extender, a_pod("q", virtualCluster="b", affinityGroup=a_group("g", (2, 1))))


def test_restart_when_pods_are_bound_restores_every_place_in_any_order() -> None:
    extender = HivedExtender("default", a_cluster_book())
    group = a_group("g", (1, 2), (2, 1))
    pods = [a_pod(f"p{n}", leafCellNumber=leafs, affinityGroup=group) for n, leafs in enumerate((2, 1, 1))]
    there = [bound(extender, pod) for pod in (*pods, a_pod("o", virtualCluster="b", priority=-1))]
    again = HivedExtender("default", a_cluster_book())
    set_node_bad(again.book, "r0n0")
    for pod in reversed(there):
        again.add_bound(pod)
        again.add_bound(pod)
    assert again.places == extender.places
    assert {name: gang.leafs for name, gang in again.book.gangs.items()} == {
        name: gang.leafs for name, gang in extender.book.gangs.items()
    }
    assert_consistent(again.book)


def test_bound_pod_when_written_by_an_older_hived_is_read() -> None:
    text = """
node: r0n0
gpuIsolation: [2]
cellChain: rack
affinityGroupBindInfo:
- podPlacements:
  - {physicalNode: r0n0, physicalGpuIndices: [2], preassignedCellTypes: [node]}
"""
    pod = read_bound_pod(a_pod("p", annotations={BIND_INFO: text}))
    assert pod is not None
    assert (pod.placement[pod.slot].node, pod.placement[pod.slot].devices, pod.placement[0].quota) == (
        "r0n0",
        (2,),
        "node",
    )
    assert read_bound_pod(a_pod("p")) is None
    with pytest.raises(InvalidInput, match="devices 3 of node r0n0 are no place of its gang"):
        read_bound_pod(a_pod("p", annotations={BIND_INFO: text.replace("gpuIsolation: [2]", "gpuIsolation: [3]")}))

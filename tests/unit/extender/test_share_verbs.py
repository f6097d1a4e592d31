"""The extender's answers: the best nodes alone, where there are more than kube-scheduler is to score."""

from collections.abc import Mapping

import pytest

from tests.sharing import share
from voda.domain.gpus import ContainerGpus, GpuDevice
from voda.domain.shares import PodShares, SharingNode
from voda.extender.share_verbs import ExtenderPod, ShareVerbs
from voda.sharing.rating.gpu_chooser import HIGHEST, GpuChooser
from voda.sharing.rating.raters import RATERS

GPU = GpuDevice(memory_mib=16_000)


def accounts(used: Mapping[str, int]) -> dict[str, SharingNode]:
    """Return nodes of one GPU, of which one pod has so much."""
    return {name: SharingNode(devices=(GPU,), pods=pods_of(name, milli)) for name, milli in used.items()}


def pods_of(node: str, milli: int) -> dict[str, PodShares]:
    if not milli:
        return {}
    containers = {"main": ContainerGpus(gpus=(0,), request=share(milli))}
    return {f"on-{node}": PodShares(pod=f"ns/on-{node}", containers=containers, assigned_at=0.0)}


def verbs(used: Mapping[str, int], closed: Mapping[str, str] | None = None, *, most: int) -> ShareVerbs:
    return ShareVerbs(GpuChooser(RATERS["binpack"]), accounts(used), closed or {}, most=most)


def a_pod(milli: int = 300, *, has_gpus_on: str = "") -> ExtenderPod:
    return ExtenderPod(uid="u", key="ns/u", requests={"main": share(milli)}, has_gpus_on=has_gpus_on)


USED = {"a": 0, "b": 500, "full": 900, "c": 300, "d": 100}


def test_filter_when_more_nodes_fit_than_are_to_be_scored_names_the_best_and_refuses_none_that_fits() -> None:
    found = verbs(USED, most=2).filter(a_pod(), tuple(USED))
    assert found.node_names == ("b", "c")
    assert found.failed_nodes.keys() == {"full"}
    assert not found.failed_and_unresolvable_nodes


@pytest.mark.parametrize("most", [0, 4])
def test_filter_when_no_more_nodes_fit_names_them_all_in_the_order_of_the_question(most: int) -> None:
    assert verbs(USED, most=most).filter(a_pod(), tuple(USED)).node_names == ("a", "b", "c", "d")


def test_priorities_of_the_nodes_that_filter_named_prefer_the_best_of_them() -> None:
    asked = verbs(USED, most=3)
    names = asked.filter(a_pod(), tuple(USED)).node_names
    found = {each.host: each.score for each in asked.prioritize(a_pod(), names)}
    assert found["b"] == HIGHEST
    assert found["c"] > found["d"]


def test_priorities_of_any_node_are_answered_also_where_filter_left_it_out() -> None:
    asked = verbs(USED, most=1)
    assert asked.filter(a_pod(), tuple(USED)).node_names == ("b",)
    assert [each.host for each in asked.prioritize(a_pod(), ("a", "b", "c"))] == ["a", "b", "c"]


def test_node_where_the_pod_has_its_gpus_already_is_among_the_best() -> None:
    found = verbs(USED, most=1).filter(a_pod(has_gpus_on="full"), tuple(USED))
    assert found.node_names == ("b", "full")
    assert not found.failed_nodes


def test_node_that_is_closed_is_refused_and_takes_no_other_ones_place() -> None:
    found = verbs(USED, {"b": "busy", "elsewhere": "busy"}, most=2).filter(a_pod(), tuple(USED))
    assert found.node_names == ("c", "d")
    assert found.failed_nodes == {"b": "busy", "full": "too little is left of the node's GPUs for main (gpu-core 30)"}

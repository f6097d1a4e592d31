"""A worker is refused by a node in one sentence that says what is missing. Whether kube-scheduler would refuse it
too, tests/integration/kubernetes/test_fit.py asks that scheduler.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.kube.trimmed import a_node_object, a_pod
from voda.cluster.kubernetes.binding.fit import Refusal, fits_together, unfit
from voda.cluster.kubernetes.objects import NodeObject
from voda.cluster.kubernetes.quantities import NodeLoad

ZONE_EXISTS = {"key": "zone", "operator": "Exists"}
RACK_EXISTS = {"key": "rack", "operator": "Exists"}
NODE = a_node_object("gpu-3", labels={"zone": "b", "size": "5"})


class Stock(Struct):
    nodes: Mapping[str, NodeObject]
    loads: Mapping[str, NodeLoad]


def said(node: NodeObject = NODE, *, taken: Mapping[str, str] | None = None, **pod: Any) -> str:
    load = NodeLoad()
    load.add("others", a_pod("others", requests=taken or {}))
    return unfit(a_pod("digits-worker-1", **pod), node, load.free(node))


def affinity(*terms: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"nodeAffinity": required}


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_unfit_of_a_worker_that_fits_says_nothing() -> None:
    assert said(requests={"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "8"}) == ""


@pytest.mark.parametrize(
    ("taken", "requests", "sentence"),
    [
        ({"cpu": "30"}, {"cpu": "4"}, "node gpu-3 has 2 CPUs free, worker digits-worker-1 needs 4 CPUs"),
        (
            {"memory": "250Gi"},
            {"memory": "16Gi"},
            "node gpu-3 has 6 GiB of memory free, worker digits-worker-1 needs 16 GiB of memory",
        ),
        (
            {"nvidia.com/gpu": "8"},
            {"nvidia.com/gpu": "1"},
            "node gpu-3 has 0 nvidia.com/gpu free, worker digits-worker-1 needs 1 nvidia.com/gpu",
        ),
        (
            {},
            {"rdma/hca": "1"},
            "node gpu-3 has 0 rdma/hca free, worker digits-worker-1 needs 1 rdma/hca",
        ),
        (
            {"cpu": "32", "nvidia.com/gpu": "8"},
            {"nvidia.com/gpu": "1", "cpu": "500m"},
            "node gpu-3 has 0 CPUs free, worker digits-worker-1 needs 0.5 CPUs",
        ),
    ],
)
def test_unfit_of_a_short_resource_says_what_is_free_and_needed(
    taken: dict[str, str], requests: dict[str, str], sentence: str
) -> None:
    assert said(taken=taken, requests=requests) == sentence


def test_unfit_of_a_full_node_says_that_it_runs_no_more_pods() -> None:
    full = a_node_object("gpu-3", allocatable={"cpu": "32", "pods": "1"})
    assert said(full) == "node gpu-3 has 0 pods free, worker digits-worker-1 needs 1 pod"


def test_unfit_of_an_overcommitted_node_minds_only_what_is_asked_for() -> None:
    assert said(taken={"cpu": "40"}, requests={"nvidia.com/gpu": "1", "cpu": "0"}) == ""


def test_unfit_of_a_cordoned_node_says_so_unless_the_worker_tolerates_it() -> None:
    cordoned = replace(NODE, spec=replace(NODE.spec, unschedulable=True))
    assert said(cordoned) == "node gpu-3 is cordoned"
    assert said(cordoned, tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]) == ""


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "team", "value": "ml", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "ml"}, True),
        ({"key": "team", "operator": "Equal", "value": "ml"}, True),
        ({"key": "team", "operator": "", "value": "ml"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "value": "web"}, False),
        ({"key": "team", "value": "ml", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "team", "operator": "Gt", "value": "1"}, False),
    ],
)
def test_unfit_of_a_tainted_node_depends_on_the_tolerations(toleration: dict[str, str], fits: bool) -> None:
    tainted = a_node_object("gpu-3", taints=[{"key": "team", "value": "ml", "effect": "NoSchedule"}])
    sentence = "node gpu-3 has the taint team=ml:NoSchedule, which worker digits-worker-1 does not tolerate"
    assert said(tainted, tolerations=[toleration]) == ("" if fits else sentence)


def test_unfit_of_a_node_that_would_rather_not_says_nothing() -> None:
    assert said(a_node_object("gpu-3", taints=[{"key": "slow", "effect": "PreferNoSchedule"}])) == ""


def test_unfit_of_a_node_without_a_selected_label_names_it() -> None:
    sentence = "node gpu-3 lacks the label zone=a, which worker digits-worker-1 selects its node by"
    assert said(nodeSelector={"zone": "a"}) == sentence
    assert said(nodeSelector={"zone": "b"}) == ""


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ([term("zone", "In", "a", "b")], True),
        ([term("zone", "In", "a")], False),
        ([term("zone", "NotIn", "a")], True),
        ([term("rack", "NotIn", "a")], True),
        ([term("zone", "NotIn", "b")], False),
        ([term("zone", "Exists")], True),
        ([term("rack", "Exists")], False),
        ([term("rack", "DoesNotExist")], True),
        ([term("zone", "DoesNotExist")], False),
        ([term("size", "Gt", "4")], True),
        ([term("size", "Gt", "5")], False),
        ([term("size", "Lt", "6")], True),
        ([term("zone", "Gt", "0")], False),
        ([term("rack", "Lt", "9")], False),
        ([term("size", "Gt", "1_0")], False),
        ([term("size", "Gt", "-99999999999999999999")], False),
        ([term("size", "Gt", "-1")], False),
        ([term("zone", "NotIn", "-1")], False),
        ([term("size", "Near", "5")], False),
        ([term("zone", "In", "a"), term("size", "Exists")], True),
        ([{"matchExpressions": [ZONE_EXISTS, RACK_EXISTS]}], False),
        ([{"matchExpressions": [ZONE_EXISTS, ZONE_EXISTS]}], True),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-3"]}]}], True),
        ([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["gpu-3"]}]}], False),
        ([{"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["gpu-3"]}]}], False),
        ([{}], False),
        ([], False),
    ],
)
def test_unfit_of_required_node_affinity_takes_terms_by_or_and_expressions_by_and(terms: list[Any], fits: bool) -> None:
    assert (said(affinity=affinity(*terms)) == "") == fits


def test_unfit_of_unmet_affinity_says_what_is_required() -> None:
    wish = affinity(term("zone", "In", "a", "c"), term("rack", "Exists"))
    expected = "which requires zone In a, c, or rack Exists"
    assert said(affinity=wish) == f"node gpu-3 does not meet the node affinity of worker digits-worker-1, {expected}"


@pytest.mark.parametrize("wish", [{"nodeAffinity": None}, {"podAffinity": {"x": 1}}, {"nodeAffinity": {}}])
def test_unfit_of_an_affinity_without_a_requirement_of_nodes_says_nothing(wish: Any) -> None:
    assert said(affinity=wish) == ""


def test_unfit_of_hostile_affinity_is_a_short_sentence() -> None:
    assert "what cannot be read" in said(affinity={"nodeAffinity": 7})
    assert len(said(affinity=affinity(*(term("zone", "In", "x" * 63) for _ in range(100))))) <= 300


def test_unfit_of_a_gated_worker_waits() -> None:
    sentence = "worker digits-worker-1 is not to be placed yet: scheduling gates example.com/quota are closed"
    assert said(schedulingGates=[{"name": "example.com/quota"}]) == sentence


def test_unfit_of_quantities_that_cannot_be_read_says_whose() -> None:
    assert said(requests={"cpu": "many"}).startswith("pod default/digits-worker-1: expected a Kubernetes quantity")


def test_fits_together_counts_what_workers_before_take() -> None:
    load = NodeLoad()
    load.add("foreign", a_pod("foreign", requests={"cpu": "20"}))
    stock = Stock({"gpu-1": a_node_object("gpu-1"), "gpu-2": a_node_object("gpu-2")}, {"gpu-1": load})
    workers = [a_pod(f"j-worker-{index}", requests={"cpu": "5", "nvidia.com/gpu": "1"}) for index in range(4)]
    assert fits_together(zip(workers, ("gpu-1", "gpu-1", "gpu-2", "gpu-2"), strict=True), stock) is None
    assert fits_together(zip(workers, ("gpu-1", "gpu-2", "gpu-1", "gpu-1"), strict=True), stock) == Refusal(
        pod="default/j-worker-3",
        node="gpu-1",
        reason="node gpu-1 has 2 CPUs free beside 2 others of its job, worker j-worker-3 needs 5 CPUs",
        resource="cpu",
    )


def test_fits_together_of_a_node_that_went_says_so() -> None:
    refusal = fits_together([(a_pod("j-worker-0"), "gpu-9")], Stock({}, {}))
    assert refusal == Refusal(pod="default/j-worker-0", node="gpu-9", reason="node gpu-9 is not there any more")


def test_fits_together_of_a_node_that_cannot_be_read_says_so() -> None:
    refusal = fits_together(
        [(a_pod(), "gpu-1")], Stock({"gpu-1": a_node_object("gpu-1", allocatable={"cpu": "?"})}, {})
    )
    assert refusal is not None
    assert refusal.reason.startswith("node gpu-1: expected a Kubernetes quantity")

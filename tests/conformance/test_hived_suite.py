"""What HiveD's own test suite asserts of its design configuration, beyond the recorded vectors.

Facts read off microsoft/hivedscheduler (MIT), pkg/algorithm/hived_algorithm_test.go: which pod lands where, which gang
loses its guarantee, and which call must be refused.
"""

import copy
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pytest

from tests.conformance.hived.driver import Driver, driver
from tests.conformance.hived.vectors import Answer, Operation
from tests.conformance.public_vectors import public_vectors
from voda.domain.errors import InvalidInput

_ALL_16: Final = list(range(16))
_Pod = tuple[str, int, str, int, str, str, Sequence[tuple[int, int]], bool]
"""(virtual cluster, priority, leaf type, leafs, pin, gang, members, whether it may be downgraded)."""
_V100: Final = "DGX2-V100"
_PIN: Final = "VC1-YQW-DGX2"
PODS: Final[dict[str, _Pod]] = {
    "pod1": ("VC1", 0, _V100, 1, "", "group1", [(1, 1)], True),
    "pod2": ("VC1", 1, _V100, 1, "", "group2", [(1, 1)], True),
    "pod3": ("VC1", 2, _V100, 8, "", "group3", [(1, 8)], True),
    "pod4": ("VC1", -1, _V100, 1, "", "group4", [(1, 1)], True),
    "pod5": ("VC1", 1, _V100, 16, _PIN, "group5", [(2, 16)], True),
    "pod6": ("VC1", 1, _V100, 16, _PIN, "group5", [(2, 16)], True),
    "pod7": ("VC2", 1, "DGX1-P100", 8, "", "group7", [(3, 8)], True),
    "pod8": ("VC2", 1, "", 7, "", "group9", [(1, 7), (1, 5)], True),
    "pod9": ("VC2", 1, "", 5, "", "group9", [(1, 7), (1, 5)], True),
    "pod10": ("VC2", 1, _V100, 1, "", "group6", [(1, 1)], True),
    "pod11": ("VC2", 1, "DGX1-P100", 2, "", "group8", [(1, 8)], True),
    "pod13": ("surprise!", 1, "DGX1-P100", 1, "", "group10", [(1, 1)], True),
    "pod14": ("VC2", 1, "DGX1-P100", 1, "surprise!", "group10", [(1, 1)], True),
    "pod15": ("VC2", 1001, "DGX1-P100", 1, "", "group10", [(1, 1)], True),
    "pod16": ("VC1", 2, _V100, 16, _PIN, "group11", [(2, 16)], True),
    "pod17": ("VC1", 2, _V100, 16, _PIN, "group11", [(2, 16)], True),
    "pod18": ("VC1", 1, _V100, 16, "", "group12", [(2, 16)], True),
    "pod19": ("VC1", 1, _V100, 16, "", "group12", [(2, 16)], True),
    "pod20": ("VC1", 1, _V100, 16, "", "group13", [(2, 16)], True),
    "pod21": ("VC1", 1, _V100, 16, "", "group13", [(2, 16)], True),
    "pod22": ("VC1", -1, _V100, 16, "", "group14", [(2, 16)], True),
    "pod23": ("VC1", -1, _V100, 16, "", "group14", [(2, 16)], True),
    "pod24": ("VC2", 0, "CT1", 2, "", "group15", [(1, 2)], True),
    "pod25": ("VC2", 1, "CT1", 2, "", "group16", [(1, 2)], False),
    "pod27": ("VC1", 1, _V100, 16, _PIN, "group18", [(2, 16)], False),
    "pod33": ("VC1", 3, _V100, 16, _PIN, "group24", [(2, 16)], True),
    "pod36": ("VC1", -1, "", 1, "", "group1", [(1, 1)], True),
    "pod37": ("VC1", 1, _V100, 1, _PIN, "group1", [(1, 1)], True),
    "pod38": ("VC1", 1, _V100, 1, _PIN, "group2", [(1, 1)], True),
    "pod39": ("VC1", 1, _V100, 16, "", "group27", [(2, 16)], True),
    "pod40": ("VC1", 1, _V100, 16, "", "group28", [(1, 16)], True),
    "pod41": ("VC1", 2, _V100, 16, "", "group29", [(4, 16)], True),
}
BOUND: Final[dict[str, tuple[str, list[int]]]] = {
    "pod1": ("0.0.1.0", [0]),
    "pod2": ("0.0.1.0", [1]),
    "pod3": ("0.0.1.0", [8, 9, 10, 11, 12, 13, 14, 15]),
    "pod4": ("0.0.5.0", [0]),
    "pod5": ("0.0.3.0", _ALL_16),
    "pod6": ("0.0.3.1", _ALL_16),
    "pod8": ("1.0.0.0", [1, 3, 4, 7, 0, 2, 6]),
    "pod9": ("1.0.0.2", [0, 1, 2, 3, 4]),
    "pod18": ("0.0.3.2", _ALL_16),
    "pod19": ("0.0.3.3", _ALL_16),
    "pod20": ("0.0.4.0", _ALL_16),
    "pod21": ("0.0.4.1", _ALL_16),
    "pod22": ("0.0.4.2", _ALL_16),
    "pod23": ("0.0.4.3", _ALL_16),
    "pod24": ("0.0.0.1", [0, 1]),
    "pod25": ("0.0.0.0", [0, 1]),
    "pod36": ("0.0.1.0", [0]),
    "pod37": ("0.0.3.0", [0]),
    "pod38": ("0.0.3.1", [0]),
    "pod39": ("0.0.3.2", _ALL_16),
    "pod40": ("0.0.4.3", _ALL_16),
}
NORMAL: Final = [f"pod{number}" for number in (*range(1, 10), *range(16, 26))]


def test_design_cluster_when_the_suite_fills_it_places_every_pod_where_hived_does() -> None:
    driven = _design()
    answers = {pod: _schedule_and_start(driven, pod) for pod in NORMAL}
    assert {pod: (a["node"], a["leafCells"]) for pod, a in answers.items() if a["kind"] == "bind"} == {
        pod: place for pod, place in BOUND.items() if pod in NORMAL
    }
    assert answers["pod7"] == {"kind": "wait", "reason": "insufficient_capacity_in_vc"}
    assert answers["pod16"] == answers["pod17"] == {"kind": "preempt", "victims": ["pod5", "pod6"]}


def test_design_cluster_when_everything_ended_is_as_it_was_loaded() -> None:
    driven, fresh = _design(), _design().book
    preempting = [pod for pod in NORMAL if _schedule_and_start(driven, pod)["kind"] == "preempt"]
    for pod in reversed(list(driven.running)):
        driven.perform(Operation(op="delete_allocated", expect={}, pod=pod))
    for pod in preempting:
        driven.perform(Operation(op="delete_unallocated", expect={}, pod=pod))
    book = driven.book
    assert book.gangs == {}
    assert (book.used, book.guaranteed, book.opportunistic) == (fresh.used, fresh.guaranteed, fresh.opportunistic)
    for name, books in book.free.items():
        before = fresh.free[name]
        assert [sorted(cells) for cells in books.lists] == [sorted(cells) for cells in before.lists]
        assert (books.left, books.owed, books.split) == (before.left, before.owed, before.split)


@pytest.mark.parametrize("pod", ["pod10", "pod11", "pod13", "pod14", "pod15"])
def test_request_when_the_suite_expects_a_user_error_is_refused(pod: str) -> None:
    assert _schedule(_design(), pod)["kind"] == "error"


def test_suggested_nodes_when_given_are_kept_to() -> None:
    driven = _design()
    assert _place(_schedule(driven, "pod36", ["0.0.1.0"])) == BOUND["pod36"]
    assert _place(_schedule_and_start(driven, "pod37", ["0.0.3.0"])) == BOUND["pod37"]
    assert _place(_schedule(driven, "pod38", ["0.0.3.1"])) == BOUND["pod38"]


def test_preemption_when_its_nodes_are_suggested_no_longer_is_withdrawn() -> None:
    driven = _design()
    most = [node for node in _nodes(driven) if node != "0.0.3.1"]
    assert _schedule(driven, "pod27", most)["kind"] == "wait"
    assert _schedule_and_start(driven, "pod27", [*most, "0.0.3.1"])["kind"] == "bind"
    _schedule(driven, "pod33", phase="filtering")
    assert "group24" not in driven.book.gangs
    _schedule(driven, "pod33", most)
    assert "group24" not in driven.book.gangs
    _schedule(driven, "pod33", [*most, "0.0.3.1"])
    assert driven.book.gangs["group24"].is_waiting
    _schedule(driven, "pod33", most)
    assert "group24" not in driven.book.gangs
    assert driven.book.state(driven.book.gangs["group18"]) == "Allocated"


def test_mapping_when_the_first_cells_are_unusable_goes_back_and_changes_no_guarantee() -> None:
    design = _document()
    design["virtualClusters"]["VC1"]["virtualCells"][0]["cellNumber"] = 0
    design["virtualClusters"]["VC1"]["virtualCells"][3]["cellNumber"] = 3
    driven = driver({"design": design}, "design", nodes_start_bad=False)
    assert _place(_schedule_and_start(driven, "pod39", ["0.0.3.2", "0.0.3.3"])) == BOUND["pod39"]
    assert _place(_schedule_and_start(driven, "pod40", ["0.0.4.3"])) == BOUND["pod40"]
    assert _schedule(driven, "pod41", ["0.0.3.2", "0.0.3.3", "0.0.4.3"])["kind"] == "wait"
    assert not any(driven.book.gangs[name].downgraded_by for name in ("group27", "group28"))


def test_reconfiguration_when_cells_shrink_takes_guarantees_of_those_that_no_longer_fit() -> None:
    driven = _design()
    for pod in NORMAL:
        _schedule_and_start(driven, pod)
    driven.configs = {"new": _reconfigured(_document())}
    driven.perform(Operation(op="reconfigure", expect={}, config="new"))
    gangs = driven.book.gangs
    assert {name for name, gang in gangs.items() if gang.downgraded_by} == {"group9", "group13", "group15"}
    for pod in reversed(list(driven.running)):
        driven.perform(Operation(op="delete_allocated", expect={}, pod=pod))
    assert gangs == {}


def test_quotas_when_the_suite_asks_for_too_many_are_refused() -> None:
    design = _document()
    cells = design["virtualClusters"]["VC1"]["virtualCells"]
    cells[0]["cellType"] = "CT1-NODE"
    cells[1] |= {"cellType": "CT1-NODE.CT1", "cellNumber": 2}
    with pytest.raises(InvalidInput, match="cells of type CT1"):
        driver({"design": design}, "design", nodes_start_bad=False)


def _reconfigured(design: Any) -> Any:
    """Return the configuration with a shorter chain, a machine of another name, less quota, and a cell in pieces."""
    physical = design["physicalCluster"]
    physical["cellTypes"][_V100 + "-NODE"] = {
        "childCellType": _V100,
        "childCellNumber": 16,
        "isNodeLevel": True,
    }
    cells = physical["physicalCells"]
    cells[7]["cellChildren"][0]["cellChildren"][0]["cellAddress"] = "0.0.3.100"
    design["virtualClusters"]["VC2"]["virtualCells"][0]["cellNumber"] = 1
    whole = cells[8]
    parts = [copy.deepcopy(node) for half in whole["cellChildren"] for node in half["cellChildren"]]
    for number, node in enumerate(node for half in whole["cellChildren"] for node in half["cellChildren"]):
        node["cellAddress"] = f"0.0.4.10{number}"
    tops = [{"cellType": _V100 + "-NODE", **part} for part in parts]
    physical["physicalCells"] = [*cells[:8], tops[0], *cells[9:], *tops[1:], whole]
    return design


def _document() -> Any:
    return copy.deepcopy(public_vectors().configs["design"])


def _design() -> Driver:
    return driver(public_vectors().configs, "design", nodes_start_bad=False)


def _nodes(driven: Driver) -> list[str]:
    return list(driven.book.topology.leafs_on)


def _place(answer: Answer) -> tuple[str, list[int]]:
    return answer["node"], answer["leafCells"]


def _schedule(driven: Driver, pod: str, suggested: Sequence[str] | None = None, phase: str = "preempting") -> Answer:
    cluster, priority, leaf_type, leafs, pin, gang, members, may_yield = PODS[pod]
    spec = {
        "virtualCluster": cluster,
        "priority": priority,
        "leafCellType": leaf_type,
        "leafCellNumber": leafs,
        "pinnedCellId": pin,
        "lazyPreemptionEnable": may_yield,
        "ignoreK8sSuggestedNodes": False,
        "affinityGroup": {
            "name": gang,
            "members": [{"podNumber": pods, "leafCellNumber": size} for pods, size in members],
        },
    }
    document = {
        "op": "schedule",
        "pod": pod,
        "spec": spec,
        "phase": phase,
        "expect": {},
        "suggestedNodes": "all" if suggested is None else suggested,
    }
    return driven.perform(msgspec.convert(document, Operation))


def _schedule_and_start(driven: Driver, pod: str, suggested: Sequence[str] | None = None) -> Answer:
    answer = _schedule(driven, pod, suggested)
    if answer["kind"] == "bind":
        driven.perform(Operation(op="allocate", expect={}, pod=pod))
    return answer

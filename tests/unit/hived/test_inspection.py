"""What HiveD's inspection shows of gangs and cells."""

from tests.unit.cells.clusters import a_book, a_cluster, a_gang
from tests.unit.cells.running import run
from voda.cells.adoption import adopt
from voda.cells.book import CellBook
from voda.cells.health import set_node_bad
from voda.cells.scheduling import decide
from voda.hived.inspection import affinity_groups, physical_cluster, virtual_cluster, virtual_clusters


def a_used_book() -> CellBook:
    book = a_book(a_cluster(racks=1, boxes=1, quotas={"a": {"rack.node": 1, "box": 1}, "b": {}}))
    run(book, a_gang("g", "a", (1, 4)))
    run(book, a_gang("o", "b", (1, 4), priority=-1))
    return book


def test_groups_when_shown_have_their_places_on_both_sides() -> None:
    book = a_used_book()
    high = a_gang("high", "a", (1, 4), priority=1)
    adopt(book, high, decide(book, high, 4), "h")
    groups = {each["metadata"]["name"]: each["status"] for each in affinity_groups(book)["items"]}
    assert groups["g"] == {
        "vc": "a",
        "priority": 0,
        "state": "BeingPreempted",
        "physicalPlacement": {"r0n0": [0, 1, 2, 3]},
        "virtualPlacement": {"a/0": ["a/0/0/0", "a/0/0/1", "a/0/1/0", "a/0/1/1"]},
        "allocatedPods": ["g"],
        "preemptingPods": [],
    }
    assert (groups["o"]["virtualPlacement"], groups["o"]["physicalPlacement"]) == ({}, {"r0n1": [0, 1, 2, 3]})
    assert (groups["high"]["state"], groups["high"]["preemptingPods"]) == ("Preempting", ["h"])


def test_physical_cells_when_shown_have_state_health_and_their_virtual_cells() -> None:
    book = a_used_book()
    set_node_bad(book, "b0")
    rack, box = physical_cluster(book)
    used, lent = rack["cellChildren"]
    assert {key: rack[key] for key in rack if key != "cellChildren"} == {
        "leafCellType": "gpu",
        "cellType": "rack",
        "isNodeLevel": False,
        "cellAddress": "0",
        "cellHealthiness": "Healthy",
        "cellState": "Used",
        "cellPriority": 0,
    }
    assert (used["vc"], used["virtualCell"]["cellAddress"], used["isNodeLevel"]) == ("a", "a/0", True)
    assert (lent["cellState"], lent["cellPriority"], "vc" in lent) == ("Used", -1, False)
    assert (box["cellHealthiness"], box["cellState"], box["cellPriority"]) == ("Bad", "Free", -2)


def test_virtual_cells_when_shown_have_what_is_borrowed_beside_the_quota() -> None:
    book = a_used_book()
    set_node_bad(book, "b0")
    node, box = virtual_cluster(book, "a")
    assert (node["cellState"], node["physicalCell"]["cellAddress"], node["cellAddress"]) == ("Used", "0/r0n0", "a/0")
    assert (box["cellState"], box["cellHealthiness"], box["physicalCell"]["cellAddress"]) == ("Free", "Bad", "b0")
    borrowed = virtual_clusters(book)["b"]
    assert [each["cellAddress"] for each in borrowed] == [
        f"0/r0n1/{switch}/{2 * switch + gpu}-opp" for switch in (0, 1) for gpu in (0, 1)
    ]
    assert {each["cellPriority"] for each in borrowed} == {-1}

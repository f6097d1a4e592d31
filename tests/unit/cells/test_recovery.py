"""Gangs found again from their placements: after a restart, a reconfiguration, a lost guarantee."""

from collections.abc import Sequence
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cells.book_check import assert_consistent
from tests.unit.cells.clusters import a_book, a_cluster, a_gang
from tests.unit.cells.running import nodes_of, reconfigured, run, running
from voda.cells.book import CellBook
from voda.cells.gangs import OPPORTUNISTIC, Gang, GangRequest, WorkerCells
from voda.cells.health import set_node_bad
from voda.cells.preemption import end
from voda.cells.recovery import may_find_quota, occupy, settle
from voda.cells.structure.trees import NONE

SPEC = a_cluster(racks=2, quotas={"a": {"rack.node": 2}, "b": {"rack.node": 2}})
GANG = a_gang("g", "a", (2, 4))
NODES = {"r0n0": "rack", "r0n1": "rack", "r1n0": "rack", "r1n1": "rack", "b0": "box", "b1": "box"}
QUOTAS = (
    {"a": {"rack.node": 1, "box": 1}, "b": {"rack.node": 1}},
    {"a": {"rack.node": 1, "rack.node.switch": 2}, "b": {"rack.node.switch": 3, "box.gpu": 2}},
    {"a": {"rack": 1}, "b": {"rack.node.switch.gpu": 2, "box": 2}},
)
Recorded = tuple[GangRequest, WorkerCells]


def test_reconfiguration_when_nothing_changes_keeps_places_guarantees_and_health() -> None:
    book = running(SPEC, GANG, a_gang("o", "b", priority=-1))
    set_node_bad(book, "r1n1")
    again = reconfigured(book, book)
    assert again.gangs == book.gangs
    assert (again.priority, again.used, again.bad) == (book.priority, book.used, book.bad)
    assert_consistent(again)


def test_reconfiguration_when_a_node_is_gone_lets_the_gang_run_on() -> None:
    book = running(SPEC, GANG)
    smaller = a_book(a_cluster(racks=1, quotas={"a": {"rack.node": 2}}))
    again = reconfigured(book, smaller)
    kept = [node for node in nodes_of(book, "g") if node.startswith("r0")]
    assert nodes_of(again, "g") == kept
    assert again.gangs["g"].placement == book.gangs["g"].placement
    assert_consistent(again)


def test_reconfiguration_when_the_quota_is_gone_takes_the_guarantee() -> None:
    book = running(SPEC, GANG)
    for quotas in ({"b": {"rack": 2}}, {"a": {"rack.node": 1}, "b": {"rack.node": 2}}, {"a": {"rack": 1}}):
        changed = a_book(a_cluster(racks=2, quotas=quotas))
        again = reconfigured(book, changed)
        assert again.gangs["g"].downgraded_by == "g"
        assert nodes_of(again, "g") == nodes_of(book, "g")
        assert_consistent(again)


def test_gang_when_its_devices_are_used_by_another_comes_back_without_them() -> None:
    book = running(SPEC, GANG)
    occupy(book, a_gang("twin", "b", (2, 4)), book.gangs["g"].placement)
    assert book.gangs["twin"].leafs == ()
    assert_consistent(book)


def test_gang_when_its_quota_cell_is_in_use_elsewhere_takes_it_from_a_lower_priority() -> None:
    book = running(a_cluster(racks=1, quotas={"a": {"rack.node": 1}}), a_gang("low", "a", (1, 4)))
    placed = book.gangs["low"].placement[0]
    other = "r0n1" if placed.node == "r0n0" else "r0n0"
    moved = (type(placed)(node=other, devices=placed.devices, chain=placed.chain, quota=placed.quota),)
    occupy(book, a_gang("high", "a", (1, 4), priority=1), moved)
    assert book.gangs["low"].downgraded_by == "high"
    assert not book.gangs["high"].downgraded_by
    occupy(book, a_gang("none", "a", (1, 4)), ())
    assert book.gangs["none"].leafs == ()
    assert_consistent(book)


def test_gang_when_its_quota_cell_comes_to_show_a_bad_rack_while_it_takes_its_cells_keeps_its_guarantee() -> None:
    book = a_book(a_cluster(racks=3, quotas={"a": {"rack": 1, "rack.node": 1}}))
    set_node_bad(book, "r0n0")
    set_node_bad(book, "r2n1")
    # With the node, no rack is healthy any longer, and the quota's shows the first bad one.
    nodes = (("r1n0", "node"), ("r2n0", "rack"))
    placement = tuple(WorkerCells(node=node, devices=(0,), chain="rack", quota=quota) for node, quota in nodes)
    occupy(book, a_gang("g", "a", (2, 1)), placement)
    assert len(book.gangs["g"].virtual) == 2
    assert_consistent(book)


def test_pinned_gang_when_its_node_is_pinned_no_longer_loses_its_guarantee() -> None:
    book = a_book(a_cluster(racks=2, quotas={"a": {}}, pins="a"))
    run(book, a_gang("g", "a", (1, 4), pin="pin"))
    changed = a_book(a_cluster(racks=2, quotas={"a": {}}))
    again = reconfigured(book, changed)
    assert again.gangs["g"].downgraded_by == "g"
    assert nodes_of(again, "g") == ["r0n0"]
    assert_consistent(again)


def test_gang_when_its_device_is_in_another_virtual_clusters_cell_takes_nothing_of_that() -> None:
    book = a_book(a_cluster(racks=1, quotas={"a": {"rack.node": 1}, "b": {"rack.node": 1}}))
    first, second = (WorkerCells(node="r0n0", devices=(device,), chain="rack", quota="node") for device in (0, 2))
    occupy(book, a_gang("b", "b"), (first,))
    occupy(book, a_gang("a"), (second,))
    assert not book.gangs["b"].downgraded_by
    assert book.gangs["a"].downgraded_by == "a"
    assert_consistent(book)


@st.composite
def recorded_workers(draw: st.DrawFn) -> list[Recorded]:
    """Workers of a few nodes, most of them close to each other, as a plan in force may name them."""
    workers: list[Recorded] = []
    for index in range(draw(st.integers(1, 16))):
        node = draw(st.sampled_from(tuple(NODES)))
        devices = tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True)))
        quota = draw(st.sampled_from(("node", "node", "switch", "gpu", "rack", "box", "")))
        priority = draw(st.integers(0, 2)) if quota else OPPORTUNISTIC
        pin = draw(st.sampled_from(("", "", "", "pin")))
        cluster = draw(st.sampled_from("aab"))
        request = a_gang(f"g{index}", cluster, (1, len(devices)), priority=priority, pin=pin, yields=True)
        workers.append((request, WorkerCells(node=node, devices=devices, chain=NODES[node], quota=quota)))
    return workers


@given(st.sampled_from(QUOTAS), st.sampled_from(("", "a")), recorded_workers(), st.randoms(use_true_random=False))
def test_gangs_when_they_settle_have_the_same_cells_in_whichever_order_and_leave_none_behind(
    quotas: dict[str, dict[str, int]], pins: str, workers: list[Recorded], chance: Random
) -> None:
    unused = a_book(a_cluster(racks=3, boxes=2, quotas=quotas, pins=pins))
    book, settled = unused.copy(), list[tuple[Gang, int]]()
    for gang, root in _gangs_with_quota_cells(book, workers, chance):
        before = book.copy()
        if settle(book, gang, root):
            settled.append((gang, root))
        else:
            assert _in_order(book) == _in_order(before)
        assert_consistent(book)
    again = unused.copy()
    chance.shuffle(settled)
    for gang, root in settled:
        assert settle(again, gang, root)
    assert _in_order(again) == _in_order(book)
    assert all(bool(book.gangs[gang.name].virtual) == (root != NONE) for gang, root in settled)
    for gang, _ in settled:
        end(book, gang.name)
    assert _in_order(book) == _in_order(unused.copy())


@given(st.sampled_from(QUOTAS), st.sampled_from(("", "a")), recorded_workers(), st.lists(st.sampled_from(tuple(NODES))))
def test_gang_when_it_can_find_no_quota_for_its_cells_changes_nothing_by_an_attempt(
    quotas: dict[str, dict[str, int]], pins: str, workers: list[Recorded], bad: list[str]
) -> None:
    book = a_book(a_cluster(racks=3, boxes=2, quotas=quotas, pins=pins))
    _occupy_all(book, workers)
    for node in bad[:2]:
        set_node_bad(book, node)
    for request, cells in workers:
        gang = book.gangs.get(request.name)
        if gang is None or gang.virtual:
            continue
        for quota in ("node", "switch", "gpu", "rack", "box"):
            wanted = msgspec.structs.replace(cells, quota=quota)
            claim = msgspec.structs.replace(request, priority=max(0, request.priority))
            tried, left = book.copy(), book.copy()
            end(tried, request.name)
            occupy(tried, claim, (wanted,))
            if not may_find_quota(book, claim, wanted):
                assert not tried.gangs.pop(request.name).virtual
                del left.gangs[request.name]
                assert (tried, list(tried.gangs)) == (left, list(left.gangs))


def test_gang_when_its_virtual_cluster_has_cells_left_may_find_one_for_those_that_it_has() -> None:
    book = a_book(a_cluster(racks=1, quotas={"a": {"rack.node": 1}, "b": {"rack.node": 1}}))
    cells = WorkerCells(node="r0n0", devices=(0,), chain="rack")
    occupy(book, a_gang("g", "a", priority=OPPORTUNISTIC), (cells,))
    wanted = msgspec.structs.replace(cells, quota="node")
    assert may_find_quota(book, a_gang("g"), wanted)
    occupy(book, a_gang("other"), (WorkerCells(node="r0n1", devices=(0,), chain="rack", quota="node"),))
    assert not may_find_quota(book, a_gang("g"), wanted)


def _gangs_with_quota_cells(book: CellBook, workers: Sequence[Recorded], chance: Random) -> list[tuple[Gang, int]]:
    """Return the gangs whose devices are there, each with a quota cell; NONE: it has no guarantee."""
    gangs = []
    for request, cells in workers:
        leafs = tuple(book.topology.leaf_at.get((cells.node, device), NONE) for device in cells.devices)
        roots = [root for root, name in book.quotas.root_names.items() if name.startswith(f"{cells.quota}/")]
        if NONE not in leafs:
            root = chance.choice(roots) if cells.quota and roots else NONE
            own = msgspec.structs.replace(request, priority=request.priority if root != NONE else OPPORTUNISTIC)
            gangs.append((Gang(request=own, placement=(cells,), leafs=leafs), root))
    return gangs


def _in_order(book: CellBook) -> CellBook:
    """Return a book in which free cells are in their order."""
    for books in book.free.values():
        books.sort()
    return book


def _occupy_all(book: CellBook, workers: Sequence[Recorded]) -> None:
    """Let those with a guarantee have their cells first, and those whose devices are gone or in use none."""
    for request, cells in sorted(workers, key=lambda worker: not worker[1].quota):
        leafs = [book.topology.leaf_at.get((cells.node, device), NONE) for device in cells.devices]
        if all(leaf != NONE and not book.holder[leaf] for leaf in leafs):
            occupy(book, request, (cells,))

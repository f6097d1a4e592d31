"""Bad nodes, and the quota cells that are shown as bad."""

from tests.unit.cells.book_check import assert_consistent
from tests.unit.cells.clusters import a_book, a_cluster, a_gang
from tests.unit.cells.running import nodes_of, run, running
from voda.cells.health import doomed_cells, set_node_bad, set_node_healthy
from voda.cells.preemption import end

SPEC = a_cluster(racks=2, quotas={"a": {"rack.node": 3}, "b": {"rack.node": 1}})


def test_quota_when_healthy_cells_suffice_shows_no_bad_one() -> None:
    book = a_book(SPEC)
    set_node_bad(book, "r0n0")
    assert doomed_cells(book) == {}
    set_node_bad(book, "r0n1")
    assert doomed_cells(book) == {"a": {("rack", 3): 1}}
    assert_consistent(book)


def test_quota_when_nodes_are_well_again_is_as_before() -> None:
    book = a_book(SPEC)
    for node in ("r0n0", "r0n1", "r1n0", "r1n1"):
        set_node_bad(book, node)
    assert doomed_cells(book) == {"a": {("rack", 3): 3}, "b": {("rack", 3): 1}}
    for node in ("r1n1", "r0n0", "r1n0", "r0n1"):
        set_node_healthy(book, node)
    assert doomed_cells(book) == {}
    assert_consistent(book)
    assert book.virtual == a_book(SPEC).virtual


def test_running_gang_when_its_node_turns_bad_stays_and_its_quota_cell_is_shown() -> None:
    book = running(SPEC, a_gang("g", "a", (1, 4)))
    set_node_bad(book, nodes_of(book, "g")[0])
    assert doomed_cells(book) == {"a": {("rack", 3): 1}}
    assert len(book.gangs["g"].leafs) == 4


def test_health_when_told_twice_or_of_an_unknown_node_changes_nothing() -> None:
    book = a_book(SPEC)
    set_node_bad(book, "r0n0")
    before = book.copy()
    set_node_bad(book, "r0n0")
    set_node_bad(book, "elsewhere")
    set_node_healthy(book, "elsewhere")
    assert book == before


def test_doomed_cell_when_a_gang_uses_its_healthy_part_is_kept_until_the_gang_ends() -> None:
    book = a_book(a_cluster(racks=2, quotas={"a": {"rack": 1}}))
    for node in ("r0n1", "r1n1"):
        set_node_bad(book, node)
    run(book, a_gang("g", "a", (1, 4)))
    set_node_healthy(book, "r1n1")
    assert nodes_of(book, "g") == ["r0n0"]
    assert_consistent(book)
    end(book, "g")
    assert doomed_cells(book) == {}
    assert_consistent(book)

"""What virtual clusters have of their quotas, and what another configuration would change."""

from tests.unit.cells.clusters import a_book, a_cluster, a_gang
from tests.unit.cells.running import running
from voda.cells.accounting import QuotaKey, QuotaUse, borrowed_leafs, compare, quota_use
from voda.cells.adoption import adopt, reconfigure
from voda.cells.health import set_node_bad
from voda.cells.preemption import end
from voda.cells.scheduling import decide

NODES_OF_A, SWITCHES_OF_B = QuotaKey("a", "rack", "node"), QuotaKey("b", "rack", "switch")
SPEC = a_cluster(racks=2, quotas={"a": {"rack.node": 2}, "b": {"rack.node.switch": 1}}, pins="a")


def test_quota_use_when_gangs_run_counts_cells_and_leafs() -> None:
    book = running(SPEC, a_gang("g", "a", (1, 2)), a_gang("p", "a", pin="pin"), a_gang("o", "b", (1, 4), priority=-1))
    assert quota_use(book) == {
        NODES_OF_A: QuotaUse(cells=2, in_use=1, leafs=8, used_leafs=2),
        QuotaKey("a", "rack", "node", "pin"): QuotaUse(cells=1, in_use=1, leafs=4, used_leafs=1),
        SWITCHES_OF_B: QuotaUse(cells=1, leafs=2),
    }
    assert borrowed_leafs(book) == {("b", "rack"): 4}


def test_quota_use_when_too_few_healthy_cells_are_left_counts_the_doomed() -> None:
    book = a_book(SPEC)
    for node in ("r0n1", "r1n0"):
        set_node_bad(book, node)
    assert quota_use(book)[NODES_OF_A].doomed == 1
    assert quota_use(book)[SWITCHES_OF_B].doomed == 0


def test_comparison_when_nothing_changes_is_empty() -> None:
    book = running(SPEC, a_gang("g", "a", (1, 2)))
    changes = compare(book, reconfigure(book, book.topology, book.quotas))
    assert (changes.quotas, changes.downgraded, changes.uncounted, changes.withdrawn) == ({}, (), {}, ())
    assert not changes.breaks_guarantees


def test_comparison_when_quotas_shrink_names_them_and_the_gangs_that_lose_their_guarantee() -> None:
    book = running(SPEC, a_gang("g", "a", (2, 4)), a_gang("p", "a", (1, 4), pin="pin"))
    waiting = a_gang("w", "a", (1, 4), priority=1)
    adopt(book, waiting, decide(book, waiting, 4), "w")
    smaller = a_book(a_cluster(racks=2, quotas={"a": {"rack.node": 1}, "b": {"rack.node.switch": 2}}, pins="a"))
    changes = compare(book, reconfigure(book, smaller.topology, smaller.quotas))
    assert changes.quotas == {NODES_OF_A: (2, 1), SWITCHES_OF_B: (1, 2)}
    assert (changes.downgraded, changes.withdrawn, changes.uncounted) == (("g",), ("w",), {})
    assert changes.breaks_guarantees


def test_comparison_when_a_node_is_gone_counts_what_runs_there() -> None:
    book = running(a_cluster(racks=2, quotas={"a": {"rack.node": 2}}), a_gang("g", "a", (2, 4)))
    end_of = a_book(a_cluster(racks=1, quotas={"a": {"rack.node": 2}}))
    changes = compare(book, reconfigure(book, end_of.topology, end_of.quotas))
    kept = sum(book.topology.nodes[leaf][0].startswith("r0") for leaf in book.gangs["g"].leafs)
    assert changes.uncounted == ({"g": 8 - kept} if kept < 8 else {})


def test_comparison_when_the_quota_is_back_names_the_gangs_that_have_their_guarantee_again() -> None:
    spec = a_cluster(racks=1, quotas={"a": {"rack.node": 1}})
    book = running(spec, a_gang("low", "a", (1, 4), yields=True), a_gang("high", "a", (1, 4), priority=1))
    end(book, "high")
    changes = compare(book, reconfigure(book, book.topology, book.quotas))
    assert changes.regained == ("low",)

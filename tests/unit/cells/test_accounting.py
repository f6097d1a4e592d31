"""What virtual clusters have of their quotas."""

from tests.unit.cells.clusters import a_book, a_cluster, a_gang
from tests.unit.cells.running import running
from voda.cells.accounting import QuotaKey, QuotaUse, borrowed_leafs, quota_use
from voda.cells.health import set_node_bad

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

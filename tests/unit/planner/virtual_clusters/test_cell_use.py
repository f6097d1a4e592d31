"""What a plan in force uses of the cells of its pool."""

from msgspec.structs import replace

from tests.builders import a_node, a_state
from tests.unit.planner.virtual_clusters.pools import a_pool, replanned, some_cells, submitted
from voda.cells.accounting import borrowed_leafs, quota_use
from voda.planner.virtual_clusters import book_of, guaranteed_workers

NODES = tuple(a_node(f"n{index}") for index in range(1, 5))


def test_cells_when_a_job_borrows_are_in_use_lent_and_guaranteed() -> None:
    pool = a_pool({"vision": {"node": 2}, "speech": {"node": 2}}, nodes=NODES)
    state = replanned(submitted(pool, "elastic", "vision", min_replicas=2, max_replicas=16))
    book = book_of(state)
    used = {key.virtual_cluster: (use.in_use, use.used_leafs) for key, use in quota_use(book).items() if use.cells}
    assert used == {"vision": (2, 8), "speech": (0, 0)}
    assert sum(borrowed_leafs(book).values()) == 8
    assert guaranteed_workers(state) == {"elastic": 8}


def test_guarantees_when_a_quota_is_smaller_or_gone_are_fewer() -> None:
    pool = a_pool({"vision": {"node": 2}}, nodes=NODES)
    state = replanned(submitted(pool, "job", "vision", min_replicas=4, max_replicas=8))
    smaller = replace(state, cells=some_cells({"vision": {"node": 1}}))
    assert guaranteed_workers(state) == {"job": 8}
    assert guaranteed_workers(smaller) == {"job": 4}
    rigid = replanned(submitted(pool, "job", "vision", min_replicas=8, max_replicas=8))
    assert guaranteed_workers(replace(rigid, cells=smaller.cells)) == {}
    assert guaranteed_workers(replace(state, cells=None)) == guaranteed_workers(a_state()) == {}


def test_borrowed_cells_when_others_use_a_node_are_none_of_theirs() -> None:
    nodes = (*NODES[:3], a_node("n4", foreign_gpus=2))
    state = a_pool({"vision": {"node": 2}}, nodes=nodes)
    assert borrowed_leafs(book_of(state)) == {}


def test_borrowed_cells_when_the_virtual_cluster_of_a_job_is_gone_are_those_of_no_other() -> None:
    pool = a_pool({"vision": {"node": 2}}, nodes=NODES)
    state = replanned(submitted(pool, "orphan", "removed", min_replicas=4, max_replicas=4))
    assert len(state.plan.placement["orphan"]) == 4
    assert borrowed_leafs(book_of(state)) == {}

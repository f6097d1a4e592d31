"""Workers on nodes, and leafs within a node."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cells.brute_force import can_be_packed
from tests.unit.cells.clusters import a_book, a_cluster
from voda.cells.search.packing import choose_leafs, leafs_of_workers, pack


def test_pack_when_the_first_node_is_full_goes_on_to_the_next() -> None:
    assert pack([1, 2, 2], [7, 8, 9], {7: 1, 8: 3, 9: 4}) == [7, 8, 9]


def test_pack_when_filling_in_order_fails_tries_the_largest_first() -> None:
    assert pack([1, 2], [7, 8], {7: 2, 8: 1}) == [8, 7]
    assert pack([1, 2, 2], [7, 8], {7: 2, 8: 3}) == [8, 8, 7]


def test_pack_when_nothing_fits_is_none() -> None:
    assert pack([2, 2], [7, 8], {7: 3, 8: 1}) is None
    assert pack([1], [], {}) is None


@given(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=7), st.lists(st.integers(0, 8), max_size=5))
def test_pack_when_sizes_divide_each_other_finds_a_place_if_there_is_one(sizes: list[int], rooms: list[int]) -> None:
    chosen = pack(sorted(sizes), range(len(rooms)), dict(enumerate(rooms)))
    assert (chosen is not None) == can_be_packed(sorted(sizes), rooms)
    for node, room in enumerate(rooms):
        assert chosen is None or sum(size for size, at in zip(sorted(sizes), chosen, strict=True) if at == node) <= room


def test_choose_leafs_when_some_are_near_to_each_other_takes_those() -> None:
    topology = a_book(a_cluster(racks=1)).topology
    first, second, third, fourth = topology.leafs_on["r0n0"]
    assert choose_leafs(topology.trees, [second, third, fourth], 2) == [third, fourth]
    assert choose_leafs(topology.trees, [second, third, fourth], 1) == [second]
    assert choose_leafs(topology.trees, [first, third, second], 2) == [first, second]
    assert choose_leafs(topology.trees, [fourth, first, second], 3) == [fourth, first, second]


def test_leafs_of_workers_when_several_share_a_node_are_all_different() -> None:
    topology = a_book(a_cluster(racks=1)).topology
    leafs = list(topology.leafs_on["r0n0"])
    node = topology.trees.ancestor(leafs[0], 3)
    chosen = leafs_of_workers(topology.trees, [1, 1, 2], [node] * 3, lambda _: leafs)
    assert chosen == [leafs[:1], leafs[1:2], leafs[2:]]

"""Buddies: a cell that is taken splits those above it, and merges with them when it comes back."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cells.clusters import a_book, a_cluster


def test_free_cells_when_a_node_is_taken_split_its_rack() -> None:
    book = a_book(a_cluster(racks=2))
    free, first_rack = book.free["rack"], book.topology.cells_at["rack", 4][0]
    taken, buddy = book.topology.trees.children[first_rack]
    assert free.remove(taken) == 4
    assert free.lists[3] == [buddy]
    assert free.lists[4] == [book.topology.cells_at["rack", 4][1]]
    assert free.split == {first_rack}
    assert free.add(taken) == 4
    assert sorted(free.lists[4]) == sorted(book.topology.cells_at["rack", 4])
    assert free.split == set()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 99)), max_size=40))
def test_free_cells_when_all_that_was_taken_is_back_are_as_at_first(operations: list[tuple[bool, int]]) -> None:
    book = a_book(a_cluster(racks=3))
    free, trees = book.free["rack"], book.topology.trees
    taken: list[int] = []
    for takes, index in operations:
        whole = [cell for cells in free.lists for cell in cells]
        if takes and whole:
            cell = whole[index % len(whole)]
            leaf = trees.leafs[cell][index % len(trees.leafs[cell])]
            taken.append(trees.ancestor(leaf, 1 + index % trees.level[cell]))
            free.remove(taken[-1])
        elif taken:
            free.add(taken.pop(index % len(taken)))
    leafs = [leaf for cells in free.lists for cell in cells for leaf in trees.leafs[cell]]
    assert sorted(leafs + [leaf for cell in taken for leaf in trees.leafs[cell]]) == sorted(
        book.topology.leaf_at.values()
    )
    for cell in taken:
        free.add(cell)
    assert sorted(free.lists[4]) == list(book.topology.cells_at["rack", 4])
    assert not free.split

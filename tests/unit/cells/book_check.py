"""What must be true of a book at every moment, counted anew from who holds which leaf."""

from collections.abc import Iterator

from voda.cells.book import CellBook
from voda.cells.free_cells import FreeCells, spare_cells
from voda.cells.gangs import FREE, OPPORTUNISTIC
from voda.cells.structure.cell_types import LEAF
from voda.cells.structure.trees import NONE


def assert_consistent(book: CellBook) -> None:
    """Check every redundancy of a book."""
    _assert_leafs_are_counted(book)
    _assert_bindings_match(book)
    for books in book.free.values():
        _assert_free_cells_are_counted(book, books)
        assert is_safe(books), "a virtual cluster could not be given what it is owed"


def is_safe(books: FreeCells) -> bool:
    """Return whether every quota cell that is owed can still be had, at every level and all together."""
    enough = all(left >= owed for left, owed in zip(books.left, books.owed, strict=True))
    return enough and min(spare_cells(books.chain, books.lists, books.owed)) >= 0


def _assert_leafs_are_counted(book: CellBook) -> None:
    trees = book.topology.trees
    for cell, leafs in enumerate(trees.leafs):
        priorities = [book.priority[leaf] for leaf in leafs]
        assert book.guaranteed[cell] == sum(priority > OPPORTUNISTIC for priority in priorities)
        assert book.opportunistic[cell] == priorities.count(OPPORTUNISTIC)
        assert book.bad[cell] == any(book.bad[leaf] for leaf in leafs)
    for gang in book.gangs.values():
        assert len(gang.leafs) == len(set(gang.leafs))
        users = book.reserver if gang.is_waiting else book.holder
        assert all(users[leaf] == gang.name for leaf in gang.leafs)
    held = [leaf for gang in book.gangs.values() if not gang.is_waiting for leaf in gang.leafs]
    assert len(held) == sum(bool(name) for name in book.holder)
    for leaf in (leaf for leaf, level in enumerate(trees.level) if level == LEAF):
        assert (book.priority[leaf] == FREE) == (not book.holder[leaf] and not book.reserver[leaf])


def _assert_bindings_match(book: CellBook) -> None:
    physical, virtual = book.topology.trees, book.quotas.trees
    for cell, bound in enumerate(book.virtual):
        if bound == NONE:
            continue
        assert book.place[bound] == cell
        assert physical.level[cell] == virtual.level[bound]
        above = virtual.parent[bound]
        assert above == NONE or book.place[above] == physical.parent[cell]
    for virtual_cell, place in enumerate(book.place):
        assert place == NONE or book.virtual[place] == virtual_cell
        used = [leaf for leaf in virtual.leafs[virtual_cell] if book.virtual_priority[leaf] != FREE]
        assert book.used[virtual_cell] == len(used)
    for leaf, level in enumerate(virtual.level):
        if level == LEAF and book.virtual_priority[leaf] != FREE:
            assert book.priority[book.place[leaf]] == book.virtual_priority[leaf]


def _assert_free_cells_are_counted(book: CellBook, books: FreeCells) -> None:
    trees, chain = book.topology.trees, books.chain
    free = [cell for cells in books.lists for cell in cells]
    assert books.free == {cell: place for cells in books.lists for place, cell in enumerate(cells)}
    assert len(books.free) == len(free)
    within = list(_within(book, free))
    for level in range(LEAF, chain.top + 1):
        cells = [cell for cell in within if trees.level[cell] == level]
        assert books.left[level] == len(cells)
        assert sorted(books.bad[level]) == [cell for cell in sorted(cells) if book.bad[cell]]
    taken = [
        leaf
        for root, place in enumerate(book.place)
        if _is_root(book, root, chain.name) and place != NONE
        for leaf in trees.leafs[place]
    ]
    leafs = [cell for cell in within if trees.level[cell] == LEAF]
    assert sorted(taken + leafs) == list(_all_leafs(book, chain.name)), "a leaf is neither free nor a quota cell's"
    _assert_owed(book, books)


def _assert_owed(book: CellBook, books: FreeCells) -> None:
    levels = book.quotas.trees.level
    for cluster, owed in books.owed_by.items():
        view = book.quotas.views.get((cluster, books.chain.name))
        roots = [] if view is None else [root for root in view.roots if book.place[root] == NONE]
        for level in range(LEAF, books.chain.top + 1):
            assert owed[level] == sum(levels[root] == level for root in roots)
            assert owed[level] <= max(0, books.healthy(level)) or not books.bad[level], "a doomed cell is not shown"
    assert books.owed == [sum(owed[level] for owed in books.owed_by.values()) for level in range(books.chain.top + 1)]


def _is_root(book: CellBook, cell: int, chain: str) -> bool:
    return book.quotas.trees.parent[cell] == NONE and book.quotas.trees.chain[cell].name == chain


def _within(book: CellBook, cells: list[int]) -> Iterator[int]:
    for cell in cells:
        yield cell
        yield from _within(book, list(book.topology.trees.children[cell]))


def _all_leafs(book: CellBook, chain: str) -> Iterator[int]:
    for cell, level in enumerate(book.topology.trees.level):
        if level == LEAF and book.topology.trees.chain[cell].name == chain:
            yield cell

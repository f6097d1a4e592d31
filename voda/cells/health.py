"""Health: which nodes are bad, and what that means for cells and virtual clusters.

A cell is bad if any cell in it is. Running gangs stay where they are. A bad cell within a bound one is bound as well,
so that the virtual cluster places nothing there; such a binding ends when the cell is healthy again and nobody uses it.
"""

from collections.abc import Collection, Mapping

from voda.cells.bindings import add_bad_free, bind_to_sibling, give_quota_cell, remove_bad_free, unbind
from voda.cells.book import CellBook
from voda.cells.free_cells import FreeCells, take_out
from voda.cells.structure.cell_types import LEAF
from voda.cells.structure.trees import NONE


def set_node_bad(book: CellBook, node: str) -> None:
    """Note that a node is bad; one that is in no cell is none of the book's business."""
    if node not in book.bad_nodes and node in book.topology.leafs_on:
        book.bad_nodes.add(node)
        for leaf in book.topology.leafs_on[node]:
            _set_bad(book, leaf)


def set_node_healthy(book: CellBook, node: str) -> None:
    """Note that a node is healthy again."""
    if node in book.bad_nodes:
        book.bad_nodes.discard(node)
        for leaf in book.topology.leafs_on[node]:
            _set_healthy(book, leaf)


def doomed_cells(book: CellBook) -> Mapping[str, Mapping[tuple[str, int], int]]:
    """Return virtual cluster -> (chain, level) -> how many of its quota cells are bound to bad cells; not pins."""
    counts: dict[str, dict[tuple[str, int], int]] = {}
    for (cluster, chain), view in book.quotas.views.items():
        for root in view.roots:
            if book.is_bad_binding(root):
                place = chain, book.quotas.trees.level[root]
                of_cluster = counts.setdefault(cluster, {})
                of_cluster[place] = of_cluster.get(place, 0) + 1
    return counts


def lacking_cells(book: CellBook, clusters: Collection[str]) -> Mapping[tuple[str, str], int]:
    """Return (chain, type) -> how many cells owed to these virtual clusters there are no healthy ones for, all at once.

    Doomed cells are not among them: a cell is doomed where one virtual cluster alone has too few.
    """
    return {
        (name, books.chain.type_at(level).name): lacking
        for name, books in book.free.items()
        for level, lacking in _lacking(books, clusters).items()
    }


def _lacking(books: FreeCells, clusters: Collection[str]) -> Mapping[int, int]:
    """Go from the top downwards: a healthy cell that is owed takes all that are in it."""
    lacking, taken = {}, 0
    for level in range(books.chain.top, LEAF - 1, -1):
        needed = taken + sum(books.owed_by[cluster][level] for cluster in clusters)
        healthy = max(0, books.healthy(level))
        lacking[level] = max(0, needed - healthy)
        taken = min(needed, healthy) * books.chain.type_at(level).fanout
    return lacking


def _set_bad(book: CellBook, cell: int) -> None:
    """Mark a cell and those above it; the highest comes first, so that a binding is there when a lower one needs it."""
    if book.bad[cell]:
        return
    book.bad[cell] = True
    above = book.topology.trees.parent[cell]
    if above != NONE:
        _set_bad(book, above)
    if book.is_free(cell):
        add_bad_free(book, cell)
    elif book.virtual[cell] == NONE and cell not in book.books(cell).split:
        bind_to_sibling(book, cell)


def _set_healthy(book: CellBook, cell: int) -> None:
    """Mark a cell, and those above it in which nothing is bad any longer, lowest first."""
    while cell != NONE and book.bad[cell]:
        book.bad[cell] = False
        if book.is_free(cell):
            remove_bad_free(book, cell)
        elif book.virtual[cell] != NONE and not book.is_pinned(cell) and not book.guaranteed[cell]:
            _release(book, cell)
        above = book.topology.trees.parent[cell]
        if above == NONE or any(book.bad[child] for child in book.topology.trees.children[above]):
            return
        cell = above


def _release(book: CellBook, cell: int) -> None:
    """End a binding that was there only because the cell was bad."""
    root = book.virtual[cell]
    unbind(book, cell)
    if book.quotas.trees.parent[root] == NONE:
        cluster, level = book.quotas.owner[root], book.quotas.trees.level[root]
        doomed = book.books(cell).doomed[cluster][level]
        if cell in doomed:
            take_out(doomed, cell)
        give_quota_cell(book, cell, cluster)

"""Bindings: which physical cell stands for which virtual cell, and the books that change with them.

`take_leaf` and `give_leaf` use and free one leaf; with the first leaf of a quota cell a whole physical cell leaves the
free cells, with the last it comes back. A bad cell stays bound, so that its virtual cluster sees it. Rule: when fewer
healthy cells are left than a virtual cluster is owed, bad ones are bound to its quota cells (*doomed*), and no gang is
placed where it must end on bad hardware; as soon as healthy ones suffice again, they are released. A quota cell that
only shows a bad cell is there for a gang that has its cells elsewhere.
"""

from collections.abc import Sequence
from operator import ge

from voda.cells.book import CellBook
from voda.cells.free_cells import FreeCells, take_out
from voda.cells.gangs import FREE, OPPORTUNISTIC
from voda.cells.structure.trees import NONE


def take_leaf(book: CellBook, leaf: int, virtual: int, priority: int) -> bool:
    """Use a physical leaf, bound to a virtual one, or NONE for opportunistic use.

    Returns:
        Whether all guarantees can still be kept.
    """
    if virtual == NONE:
        _count_leaf(book, leaf, OPPORTUNISTIC, 1)
        return True
    root = book.quotas.root[virtual]
    if book.bad_nodes and is_only_shown(book, root) and book.place[root] not in book.topology.trees.path(leaf):
        _stop_showing(book, root)
    _count_leaf(book, leaf, priority, 1)
    _count_virtual(book, virtual, priority, 1)
    is_new = book.place[root] == NONE
    # A bad leaf may have been bound before.
    if book.virtual[leaf] == NONE:
        _bind_upwards(book, leaf, virtual)
    if is_new:
        return take_quota_cell(book, book.place[root], book.quotas.owner[root])
    # A bad cell of several machines may hold a good one: it is not only shown any longer.
    doomed = book.books(leaf).doomed[book.quotas.owner[root]][book.quotas.trees.level[root]]
    if book.place[root] in doomed:
        take_out(doomed, book.place[root])
    return True


def give_leaf(book: CellBook, leaf: int) -> None:
    """End the use of a physical leaf."""
    priority = book.priority[leaf]
    _count_leaf(book, leaf, priority, -1)
    if priority == OPPORTUNISTIC:
        return
    virtual = book.virtual[leaf]
    root = book.quotas.root[virtual]
    cell = book.place[root]
    _count_virtual(book, virtual, priority, -1)
    if not book.bad[leaf]:
        _unbind_upwards(book, leaf)
    level, owner = book.quotas.trees.level[root], book.quotas.owner[root]
    if not book.used[root] and root not in book.quotas.pinned and cell not in book.books(cell).doomed[owner][level]:
        give_quota_cell(book, cell, owner)


def is_only_shown(book: CellBook, virtual: int) -> bool:
    """Return whether a virtual cell is a quota cell that nobody uses, and is bound to show a bad cell."""
    is_bound = book.place[virtual] != NONE and book.quotas.trees.parent[virtual] == NONE
    return is_bound and not book.used[virtual] and virtual not in book.quotas.pinned


def first_free(book: CellBook, cells: Sequence[int]) -> int:
    """Return the first of these virtual cells that is not bound, else the first that is only shown; NONE: none is."""
    for cell in cells:
        if book.place[cell] == NONE:
            return cell
    return next((cell for cell in cells if is_only_shown(book, cell)), NONE) if book.bad_nodes else NONE


def can_be_bound(book: CellBook, cell: int, virtual: int) -> bool:
    """Return whether the lowest cells around both that are bound are bound to each other, or both are free."""
    while book.virtual[cell] == book.place[virtual] == NONE and book.quotas.trees.parent[virtual] != NONE:
        cell, virtual = book.topology.trees.parent[cell], book.quotas.trees.parent[virtual]
    return book.virtual[cell] == virtual if book.place[virtual] != NONE else book.is_free(cell)


def take_quota_cell(book: CellBook, cell: int, cluster: str) -> bool:
    """Take a physical cell out of the free ones for a virtual cluster; return whether all guarantees can be kept."""
    books, trees = book.books(cell), book.topology.trees
    level = trees.level[cell]
    _owe(books, cluster, level, -1)
    books.left[level] -= 1
    top = books.remove(cell)
    above = trees.parent[cell]
    for higher in range(level + 1, top + 1):
        books.left[higher] -= 1
        if book.bad[above]:
            take_out(books.bad[higher], above)
        else:
            _doom(book, books, higher)
        above = trees.parent[above]
    if book.bad[cell]:
        _show_bad(book, cell)
        _undoom(book, books, level)
    else:
        _doom(book, books, level)
    for lower, count in books.chain.below[level]:
        books.left[lower] -= count
        _doom(book, books, lower)
    return all(map(ge, books.left, books.owed))


def give_quota_cell(book: CellBook, cell: int, cluster: str) -> None:
    """Put a physical cell back that a virtual cluster needs no longer."""
    books, trees = book.books(cell), book.topology.trees
    level = trees.level[cell]
    _owe(books, cluster, level, 1)
    books.left[level] += 1
    top = books.add(cell)
    above = trees.parent[cell]
    for higher in range(level + 1, top + 1):
        books.left[higher] += 1
        if book.bad[above]:
            books.bad[higher].append(above)
        else:
            _undoom(book, books, higher)
        above = trees.parent[above]
    if book.bad[cell]:
        _hide_bad(book, cell)
        _doom(book, books, level)
    else:
        _undoom(book, books, level)
    for lower, count in books.chain.below[level]:
        books.left[lower] += count
        _undoom(book, books, lower)


def add_bad_free(book: CellBook, cell: int) -> None:
    """Note that a free cell, or one within a free cell, became bad."""
    books, level = book.books(cell), book.topology.trees.level[cell]
    books.bad[level].append(cell)
    _doom(book, books, level)


def remove_bad_free(book: CellBook, cell: int) -> None:
    """Note that a free cell, or one within a free cell, is healthy again."""
    books, level = book.books(cell), book.topology.trees.level[cell]
    take_out(books.bad[level], cell)
    _undoom(book, books, level)


def bind(book: CellBook, cell: int, virtual: int) -> None:
    """Bind one physical cell to one virtual cell."""
    book.virtual[cell], book.place[virtual] = virtual, cell


def unbind(book: CellBook, cell: int) -> None:
    """Undo `bind`."""
    book.place[book.virtual[cell]] = NONE
    book.virtual[cell] = NONE


def bind_to_sibling(book: CellBook, cell: int) -> None:
    """Bind a bad cell within a bound one to a virtual cell there that is not bound."""
    above = book.virtual[book.topology.trees.parent[cell]]
    bind(book, cell, next(child for child in book.quotas.trees.children[above] if book.place[child] == NONE))


def _doom(book: CellBook, books: FreeCells, level: int) -> None:
    """Bind bad cells to quota cells of virtual clusters for which no healthy ones are left."""
    if not books.bad[level]:
        return
    for cluster, owed in books.owed_by.items():
        while owed[level] > max(0, books.healthy(level)) and books.bad[level]:
            roots = book.quotas.views[cluster, books.chain.name].roots_at[level]
            root = next(each for each in roots if book.place[each] == NONE)
            # One that splits no larger cell than it must: others may be owed those.
            cell = min(books.bad[level], key=books.level_of_free)
            bind(book, cell, root)
            books.doomed[cluster][level].append(cell)
            take_quota_cell(book, cell, cluster)


def _undoom(book: CellBook, books: FreeCells, level: int) -> None:
    """Release doomed cells of virtual clusters for which healthy ones are left."""
    for cluster, owed in books.owed_by.items():
        doomed = books.doomed[cluster][level]
        while doomed and owed[level] < books.healthy(level):
            cell = doomed[0]
            unbind(book, cell)
            take_out(doomed, cell)
            give_quota_cell(book, cell, cluster)


def _stop_showing(book: CellBook, root: int) -> None:
    """Put back the bad cell that a quota cell shows: the quota cell is owed, and must be given another one at once."""
    cell, cluster, level = book.place[root], book.quotas.owner[root], book.quotas.trees.level[root]
    books = book.books(cell)
    unbind(book, cell)
    take_out(books.doomed[cluster][level], cell)
    # While it is owed to nobody, it shows no other bad cell.
    _owe(books, cluster, level, -1)
    give_quota_cell(book, cell, cluster)
    _owe(books, cluster, level, 1)


def _show_bad(book: CellBook, cell: int) -> None:
    """Bind the bad cells in a cell that was taken, and strike them off the bad free ones."""
    bad = book.books(cell).bad[book.topology.trees.level[cell]]
    if cell in bad:
        take_out(bad, cell)
    if book.virtual[cell] == NONE:
        bind_to_sibling(book, cell)
    for child in book.topology.trees.children[cell]:
        if book.bad[child]:
            _show_bad(book, child)


def _hide_bad(book: CellBook, cell: int) -> None:
    """Unbind the bad cells in a cell that was put back, and note them as bad free ones."""
    book.books(cell).bad[book.topology.trees.level[cell]].append(cell)
    if book.virtual[cell] != NONE:
        unbind(book, cell)
    for child in book.topology.trees.children[cell]:
        if book.bad[child]:
            _hide_bad(book, child)


def _bind_upwards(book: CellBook, leaf: int, virtual: int) -> None:
    """Bind a leaf and the cells above it, up to one that is bound."""
    while virtual != NONE and book.place[virtual] == NONE:
        bind(book, leaf, virtual)
        leaf, virtual = book.topology.trees.parent[leaf], book.quotas.trees.parent[virtual]


def _unbind_upwards(book: CellBook, leaf: int) -> None:
    """Unbind a leaf, and the cells above it in which no other cell is bound."""
    virtual, trees = book.virtual[leaf], book.quotas.trees
    while virtual not in book.quotas.pinned:
        unbind(book, book.place[virtual])
        above = trees.parent[virtual]
        if above == NONE or any(book.place[child] != NONE for child in trees.children[above]):
            return
        virtual = above


def _owe(books: FreeCells, cluster: str, level: int, count: int) -> None:
    books.owed_by[cluster][level] += count
    books.owed[level] += count


def _count_leaf(book: CellBook, leaf: int, priority: int, count: int) -> None:
    counts = book.opportunistic if priority == OPPORTUNISTIC else book.guaranteed
    parent, cell = book.topology.trees.parent, leaf
    while cell != NONE:
        counts[cell] += count
        cell = parent[cell]
    book.priority[leaf] = priority if count > 0 else FREE


def _count_virtual(book: CellBook, leaf: int, priority: int, count: int) -> None:
    parent, used, cell = book.quotas.trees.parent, book.used, leaf
    while cell != NONE:
        used[cell] += count
        cell = parent[cell]
    node = book.quotas.node_of[leaf]
    counts = book.priorities.get(node, {})
    if number := counts.get(priority, 0) + count:
        book.priorities[node] = {**counts, priority: number}
    elif len(counts) > 1:
        book.priorities[node] = {each: leafs for each, leafs in counts.items() if each != priority}
    else:
        del book.priorities[node]
    book.virtual_priority[leaf] = priority if count > 0 else FREE

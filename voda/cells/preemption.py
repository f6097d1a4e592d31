"""What decisions do to the book: gangs use, reserve and free cells, lose their guarantee, withdraw.

A reserved leaf counts as its reserver's from the decision on, also while another gang still uses it: so nobody else is
promised it. Rule: each change undoes exactly what its counterpart did; a preemption that is withdrawn leaves no trace.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from voda.cells.bindings import can_be_bound, first_free, give_leaf, take_leaf
from voda.cells.book import CellBook
from voda.cells.gangs import OPPORTUNISTIC, Gang, GangPlacement, GangRequest
from voda.cells.structure.trees import NONE


def reserve(
    book: CellBook, request: GangRequest, placement: GangPlacement, *, virtual: Mapping[int, int], worker: str
) -> None:
    """Reserve the cells of a gang that others still use; `virtual`: physical leaf -> virtual leaf."""
    bound: dict[int, int] = {}
    for leaf, virtual_leaf in virtual.items():
        if book.holder[leaf]:
            give_leaf(book, leaf)
        bound[leaf] = _take_again(book, leaf, virtual_leaf, request.priority)
        book.reserver[leaf] = request.name
    guaranteed = {leaf: cell for leaf, cell in bound.items() if cell != NONE}
    waiting = frozenset({worker})
    book.gangs[request.name] = Gang(
        request=request,
        placement=placement,
        leafs=tuple(bound),
        virtual=guaranteed,
        waiting=waiting,
        is_waiting=True,
    )


def cancel(book: CellBook, name: str) -> None:
    """Withdraw a gang that has only reserved its cells: those who use them have them back."""
    gang = book.gangs.pop(name)
    for leaf in gang.leafs:
        give_leaf(book, leaf)
        book.reserver[leaf] = ""
        if book.holder[leaf]:
            _give_back(book, leaf, book.gangs[book.holder[leaf]])


def _give_back(book: CellBook, leaf: int, user: Gang) -> None:
    """Let a gang that uses a leaf count there again."""
    before = user.virtual.get(leaf, NONE)
    virtual = _take_again(book, leaf, before, user.request.priority)
    if virtual != before:
        others = {cell: each for cell, each in user.virtual.items() if cell != leaf}
        again = others if virtual == NONE else {**others, leaf: virtual}
        book.gangs[user.name] = replace(user, virtual=again)


def _take_again(book: CellBook, leaf: int, virtual: int, priority: int) -> int:
    """Use a leaf, bound to a virtual one; return that, or the one that now stands in its place.

    Bad cells are shown where a virtual cluster has room for them, and that changes with each quota cell that is taken
    or put back: then another virtual leaf of the same quota stands for the leaf; NONE where none is left.
    """
    if virtual != NONE and not can_be_bound(book, leaf, virtual):
        root = book.quotas.root[virtual]
        virtual = _substitute(book, leaf, book.quotas.owner[root], book.quotas.trees.level[root])
    take_leaf(book, leaf, virtual, priority)
    return virtual


def _substitute(book: CellBook, cell: int, cluster: str, level: int) -> int:
    """Return the virtual cell that stands for a physical one, or that can; `level`: that of the quota cell."""
    virtual, trees = book.virtual[cell], book.topology.trees
    if virtual != NONE:
        return virtual if book.quotas.owner[virtual] == cluster else NONE
    if trees.level[cell] == level:
        view = book.quotas.views[cluster, trees.chain[cell].name]
        candidates = view.roots_at.get(level, ()) if book.is_free(cell) else ()
    else:
        above = _substitute(book, trees.parent[cell], cluster, level)
        candidates = () if above == NONE else book.quotas.trees.children[above]
    return first_free(book, candidates)


def finish(book: CellBook, gang: Gang) -> None:
    """Let a gang use the cells that it had reserved."""
    for leaf in gang.leafs:
        book.holder[leaf], book.reserver[leaf] = gang.name, ""
    book.gangs[gang.name] = replace(gang, is_waiting=False, waiting=frozenset())


def end(book: CellBook, name: str) -> None:
    """Free the cells of a gang that is over; those that another has reserved stay with that one."""
    gang = book.gangs.pop(name)
    for leaf in gang.leafs:
        if not book.reserver[leaf]:
            give_leaf(book, leaf)
        book.holder[leaf] = ""


def end_worker(book: CellBook, name: str, slot: int) -> None:
    """Note that a worker is over; with the last one, the gang is."""
    gang = book.gangs[name]
    workers = {index: worker for index, worker in gang.workers.items() if index != slot}
    book.gangs[name] = replace(gang, workers=workers)
    if not workers:
        end(book, name)


def stop_waiting(book: CellBook, name: str, worker: str) -> None:
    """Note that a worker waits no longer; with the last one, the gang withdraws."""
    gang = book.gangs.get(name)
    if gang is not None and gang.is_waiting:
        book.gangs[name] = replace(gang, waiting=gang.waiting - {worker})
        if gang.waiting <= {worker}:
            cancel(book, name)


def downgrade(book: CellBook, name: str, by: str) -> None:
    """Take a gang's guarantee (lazy preemption): it goes on as opportunistic work."""
    gang = book.gangs[name]
    for leaf in gang.virtual:
        if not book.reserver[leaf]:
            give_leaf(book, leaf)
            take_leaf(book, leaf, NONE, OPPORTUNISTIC)
    book.gangs[name] = replace(gang, virtual={}, downgraded_by=by)

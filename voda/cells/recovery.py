"""Recovery: a gang's cells found again from its placement, after a start, a restart or a reconfiguration.

The placement names nodes, devices and types of quota cells; which virtual cell stands for a device is found anew, from
what is bound and what is free. Rules: what runs goes on. Devices that are no longer there are left out. A gang whose
quota is no longer there, or would break somebody's guarantee, loses its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from voda.cells.bindings import first_free, give_leaf, is_only_shown, take_leaf
from voda.cells.book import CellBook
from voda.cells.gangs import LOWEST, Gang, GangPlacement, GangRequest, WorkerCells
from voda.cells.preemption import cancel, downgrade
from voda.cells.structure.quotas import QuotaView
from voda.cells.structure.trees import NONE


def occupy(
    book: CellBook, request: GangRequest, placement: GangPlacement, *, workers: Mapping[int, str] = MappingProxyType({})
) -> Sequence[str]:
    """Let a gang use the cells of its placement, with its guarantee if that can still be kept.

    Reservations of these cells end. Devices that another gang uses are left out, as those that are not there.

    Returns:
        The gangs that lose their guarantee by it, perhaps itself.
    """
    leafs = _leafs_of(book, placement)
    for name in dict.fromkeys([book.reserver[leaf] for leaf in leafs if book.reserver[leaf]]):
        cancel(book, name)
    return take_leafs(book, Gang(request=request, placement=placement, leafs=tuple(leafs), workers=workers), leafs)


def settle(book: CellBook, gang: Gang, root: int) -> bool:
    """Let a gang use leafs of one machine, bound to the virtual ones that stand in a quota cell where they do.

    Gangs for which this is possible together have the same cells in whichever order they come.

    Args:
        root: the quota cell; NONE: it uses them without a guarantee.

    Returns:
        Whether they are its own now; if not, the book is as before, but for the order of free cells.
    """
    leafs, priority, virtual = gang.leafs, gang.request.priority, dict[int, int]()
    if any(book.holder[leaf] or book.reserver[leaf] for leaf in leafs):
        return False
    if root != NONE:
        cell = book.topology.trees.ancestor(leafs[0], book.quotas.trees.level[root])
        # Cells of a tree are numbered alike, be they physical or virtual.
        virtual = {leaf: root + leaf - cell for leaf in leafs}
        if not _is_place(book, cell, root) or not all(_is_below(book, leaf, cell) for leaf in leafs):
            return False
        if any(book.virtual[leaf] != NONE or book.place[each] != NONE for leaf, each in virtual.items()):
            return False
    for number, leaf in enumerate(leafs):
        if not take_leaf(book, leaf, virtual.get(leaf, NONE), priority):
            for taken in leafs[: number + 1]:
                give_leaf(book, taken)
            return False
    for leaf in leafs:
        book.holder[leaf] = gang.name
    settled = Gang(request=gang.request, placement=gang.placement, leafs=leafs, virtual=virtual, workers=gang.workers)
    book.gangs[gang.name] = settled
    return True


def _is_place(book: CellBook, cell: int, root: int) -> bool:
    """Return whether a quota cell is bound to a physical cell, or both are free for it."""
    physical, virtual = book.topology.trees, book.quotas.trees
    if physical.chain[cell] is not virtual.chain[root] or physical.level[cell] != virtual.level[root]:
        return False
    if book.place[root] != NONE:
        return book.place[root] == cell
    return book.virtual[cell] == NONE and book.is_free(cell)


def _is_below(book: CellBook, leaf: int, cell: int) -> bool:
    trees = book.topology.trees
    return trees.ancestor(leaf, trees.level[cell]) == cell


def take_leafs(book: CellBook, gang: Gang, leafs: Mapping[int, WorkerCells]) -> Sequence[str]:
    """Let a gang use leafs that nobody uses or has reserved; return the gangs that lose their guarantee by it."""
    request, recovery = gang.request, _Recovery(book, gang.request)
    book.gangs[request.name] = Gang(
        request=request, placement=gang.placement, leafs=gang.leafs, virtual=recovery.virtual, workers=gang.workers
    )
    for leaf, cells in leafs.items():
        recovery.take(leaf, cells)
    if recovery.must_downgrade:
        downgrade(book, request.name, book.gangs[request.name].downgraded_by or request.name)
        recovery.downgraded.append(request.name)
    return recovery.downgraded


def may_find_quota(book: CellBook, request: GangRequest, cells: WorkerCells) -> bool:
    """Return whether a gang of one worker that has these cells without a guarantee may find quota cells for them.

    If not, `occupy` would leave it, and everybody else, as they are.
    """
    leafs = book.gangs[request.name].leafs
    # What is used without a guarantee does not matter to what virtual cells stand for.
    return _Recovery(book, request).find(leafs[0], cells) != NONE or any(book.reserver[leaf] for leaf in leafs)


def _leafs_of(book: CellBook, placement: GangPlacement) -> dict[int, WorkerCells]:
    """Return the leafs of a placement that are there and that nobody uses, with the worker that has each."""
    leafs: dict[int, WorkerCells] = {}
    leaf_at, holder = book.topology.leaf_at, book.holder
    for cells in placement:
        for device in cells.devices:
            leaf = leaf_at.get((cells.node, device), NONE)
            if leaf != NONE and not holder[leaf]:
                leafs.setdefault(leaf, cells)
    return leafs


@dataclass(slots=True)
class _Recovery:
    """A gang whose leafs are taken one after another."""

    book: CellBook
    request: GangRequest
    virtual: dict[int, int] = field(default_factory=dict)
    must_downgrade: bool = False
    downgraded: list[str] = field(default_factory=list)
    """Gangs that lost their guarantee to it."""

    def take(self, leaf: int, cells: WorkerCells) -> None:
        """Take a leaf for the gang, below a quota cell where one is found."""
        virtual = NONE
        if cells.quota and not self.must_downgrade:
            virtual = self._virtual_leaf(leaf, cells)
            self.must_downgrade = virtual == NONE
        if virtual != NONE:
            self.virtual[leaf] = virtual
        self.must_downgrade |= not take_leaf(self.book, leaf, virtual, self.request.priority)
        self.book.holder[leaf] = self.request.name

    def _virtual_leaf(self, leaf: int, cells: WorkerCells) -> int:
        """Return the virtual leaf for a physical one, which is there for the gang now; NONE where it has none."""
        virtual = self.find(leaf, cells)
        return virtual if virtual != NONE and self._make_room(leaf, self.book.quotas.root[virtual]) else NONE

    def find(self, leaf: int, cells: WorkerCells) -> int:
        """Return the virtual leaf that can stand for a physical one; NONE where the virtual cluster has none."""
        quotas, chain = self.book.quotas, self.book.topology.trees.chain[leaf]
        level, view = chain.levels.get(cells.quota), self._view(chain.name)
        if level is None or view is None:
            return NONE
        virtual = self._find(leaf, level, view.roots_at.get(level, ()))
        return NONE if virtual == NONE or quotas.root[virtual] not in view.roots else virtual

    def _view(self, chain: str) -> QuotaView | None:
        request, quotas = self.request, self.book.quotas
        if request.pin:
            return quotas.pin_views.get((request.virtual_cluster, request.pin))
        return quotas.views.get((request.virtual_cluster, chain))

    def _find(self, cell: int, level: int, roots: Sequence[int]) -> int:
        """Return the virtual cell for a physical one: that which it is bound to, else one below its parent's."""
        book = self.book
        if book.virtual[cell] != NONE:
            return book.virtual[cell]
        if book.topology.trees.level[cell] == level:
            return self._cheapest(roots) if book.is_free(cell) else NONE
        above = book.topology.trees.parent[cell]
        found = NONE if above == NONE else self._find(above, level, roots)
        return NONE if found == NONE else self._cheapest(book.quotas.trees.children[found])

    def _cheapest(self, cells: Sequence[int]) -> int:
        """Return the first that is free, else the one that is used with the lowest priority below the gang's."""
        book = self.book
        if (free := first_free(book, cells)) != NONE:
            return free
        pinned, lowest, bound = book.quotas.pinned, NONE, self.request.priority
        if bound <= LOWEST:
            return NONE
        for cell in cells:
            if book.used[cell] and cell not in pinned and (highest := book.highest_priority(cell)) < bound:
                lowest, bound = cell, highest
        return lowest

    def _make_room(self, leaf: int, root: int) -> bool:
        """Where the quota cell is in use elsewhere, end the guarantees in it; return whether it can be used here."""
        book = self.book
        if book.place[root] == NONE or is_only_shown(book, root):
            return not book.gangs[self.request.name].downgraded_by
        here = {NONE, *book.topology.trees.path(leaf)}
        if book.place[root] not in here:
            cells = [book.place[virtual] for virtual in book.quotas.trees.leafs[root] if book.place[virtual] != NONE]
            for name in dict.fromkeys(book.reserver[cell] for cell in cells if book.reserver[cell]):
                cancel(book, name)
            for name in dict.fromkeys(book.holder[cell] for cell in cells if book.holder[cell]):
                downgrade(book, name, self.request.name)
                self.downgraded.append(name)
        return book.place[root] in here and not book.gangs[self.request.name].downgraded_by

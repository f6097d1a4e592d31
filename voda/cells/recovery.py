"""Recovery: a gang's cells found again from its placement, after a start, a restart or a reconfiguration.

The placement names nodes, devices and types of quota cells; which virtual cell stands for a device is found anew, from
what is bound and what is free. Rules: what runs goes on. Devices that are no longer there are left out. A gang whose
quota is no longer there, or would break somebody's guarantee, loses its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from voda.cells.bindings import count_leafs, take_leaf
from voda.cells.book import CellBook
from voda.cells.gangs import OPPORTUNISTIC, Gang, GangPlacement, GangRequest, WorkerCells
from voda.cells.preemption import cancel, downgrade, end
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
    return _take(book, Gang(request=request, placement=placement, leafs=tuple(leafs), workers=workers), leafs)


def resume(
    book: CellBook, groups: Iterable[Sequence[Gang]], known: Mapping[str, Gang] = MappingProxyType({})
) -> Sequence[str]:
    """Let gangs of one worker each use their leafs, which nobody uses or has reserved, as `occupy` does but sooner.

    Args:
        groups: gangs of one virtual cluster and priority; the next is asked for when the one before has its leafs.
        known: gangs of the same requests as they were once; one whose leafs are bound as then is not made again.

    Returns:
        The gangs that lose their guarantee by it.
    """
    beside, downgraded = _Beside(book, known), list[str]()
    for gangs in groups:
        if not gangs[0].request.is_guaranteed:
            _use_idle(book, gangs)
            continue
        number = 0
        while (number := beside.take(gangs, number)) < len(gangs):
            (cells,) = gangs[number].placement
            downgraded += _take(book, gangs[number], dict.fromkeys(gangs[number].leafs, cells))
            beside = _Beside(book, known)
            number += 1
    return downgraded


def _use_idle(book: CellBook, gangs: Sequence[Gang]) -> None:
    holder, opportunistic, priorities = book.holder, book.opportunistic, book.priority
    parent = book.topology.trees.parent
    for gang in gangs:
        book.gangs[gang.request.name] = gang
        for leaf in gang.leafs:
            holder[leaf], priorities[leaf] = gang.request.name, OPPORTUNISTIC
            while leaf != NONE:
                opportunistic[leaf] += 1
                leaf = parent[leaf]


def _take(book: CellBook, gang: Gang, leafs: Mapping[int, WorkerCells]) -> Sequence[str]:
    """Take the leafs for a gang, and return the gangs that lose their guarantee by it."""
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


@dataclass(slots=True)
class _Beside:
    """Takes leafs beside those that gangs of the same virtual cluster have taken: for most, nothing is to search."""

    book: CellBook
    known: Mapping[str, Gang]
    above: int = NONE
    """The physical cell in which these are."""
    key: tuple[str, int, str] = ("", 0, "")
    """Virtual cluster, priority and type of quota cell of the gangs that can go there."""
    unbound: list[int] = field(default_factory=list)
    """The virtual leafs that are left there, the last one first."""
    taken: dict[int, int] = field(default_factory=dict)
    """Physical leafs there that are not counted yet -> their virtual leafs."""

    def take(self, gangs: Sequence[Gang], number: int) -> int:
        """Let gangs use their leafs, from one number on; return that of the first for which it is not so simple."""
        book, unbound = self.book, self.unbound
        parent, bound, place, holder = book.topology.trees.parent, book.virtual, book.place, book.holder
        while number < len(gangs):
            gang = gangs[number]
            request, leafs = gang.request, gang.leafs
            above, key = parent[leafs[0]], (request.virtual_cluster, request.priority, gang.placement[0].quota)
            if above != self.above or key != self.key:
                unbound = self._go_to(above, key)
            is_simple = len(unbound) >= len(leafs) and not request.pin
            for leaf in leafs:
                is_simple = is_simple and bound[leaf] == NONE and parent[leaf] == above
            if not is_simple:
                break
            known = self.known.get(request.name)
            virtual = known.virtual if known is not None and known.request is request else {}
            is_as_known = len(virtual) == len(leafs)
            for leaf in leafs:
                cell = self.taken[leaf] = unbound.pop()
                bound[leaf], place[cell], holder[leaf] = cell, leaf, request.name
                is_as_known = is_as_known and virtual[leaf] == cell
            if not is_as_known or known is None:
                virtual = {leaf: bound[leaf] for leaf in leafs}
                known = Gang(request=request, placement=gang.placement, leafs=leafs, virtual=virtual)
            book.gangs[request.name] = known
            number += 1
        self._count()
        return number

    def _count(self) -> None:
        if self.taken:
            count_leafs(self.book, self.taken, self.key[1])
            self.taken = {}

    def _go_to(self, above: int, key: tuple[str, int, str]) -> list[int]:
        self._count()
        self.above, self.key, self.unbound = above, key, []
        book, quotas, (cluster, _, quota) = self.book, self.book.quotas, key
        virtual = NONE if above == NONE else book.virtual[above]
        if virtual != NONE:
            root, trees, place = quotas.root[virtual], book.topology.trees, book.place
            is_own = quotas.owner[root] == cluster and root not in quotas.pinned and not book.bad[place[root]]
            if is_own and trees.level[above] <= trees.chain[above].levels.get(quota, NONE):
                self.unbound = [each for each in reversed(quotas.trees.children[virtual]) if place[each] == NONE]
        return self.unbound


def regain(book: CellBook, name: str) -> CellBook | None:
    """Return the book in which a gang that lost its guarantee has it again; None where its quota is not free.

    Nobody else loses anything by it.
    """
    gang = book.gangs[name]
    if not gang.downgraded_by or any(book.reserver[leaf] for leaf in gang.leafs):
        return None
    trial = book.copy()
    end(trial, name)
    occupy(trial, gang.request, gang.placement, workers=gang.workers)
    others = (other for other in book.gangs if other != name)
    if trial.gangs[name].downgraded_by or any(trial.gangs.get(each) != book.gangs[each] for each in others):
        return None
    return trial


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
        """Return the virtual leaf for a physical one; NONE where the virtual cluster has none."""
        quotas, chain = self.book.quotas, self.book.topology.trees.chain[leaf]
        level, view = chain.levels.get(cells.quota), self._view(chain.name)
        if level is None or view is None:
            return NONE
        virtual = self._find(leaf, level, view.roots_at.get(level, ()))
        if virtual == NONE or quotas.root[virtual] not in view.roots:
            return NONE
        return virtual if self._make_room(leaf, quotas.root[virtual]) else NONE

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
        book, place = self.book, self.book.place
        for cell in cells:
            if place[cell] == NONE:
                return cell
        leafs, pinned = book.quotas.trees.leafs, book.quotas.pinned
        used = [cell for cell in cells if book.used[cell] and cell not in pinned]
        priorities = {cell: max(book.virtual_priority[leaf] for leaf in leafs[cell]) for cell in used}
        lowest = min(priorities, key=priorities.__getitem__, default=NONE)
        return lowest if lowest != NONE and priorities[lowest] < self.request.priority else NONE

    def _make_room(self, leaf: int, root: int) -> bool:
        """Where the quota cell is in use elsewhere, end the guarantees in it; return whether it can be used here."""
        book = self.book
        if book.place[root] == NONE:
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

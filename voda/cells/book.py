"""The book of all cells: who uses, owns and has reserved what; a fold of decisions, cheap to copy for a trial.

`open_book` checks that the quotas fit and pins what is pinned. Cells are numbers; what is known of them stands in
lists. The modules `bindings`, `health` and `preemption` change the book; `scheduling` only reads it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from voda.cells.free_cells import FreeCells, new_books, spare_cells
from voda.cells.gangs import FREE, Gang, GangState
from voda.cells.structure.quotas import Quotas
from voda.cells.structure.topology import Topology
from voda.cells.structure.trees import NONE
from voda.domain.errors import InvalidInput


@dataclass
class CellBook:
    """Everything about the cells at one moment."""

    topology: Topology
    quotas: Quotas
    free: Mapping[str, FreeCells]
    """Chain -> its free cells."""
    # By physical cell:
    virtual: list[int]
    """The virtual cell that it is bound to, or NONE."""
    bad: list[bool]
    """Whether it or a cell in it is bad."""
    guaranteed: list[int]
    """Leafs in it that are used or reserved with a guarantee."""
    opportunistic: list[int]
    """Leafs in it that are used without one."""
    priority: list[int]
    """Of leafs: that of the gang which uses or has reserved it."""
    holder: list[str]
    """Of leafs: the gang that uses it."""
    reserver: list[str]
    """Of leafs: the gang that has reserved it."""
    # By virtual cell:
    place: list[int]
    """The physical cell that it is bound to, or NONE."""
    used: list[int]
    """Leafs in it that are used or reserved."""
    virtual_priority: list[int]
    """Of leafs."""
    priorities: dict[int, Mapping[int, int]]
    """Node of a view -> priority -> leafs in it that are used or reserved with it; nodes in use only."""
    gangs: dict[str, Gang]
    bad_nodes: set[str]

    def copy(self) -> "CellBook":
        """Return a book to try things in."""
        return CellBook(
            self.topology,
            self.quotas,
            {name: books.copy() for name, books in self.free.items()},
            self.virtual.copy(),
            self.bad.copy(),
            self.guaranteed.copy(),
            self.opportunistic.copy(),
            self.priority.copy(),
            self.holder.copy(),
            self.reserver.copy(),
            self.place.copy(),
            self.used.copy(),
            self.virtual_priority.copy(),
            self.priorities.copy(),
            self.gangs.copy(),
            self.bad_nodes.copy(),
        )

    def books(self, cell: int) -> FreeCells:
        """Return the free cells of a physical cell's chain."""
        return self.free[self.topology.trees.chain[cell].name]

    def is_pinned(self, cell: int) -> bool:
        """Return whether a physical cell is bound to its quota cell for ever."""
        root = self.virtual[cell]
        return root != NONE and self.quotas.pinned.get(root) == cell

    def is_bad_binding(self, virtual: int) -> bool:
        """Return whether a virtual cell is bound to a bad cell."""
        return self.place[virtual] != NONE and self.bad[self.place[virtual]]

    def is_free(self, cell: int) -> bool:
        """Return whether a physical cell, or one that contains it, is among the free cells."""
        split, parent = self.books(cell).split, self.topology.trees.parent
        while True:
            if self.virtual[cell] != NONE or cell in split:
                return False
            if parent[cell] == NONE or parent[cell] in split:
                return True
            cell = parent[cell]

    def used_from(self, node: int, priority: int) -> int:
        """Return how many leafs of a view's node are used or reserved with this priority or a higher one."""
        return sum(count for each, count in self.priorities.get(node, {}).items() if each >= priority)

    def highest_priority(self, cell: int) -> int:
        """Return the highest priority with which leafs of a virtual cell are used or reserved; FREE: none is."""
        if (counts := self.priorities.get(cell)) is not None:
            return max(counts)
        return max([self.virtual_priority[leaf] for leaf in self.quotas.trees.leafs[cell]])

    def state(self, gang: Gang) -> GangState:
        """Return what becomes of the gang's cells."""
        if gang.is_waiting:
            return GangState.PREEMPTING
        is_leaving = any(self.reserver[leaf] for leaf in gang.leafs)
        return GangState.BEING_PREEMPTED if is_leaving else GangState.ALLOCATED


@dataclass(frozen=True)
class Shortage:
    """A level at which the physical cells do not suffice for the quotas."""

    chain: str
    cell_type: str
    level: int
    owed: int
    available: int

    def __str__(self) -> str:
        cells = "cell" if self.owed == 1 else "cells"
        there = "1 is available" if self.available == 1 else f"{self.available} are available"
        return (
            f"the virtual clusters are owed {self.owed} {cells} of type {self.cell_type} (level {self.level}) in chain"
            f" {self.chain}, and {there}"
        )


def open_book(topology: Topology, quotas: Quotas) -> CellBook:
    """Return the book of unused, healthy cells.

    Raises:
        InvalidInput: the quotas do not fit: it names type, level, owed and available.
    """
    book = _empty(topology, quotas)
    for cluster in quotas.clusters:
        for root in (root for (name, _), view in quotas.views.items() if name == cluster for root in view.roots):
            books = book.free[quotas.trees.chain[root].name]
            books.owed_by[cluster][quotas.trees.level[root]] += 1
            books.owed[quotas.trees.level[root]] += 1
    for root, cell in quotas.pinned.items():
        _pin(book, root, cell)
    lacking = shortages(book)
    if lacking:
        raise InvalidInput("; ".join(str(each) for each in lacking))
    return book


def shortages(book: CellBook) -> list[Shortage]:
    """Return where the cells that are left do not suffice for those that are owed, chain by chain, from the top."""
    lacking = []
    for name, books in book.free.items():
        spare = spare_cells(books.chain, books.lists, books.owed)
        for kind in reversed(books.chain.types):
            if spare[kind.level] < 0:
                owed = books.owed[kind.level]
                lacking.append(Shortage(name, kind.name, kind.level, owed, owed + spare[kind.level]))
    return lacking


def _empty(topology: Topology, quotas: Quotas) -> CellBook:
    cells, virtual = len(topology.trees.parent), len(quotas.trees.parent)
    return CellBook(
        topology,
        quotas,
        {name: _books(topology, name, quotas.clusters) for name in topology.chains},
        [NONE] * cells,
        [False] * cells,
        [0] * cells,
        [0] * cells,
        [FREE] * cells,
        [""] * cells,
        [""] * cells,
        [NONE] * virtual,
        [0] * virtual,
        [FREE] * virtual,
        {},
        {},
        set(),
    )


def _books(topology: Topology, name: str, clusters: Sequence[str]) -> FreeCells:
    chain = topology.chains[name]
    return new_books(topology.trees, chain, topology.cells_at.get((name, chain.top), ()), clusters)


def _pin(book: CellBook, root: int, cell: int) -> None:
    """Bind a pinned cell; nothing is bad yet, so that the books are all that changes."""
    books, level = book.books(cell), book.topology.trees.level[cell]
    top = books.remove(cell)
    for above in range(level, top + 1):
        books.left[above] -= 1
    below = books.chain.type_at(level).leafs
    for lower in range(1, level):
        books.left[lower] -= below // books.chain.type_at(lower).leafs
    book.virtual[cell], book.place[root] = root, cell

"""Mapping: physical cells for virtual leafs, such that the topology inside of quota cells and all guarantees are kept.

A virtual cell that is bound stays where it is, and what is below a bound cell is looked for within it. For a whole
quota cell the smallest free cell that holds one is split (buddy allocation). Where all of those are bad, a larger one
is split if enough cells remain for everybody (safe relaxed split). Rules: nothing in the book changes; among usable
cells, the one on which the least opportunistic work is lost comes first, then the order of the free cells.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from voda.cells.book import CellBook
from voda.cells.free_cells import FreeCells, spare_cells
from voda.cells.search.losses import Losses, loss_in
from voda.cells.search.matching import first_matching
from voda.cells.structure.cell_types import LEAF
from voda.cells.structure.trees import NONE

Bindings = dict[int, int]
"""Virtual leaf -> physical leaf."""


def map_leafs(
    book: CellBook, leafs: Iterable[int], nodes: Set[str] | None, losses: Losses | None = None
) -> Mapping[int, int] | None:
    """Return the physical leaf of each virtual one, all of one chain; None where only unusable cells are left.

    Args:
        nodes: the only machines that may be used; None = any.
        losses: what is lost when a gang leaves; None = its leafs count.
    """
    paths = _Paths()
    for leaf in leafs:
        paths.add(book, leaf)
    search = _Search(book, nodes, paths.children, losses)
    if not _map_roots(search, paths):
        return None
    for above, cells in paths.inner.items():
        fit = search.match(cells, book.topology.trees.children[book.place[above]])
        if fit is None:
            return None
        paths.bindings |= fit.bindings
    return paths.bindings


@dataclass
class _Paths:
    """The virtual cells that must be bound along with the leafs."""

    bindings: Bindings = field(default_factory=dict)
    """Of leafs that are bound already."""
    roots: list[int] = field(default_factory=list)
    """Quota cells that are not bound."""
    inner: dict[int, list[int]] = field(default_factory=dict)
    """Bound cell -> cells directly in it that are not."""
    children: dict[int, list[int]] = field(default_factory=dict)
    """Cell that is not bound -> those in it that are to be bound too."""

    def add(self, book: CellBook, cell: int) -> None:
        if book.place[cell] != NONE:
            self.bindings[cell] = book.place[cell]
            return
        while True:
            above = book.quotas.trees.parent[cell]
            if above == NONE:
                self.roots.append(cell)
                return
            if book.place[above] != NONE:
                self.inner.setdefault(above, []).append(cell)
                return
            if above in self.children:
                self.children[above].append(cell)
                return
            self.children[above] = [cell]
            cell = above


class _Fit(NamedTuple):
    """Physical cells that can stand for virtual ones."""

    cells: list[int]
    bindings: Bindings


@dataclass
class _Search:
    """What cells can stand for which."""

    book: CellBook
    nodes: Set[str] | None
    children: Mapping[int, Sequence[int]]
    losses: Losses | None

    def usable(self, candidates: Sequence[int], level: int) -> list[int]:
        """Return the candidates that can be used at least in part, those on which the least is lost first.

        Args:
            level: that of the cell which is looked for in them.
        """
        usable = [cell for cell in candidates if self._is_usable(cell)]
        self._sort(usable, level)
        return usable

    def _sort(self, cells: list[int], level: int) -> None:
        if self.losses is None:
            cells.sort(key=self.book.opportunistic.__getitem__)
        elif len(cells) > 1:
            cells.sort(key=partial(self._least_loss, self.losses, level))

    def _least_loss(self, losses: Losses, level: int, cell: int) -> tuple[int, int, float, float]:
        """Return what is lost on the best cell of a level that is or is in this one."""
        trees = self.book.topology.trees
        if trees.level[cell] <= level or not self.book.opportunistic[cell]:
            return loss_in(self.book, losses, cell)
        return min(self._least_loss(losses, level, child) for child in trees.children[cell])

    def _is_usable(self, cell: int) -> bool:
        nodes = self.book.topology.nodes[cell]
        # A bad cell of several machines may still hold a good one.
        if self.book.virtual[cell] != NONE or (self.book.bad[cell] and len(nodes) == 1):
            return False
        return self.nodes is None or not self.nodes.isdisjoint(nodes)

    def match(self, cells: Sequence[int], candidates: Sequence[int]) -> _Fit | None:
        """Return a candidate for each virtual cell, and the bindings of the leafs below."""
        level, opportunistic = self.book.quotas.trees.level[cells[0]], self.book.opportunistic
        usable = [cell for cell in candidates if self._is_usable(cell)]
        if len(usable) < len(cells):
            return None
        # Candidates on which nothing is lost come first; mostly they suffice, and what is lost elsewhere is no matter.
        idle = [cell for cell in usable if not opportunistic[cell]]
        if len(idle) >= len(cells) and (fit := self._match_in_order(cells, idle)) is not None:
            return fit
        lent = [cell for cell in usable if opportunistic[cell]]
        self._sort(lent, level)
        usable = idle + lent
        in_order = self._match_in_order(cells, usable) if lent else None
        return in_order or self._match_all(cells, usable)

    def _match_in_order(self, cells: Sequence[int], usable: Sequence[int]) -> _Fit | None:
        """Give each cell the first candidate that is left and fits: nearly always that is all there is to do."""
        if self.book.quotas.trees.level[cells[0]] == LEAF:
            return _Fit([*usable[: len(cells)]], dict(zip(cells, usable, strict=False)))
        left, chosen, bindings = list(usable), [], Bindings()
        for cell in cells:
            fitting = ((each, fit) for each in left if (fit := self._fit(cell, each)) is not None)
            candidate, fit = next(fitting, (NONE, Bindings()))
            if candidate == NONE:
                return None
            left.remove(candidate)
            chosen.append(candidate)
            bindings |= fit
        return _Fit(chosen, bindings)

    def _match_all(self, cells: Sequence[int], usable: Sequence[int]) -> _Fit | None:
        if len(cells) == 1:
            return None
        fits = [self._fits(cell, usable) for cell in cells]
        chosen = first_matching([list(each) for each in fits])
        if chosen is None:
            return None
        bindings = Bindings()
        for candidate, fitting in zip(chosen, fits, strict=True):
            bindings |= fitting[candidate]
        return _Fit(chosen, bindings)

    def _fits(self, cell: int, usable: Sequence[int]) -> dict[int, Bindings]:
        return {each: fit for each in usable if (fit := self._fit(cell, each)) is not None}

    def _fit(self, cell: int, candidate: int) -> Bindings | None:
        found = self.match(self.children[cell], self.book.topology.trees.children[candidate])
        return None if found is None else found.bindings


def _map_roots(search: _Search, paths: _Paths) -> bool:
    """Find a free cell for every quota cell that is not bound; return whether there is one for each."""
    if not paths.roots:
        return True
    trees = search.book.quotas.trees
    books = search.book.free[trees.chain[paths.roots[0]].name]
    if len(paths.roots) > 1:
        books = books.copy()
    for root in paths.roots:
        fit = _split(search, root, books) or _split_relaxed(search, root, books)
        if fit is None:
            return False
        paths.bindings |= fit.bindings
        if len(paths.roots) > 1:
            books.remove(fit.cells[0])
            books.owed[trees.level[root]] -= 1
    return True


def _split(search: _Search, root: int, books: FreeCells) -> _Fit | None:
    """Buddy allocation: a cell of the lowest level that has free ones, or one within them."""
    level = search.book.quotas.trees.level[root]
    lowest = next((each for each in range(level, books.chain.top + 1) if books.lists[each]), None)
    return None if lowest is None else _find_within(search, root, books.lists[lowest], lowest)


def _find_within(search: _Search, root: int, candidates: Sequence[int], level: int) -> _Fit | None:
    """Return a cell for the quota cell that is one of the candidates, all of one level, or below one."""
    wanted = search.book.quotas.trees.level[root]
    if level == wanted:
        return search.match([root], candidates)
    below = (search.book.topology.trees.children[cell] for cell in search.usable(candidates, wanted))
    fits = (_find_within(search, root, children, level - 1) for children in below)
    return next((fit for fit in fits if fit is not None), None)


def _split_relaxed(search: _Search, root: int, books: FreeCells) -> _Fit | None:
    """Return a cell within larger free ones, of which as many may be split as nobody is owed."""
    level = search.book.quotas.trees.level[root]
    spare = spare_cells(books.chain, books.lists, books.owed)
    for higher in range(level + 1, books.chain.top + 1):
        cells = books.lists[higher][: max(0, spare[higher])]
        for _ in range(higher - level):
            cells = [child for cell in cells for child in search.book.topology.trees.children[cell]]
        fit = search.match([root], cells)
        if fit is not None:
            return fit
    return None

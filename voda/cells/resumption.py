"""Resumption: many gangs of one worker each have their cells again, as `recovery.occupy` gives them, but sooner.

1. Gangs that are next to each other come as one batch. 2. Where all cells are as simple as most, they are resumed cell
by cell, at once. 3. Else batch by batch: with the first batch in a cell, the cell is bound, where that is simple, and
what is in it is bound together, later; all else is recovered gang by gang. 4. What was in a cell in the book before
and is there again is taken over. Rule: the book is the same as if each gang had come alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import Struct

from voda.cells.bindings import bind, count_leafs, take_quota_cell, take_quota_cells, unbind
from voda.cells.book import CellBook
from voda.cells.gangs import OPPORTUNISTIC, Gang, GangBatch
from voda.cells.recovery import take_leafs
from voda.cells.structure.trees import NONE


class CellContent(Struct, frozen=True, kw_only=True, gc=False):
    """What is in a cell that is bound to a quota cell as a whole."""

    virtual: int
    batches: Sequence[GangBatch]
    quota: tuple[str, str, int]
    """Virtual cluster, chain and level of its quota cell."""
    gangs: Mapping[str, Gang]
    physical: tuple[list[int], list[str], list[int], list[int]]
    """Of its leafs: virtual leaf, holder, priority, and whether they are used with a guarantee."""
    bound: tuple[list[int], list[int], list[int]]
    """Of its virtual leafs: physical leaf, whether they are used, and their priority."""
    priorities: Mapping[int, int]
    here: slice
    """Where its leafs stand."""
    there: slice
    """Where its virtual leafs stand."""
    node: int
    """The node of a view that these belong to."""
    used: int
    """How many of them are used."""


class ResumedCells(Struct, frozen=True, eq=False, kw_only=True, gc=False):
    """A book in which each cell with guaranteed gangs is bound to a quota cell, and nothing else is used."""

    unused: CellBook
    """The one that it was made of."""
    book: CellBook
    """It is never changed."""
    bound: Mapping[int, int]
    """Cell -> its quota cell, in the order in which they were taken."""
    contents: Mapping[int, CellContent]
    """By cell."""


@dataclass(slots=True)
class KeptCells:
    """What was in cells in the books before."""

    contents: dict[int, CellContent] = field(default_factory=dict)
    """Cell -> what was in it last."""
    last: ResumedCells | None = None


def resume(
    book: CellBook, guaranteed: Sequence[GangBatch], idle: Iterable[GangBatch], kept: KeptCells
) -> tuple[CellBook, Sequence[str]]:
    """Let gangs use their leafs, in order, those with a guarantee first.

    Args:
        kept: what was in cells in the books before; it becomes what is in them now. It belongs to this book.

    Returns:
        The book, which is another one, and the gangs that lose their guarantee by it.
    """
    resumed, downgraded = _resume_cells(book, guaranteed, kept), list[str]()
    if resumed is None:
        resumed = book.copy()
        resumption = _Resumption(resumed, kept.contents, downgraded)
        for batch in guaranteed:
            resumption.take(batch)
        resumption.bind_all()
    for batch in idle:
        _use_idle(resumed, batch)
    return resumed, downgraded


def _resume_cells(book: CellBook, come: Sequence[GangBatch], kept: KeptCells) -> CellBook | None:
    """Return the book in which each cell of the batches is bound to a quota cell; None where one cannot be, simply."""
    cells = dict[int, list[GangBatch]]()
    for batch in come:
        if (others := cells.get(batch.above)) is None:
            cells[batch.above] = [batch]
        else:
            others.append(batch)
    bound = None if NONE in cells else _quota_cells(book, cells, kept.contents)
    if bound is None:
        return None
    # Threads may share what is kept, so it is read once.
    last = kept.last
    if last is None or last.unused is not book:
        resumed, contents = book.copy(), dict[int, CellContent]()
        if not take_quota_cells(resumed, bound):
            return None
        changed: Iterable[int] = cells
    else:
        changed = [cell for cell, inside in cells.items() if not _is_as_before(last, cell, bound[cell], inside)]
        taken = _rebound(last, bound, changed)
        if taken is None:
            return None
        resumed, contents = taken
    resumed.gangs.clear()
    resumed.gangs.update(book.gangs)
    for batch in come:
        resumed.gangs.update(batch.gangs)
    resumption = _Resumption(resumed, kept.contents)
    for cell in changed:
        contents[cell] = resumption.fill(cell, cells[cell])
    for content in contents.values():
        resumed.gangs.update(content.gangs)
    kept.last = ResumedCells(unused=book, book=resumed, bound=bound, contents=contents)
    return resumed.copy()


def _is_as_before(last: ResumedCells, cell: int, root: int, inside: Sequence[GangBatch]) -> bool:
    content = last.contents.get(cell)
    return content is not None and content.virtual == root and content.batches == inside


def _rebound(
    last: ResumedCells, bound: Mapping[int, int], changed: Iterable[int]
) -> tuple[CellBook, dict[int, CellContent]] | None:
    """Return a copy of the last book in which these cells are bound, those that changed without their content.

    None where it is not certain that all guarantees can be kept.
    """
    unused, free = last.unused, None
    if [*bound] != [*last.bound] or [*bound.values()] != [*last.bound.values()]:
        # Which cells are handed out next depends on the order in which all these were taken.
        books = {name: books.copy() for name, books in unused.free.items()}
        taken = replace(unused, free=books, virtual=unused.virtual.copy(), place=unused.place.copy())
        if not take_quota_cells(taken, bound):
            return None
        free = taken.free
    resumed, contents = last.book.copy(), dict(last.contents)
    if free is not None:
        resumed.free = free
    changed = [*changed]
    for cell in [*(cell for cell in last.bound if cell not in bound), *(cell for cell in changed if cell in contents)]:
        _empty(resumed, unused, cell, contents.pop(cell))
    for cell in changed:
        bind(resumed, cell, bound[cell])
    return resumed, contents


def _empty(book: CellBook, unused: CellBook, cell: int, content: CellContent) -> None:
    """Undo what `_Resumption.fill` did to a cell, and unbind it."""
    here, there, parent = content.here, content.there, book.topology.trees.parent
    book.virtual[here], book.holder[here] = unused.virtual[here], unused.holder[here]
    book.priority[here], book.guaranteed[here] = unused.priority[here], unused.guaranteed[here]
    book.place[there], book.used[there] = unused.place[there], unused.used[there]
    book.virtual_priority[there] = unused.virtual_priority[there]
    del book.priorities[content.node]
    book.used[content.virtual] -= content.used
    unbind(book, cell)
    while cell != NONE:
        book.guaranteed[cell] -= content.used
        cell = parent[cell]


def _quota_cells(
    book: CellBook, cells: Mapping[int, Sequence[GangBatch]], before: Mapping[int, CellContent]
) -> dict[int, int] | None:
    """Return the next quota cell for each cell; None where that is not simple."""
    trees, bound = book.topology.trees, dict[int, int]()
    unbound: dict[tuple[str, str, int], Iterator[int]] = {}
    for cell, inside in cells.items():
        kept = before.get(cell)
        if kept is not None and kept.batches == inside:
            quota = kept.quota
        else:
            first, chain, level = inside[0], trees.chain[cell], trees.level[cell]
            if any(each.cluster != first.cluster or each.quota != first.quota for each in inside):
                return None
            if chain.levels.get(first.quota) != level:
                return None
            quota = first.cluster, chain.name, level
        if (roots := unbound.get(quota)) is None:
            roots = unbound[quota] = _unbound_roots(book, cell, quota[0])
        bound[cell] = next(roots, NONE)
    return None if NONE in bound.values() else bound


def _use_idle(book: CellBook, batch: GangBatch) -> None:
    holder, opportunistic, priorities = book.holder, book.opportunistic, book.priority
    parent = book.topology.trees.parent
    book.gangs.update(batch.gangs)
    for name, gang in batch.gangs.items():
        for leaf in gang.leafs:
            holder[leaf], priorities[leaf] = name, OPPORTUNISTIC
            while leaf != NONE:
                opportunistic[leaf] += 1
                leaf = parent[leaf]


@dataclass(slots=True)
class _CellInWork:
    """Batches in one cell that is bound; their leafs are not yet."""

    cluster: str
    quota: str
    left: int
    """Virtual leafs there that are nobody's."""
    is_new: bool
    """Whether nothing else is in the cell."""
    batches: list[GangBatch] = field(default_factory=list)


@dataclass(slots=True)
class _Resumption:
    book: CellBook
    before: dict[int, CellContent]
    downgraded: list[str] = field(default_factory=list)
    waiting: dict[int, _CellInWork] = field(default_factory=dict)
    """By the cell that they are in."""

    def take(self, batch: GangBatch) -> None:
        """Let gangs with a guarantee have their leafs, now or by `bind_all`."""
        waiting = self.waiting.get(batch.above)
        if waiting is None and batch.above != NONE:
            waiting = self._open(batch)
        if waiting is None or not self._fits(batch, waiting):
            self._take_one_by_one(batch)
        else:
            self.waiting[batch.above] = waiting
            waiting.left -= len(batch.leafs)
            waiting.batches.append(batch)
            self.book.gangs.update(batch.gangs)

    def _fits(self, batch: GangBatch, waiting: _CellInWork) -> bool:
        if waiting.left < len(batch.leafs) or waiting.cluster != batch.cluster or waiting.quota != batch.quota:
            return False
        return waiting.is_new or all(self.book.virtual[leaf] == NONE for leaf in batch.leafs)

    def bind_all(self) -> None:
        """Bind the leafs of all gangs that wait for it."""
        for above, waiting in self.waiting.items():
            # A gang that has lost its guarantee may be there without one: that is no part of what is kept.
            if waiting.is_new and not self.book.opportunistic[above]:
                self.fill(above, waiting.batches)
            else:
                self._bind_leafs(self.book.virtual[above], waiting.batches)
        self.waiting.clear()

    def fill(self, above: int, inside: Sequence[GangBatch]) -> CellContent:
        """Bind the leafs of all gangs in a cell in which nobody else is; return what is in it."""
        virtual, kept = self.book.virtual[above], self.before.get(above)
        if kept is not None and kept.virtual == virtual and kept.batches == inside:
            self._copy(above, kept)
            return kept
        gangs = self._bind_leafs(virtual, inside)
        content = self.before[above] = _content(self.book, above, inside, gangs)
        return content

    def _take_one_by_one(self, batch: GangBatch) -> None:
        self.bind_all()
        for gang in batch.gangs.values():
            (cells,) = gang.placement
            self.downgraded += take_leafs(self.book, gang, dict.fromkeys(gang.leafs, cells))

    def _open(self, batch: GangBatch) -> _CellInWork | None:
        """Return the cell of a batch as one that waits; None where that is not as simple as it is for most."""
        book, quotas, above, cluster = self.book, self.book.quotas, batch.above, batch.cluster
        is_new = book.virtual[above] == NONE
        if is_new and not _bind_quota_cell(book, above, batch.quota, cluster):
            return None
        virtual, trees = book.virtual[above], book.topology.trees
        children, root = quotas.trees.children[virtual], quotas.root[virtual]
        if not is_new:
            is_own = quotas.owner[root] == cluster and root not in quotas.pinned and not book.bad[book.place[root]]
            if not is_own or trees.level[above] > trees.chain[above].levels.get(batch.quota, NONE):
                return None
        left = len(children) if is_new else sum(book.place[child] == NONE for child in children)
        return _CellInWork(cluster, batch.quota, left, is_new)

    def _bind_leafs(self, virtual: int, come: Sequence[GangBatch]) -> Mapping[str, Gang]:
        """Bind the leafs of batches, in order, to those below a virtual cell that are not bound."""
        book, gangs = self.book, dict[str, Gang]()
        unbound = iter([child for child in book.quotas.trees.children[virtual] if book.place[child] == NONE])
        for batch in come:
            bound = {leaf: next(unbound) for leaf in batch.leafs}
            for name, gang in batch.gangs.items():
                mine = {leaf: bound[leaf] for leaf in gang.leafs}
                gangs[name] = Gang(request=gang.request, placement=gang.placement, leafs=gang.leafs, virtual=mine)
                for leaf, cell in mine.items():
                    book.virtual[leaf], book.place[cell], book.holder[leaf] = cell, leaf, name
            count_leafs(book, bound, batch.priority)
        book.gangs.update(gangs)
        return gangs

    def _copy(self, above: int, kept: CellContent) -> None:
        book, parent = self.book, self.book.topology.trees.parent
        here, there = kept.here, kept.there
        book.virtual[here], book.holder[here], book.priority[here], book.guaranteed[here] = kept.physical
        book.place[there], book.used[there], book.virtual_priority[there] = kept.bound
        book.priorities[kept.node] = dict(kept.priorities)
        book.gangs.update(kept.gangs)
        cell = above
        while cell != NONE:
            book.guaranteed[cell] += kept.used
            cell = parent[cell]
        # The cell is bound to a quota cell as a whole, so nothing is above that.
        book.used[kept.virtual] += kept.used


def _bind_quota_cell(book: CellBook, cell: int, quota: str, cluster: str) -> bool:
    """Bind a free cell to the next quota cell; return False, with nothing changed, where somebody might lose by it."""
    trees = book.topology.trees
    level = trees.level[cell]
    is_simple = trees.chain[cell].levels.get(quota) == level and book.books(cell).can_take(level) and book.is_free(cell)
    root = next(_unbound_roots(book, cell, cluster), NONE) if is_simple else NONE
    if root == NONE:
        return False
    bind(book, cell, root)
    take_quota_cell(book, cell, cluster)
    return True


def _unbound_roots(book: CellBook, cell: int, cluster: str) -> Iterator[int]:
    """Yield the quota cells of a virtual cluster that are bound to no cell, of the chain and level of a cell."""
    trees, place = book.topology.trees, book.place
    view = book.quotas.views.get((cluster, trees.chain[cell].name))
    roots = () if view is None else view.roots_at.get(trees.level[cell], ())
    return (root for root in roots if place[root] == NONE)


def _content(book: CellBook, above: int, come: Sequence[GangBatch], gangs: Mapping[str, Gang]) -> CellContent:
    virtual = book.virtual[above]
    here, there = _span(book.topology.trees.children[above]), _span(book.quotas.trees.children[virtual])
    node = book.quotas.node_of[there.start]
    priorities = dict(book.priorities[node])
    trees = book.topology.trees
    return CellContent(
        virtual=virtual,
        batches=come,
        quota=(book.quotas.owner[virtual], trees.chain[above].name, trees.level[above]),
        gangs=gangs,
        physical=(book.virtual[here], book.holder[here], book.priority[here], book.guaranteed[here]),
        bound=(book.place[there], book.used[there], book.virtual_priority[there]),
        priorities=priorities,
        here=here,
        there=there,
        node=node,
        used=sum(priorities.values()),
    )


def _span(leafs: Sequence[int]) -> slice:
    """Return where leafs directly in one cell stand: they have consecutive numbers."""
    return slice(leafs[0], leafs[-1] + 1)

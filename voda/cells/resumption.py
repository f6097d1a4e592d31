"""Resumption: many gangs of one worker each have their cells again, as `recovery.occupy` gives them, but sooner.

1. Gangs that are next to each other come as one batch. 2. With the first batch in a cell, the cell is bound, where that
is simple. 3. What is in such a cell is bound together, later; where the same batches were there in the book before, it
is copied. 4. All else is recovered gang by gang. Rule: the book is the same as if each gang had come alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from voda.cells.bindings import bind, count_leafs, take_quota_cell
from voda.cells.book import CellBook
from voda.cells.gangs import OPPORTUNISTIC, Gang
from voda.cells.recovery import take_leafs
from voda.cells.structure.topology import Topology
from voda.cells.structure.trees import NONE


class GangBatch(Struct, frozen=True, eq=False, kw_only=True, gc=False):
    """Gangs of one worker each, of one virtual cluster and priority, that come one after another."""

    gangs: Mapping[str, Gang]
    """By name."""
    leafs: tuple[int, ...]
    """Of all of them: nobody uses them, and nobody has reserved them."""
    above: int
    """The cell directly above all of them; NONE: they are in several, or have no guarantee."""
    quota: str
    """The type of their quota cells; empty: they have no guarantee."""

    @property
    def first(self) -> Gang:
        """One of them; all ask for the same."""
        return next(iter(self.gangs.values()))


class CellContent(Struct, frozen=True, kw_only=True, gc=False):
    """What is in a cell that is bound to a quota cell as a whole."""

    virtual: int
    batches: Sequence[GangBatch]
    gangs: Mapping[str, Gang]
    physical: tuple[list[int], list[str], list[int], list[int]]
    """Of its leafs: virtual leaf, holder, priority, and whether they are used with a guarantee."""
    bound: tuple[list[int], list[int], list[int]]
    """Of its virtual leafs: physical leaf, whether they are used, and their priority."""
    priorities: Mapping[int, int]


Contents = dict[int, CellContent]
"""Cell -> what was in it in the book before."""


def batches(topology: Topology, gangs: Sequence[Gang]) -> list[GangBatch]:
    """Return gangs of one job as batches, in their order."""
    parent, groups = topology.trees.parent, list[tuple[int, str, list[Gang]]]()
    for gang in gangs:
        quota, cells = gang.placement[0].quota, {parent[leaf] for leaf in gang.leafs}
        above = cells.pop() if quota and len(cells) == 1 and not gang.request.pin else NONE
        if groups and groups[-1][:2] == (above, quota):
            groups[-1][2].append(gang)
        else:
            groups.append((above, quota, [gang]))
    return [
        GangBatch(
            gangs={gang.name: gang for gang in group},
            leafs=tuple(leaf for gang in group for leaf in gang.leafs),
            above=above,
            quota=quota,
        )
        for above, quota, group in groups
    ]


def alone(gang: Gang) -> GangBatch:
    """Return a gang that is recovered by itself, whatever else is in the cell above it."""
    quota = gang.placement[0].quota
    return GangBatch(gangs={gang.name: gang}, leafs=gang.leafs, above=NONE, quota=quota)


def resume(book: CellBook, come: Iterable[GangBatch], before: Contents) -> Sequence[str]:
    """Let gangs use their leafs; return those that lose their guarantee by it.

    Args:
        come: their gangs, in order.
        before: what was in cells in the book before; it becomes what is in them now.
    """
    resumption = _Resumption(book, before)
    for batch in come:
        if batch.quota:
            resumption.take(batch)
        else:
            resumption.bind_all()
            _use_idle(book, batch)
    resumption.bind_all()
    return resumption.downgraded


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
    before: Contents
    downgraded: list[str] = field(default_factory=list)
    waiting: dict[int, _CellInWork] = field(default_factory=dict)
    """By the cell that they are in."""

    def take(self, batch: GangBatch) -> None:
        """Let gangs with a guarantee have their leafs, now or by `bind_all`."""
        cluster, waiting = batch.first.request.virtual_cluster, self.waiting.get(batch.above)
        if waiting is None and batch.above != NONE:
            waiting = self._open(batch, cluster)
        if waiting is None or not self._fits(batch, cluster, waiting):
            self._take_one_by_one(batch)
        else:
            self.waiting[batch.above] = waiting
            waiting.left -= len(batch.leafs)
            waiting.batches.append(batch)
            self.book.gangs.update(batch.gangs)

    def _fits(self, batch: GangBatch, cluster: str, waiting: _CellInWork) -> bool:
        if waiting.left < len(batch.leafs) or waiting.cluster != cluster or waiting.quota != batch.quota:
            return False
        return waiting.is_new or all(self.book.virtual[leaf] == NONE for leaf in batch.leafs)

    def bind_all(self) -> None:
        """Bind the leafs of all gangs that wait for it."""
        for above, waiting in self.waiting.items():
            virtual, kept = self.book.virtual[above], self.before.get(above)
            if not waiting.is_new:
                self._bind_leafs(virtual, waiting.batches)
            elif kept is not None and kept.virtual == virtual and kept.batches == waiting.batches:
                self._copy(above, kept)
            else:
                gangs = self._bind_leafs(virtual, waiting.batches)
                self.before[above] = _content(self.book, above, waiting.batches, gangs)
        self.waiting.clear()

    def _take_one_by_one(self, batch: GangBatch) -> None:
        self.bind_all()
        for gang in batch.gangs.values():
            (cells,) = gang.placement
            self.downgraded += take_leafs(self.book, gang, dict.fromkeys(gang.leafs, cells))

    def _open(self, batch: GangBatch, cluster: str) -> _CellInWork | None:
        """Return the cell of a batch as one that waits; None where that is not as simple as it is for most."""
        book, quotas, above = self.book, self.book.quotas, batch.above
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
            count_leafs(book, bound, batch.first.request.priority)
        book.gangs.update(gangs)
        return gangs

    def _copy(self, above: int, kept: CellContent) -> None:
        book, quotas, trees = self.book, self.book.quotas, self.book.topology.trees
        here, there = _span(trees.children[above]), _span(quotas.trees.children[kept.virtual])
        book.virtual[here], book.holder[here], book.priority[here], book.guaranteed[here] = kept.physical
        book.place[there], book.used[there], book.virtual_priority[there] = kept.bound
        book.priorities[quotas.node_of[there.start]] = dict(kept.priorities)
        book.gangs.update(kept.gangs)
        number, cell = sum(kept.priorities.values()), above
        while cell != NONE:
            book.guaranteed[cell] += number
            cell = trees.parent[cell]
        # The cell is bound to a quota cell as a whole, so nothing is above that.
        book.used[kept.virtual] += number


def _bind_quota_cell(book: CellBook, cell: int, quota: str, cluster: str) -> bool:
    """Bind a free cell to the next quota cell; return False, with nothing changed, where somebody might lose by it."""
    trees, place = book.topology.trees, book.place
    chain, level = trees.chain[cell], trees.level[cell]
    view = book.quotas.views.get((cluster, chain.name))
    if (
        view is None
        or chain.levels.get(quota) != level
        or not book.books(cell).can_take(level)
        or not book.is_free(cell)
    ):
        return False
    for root in view.roots_at.get(level, ()):
        if place[root] == NONE:
            bind(book, cell, root)
            take_quota_cell(book, cell, cluster)
            return True
    return False


def _content(book: CellBook, above: int, come: Sequence[GangBatch], gangs: Mapping[str, Gang]) -> CellContent:
    virtual = book.virtual[above]
    here, there = _span(book.topology.trees.children[above]), _span(book.quotas.trees.children[virtual])
    return CellContent(
        virtual=virtual,
        batches=come,
        gangs=gangs,
        physical=(book.virtual[here], book.holder[here], book.priority[here], book.guaranteed[here]),
        bound=(book.place[there], book.used[there], book.virtual_priority[there]),
        priorities=dict(book.priorities[book.quotas.node_of[there.start]]),
    )


def _span(leafs: Sequence[int]) -> slice:
    """Return where leafs directly in one cell stand: they have consecutive numbers."""
    return slice(leafs[0], leafs[-1] + 1)

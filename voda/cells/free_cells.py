"""The free cells of one chain, as buddies: taking a cell splits those above it, giving it back merges them again.

The books count cells level by level. *Left* are the cells that are free or can be had by a split; *owed* are the quota
cells that are bound to no physical cell. Rule (the safety of all guarantees): at every level, left >= owed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from voda.cells.structure.cell_types import LEAF, Chain
from voda.cells.structure.trees import NONE, Trees

Levels = list[list[int]]
"""Lists of cells, by level; that of level 0 stays empty."""


@dataclass
class FreeCells:
    """The books of one chain."""

    trees: Trees
    chain: Chain
    lists: Levels
    """Free cells that are not split, by level, in the order in which they are handed out."""
    left: list[int]
    owed: list[int]
    """Of all virtual clusters together."""
    owed_by: Mapping[str, list[int]]
    """Virtual cluster -> owed to it, by level."""
    split: set[int] = field(default_factory=set)
    free: dict[int, int] = field(default_factory=dict)
    """All cells in `lists` -> where they stand there."""
    bad: Levels = field(default_factory=list)
    """Those of `left` that are bad or contain a bad cell, by level."""
    doomed: Mapping[str, Levels] = field(default_factory=dict)
    """Virtual cluster -> bad cells that are bound to its quota cells only to show that no healthy one is left."""

    def copy(self) -> "FreeCells":
        """Return books of their own."""
        return FreeCells(
            self.trees,
            self.chain,
            copy_levels(self.lists),
            self.left.copy(),
            self.owed.copy(),
            {name: owed.copy() for name, owed in self.owed_by.items()},
            self.split.copy(),
            self.free.copy(),
            copy_levels(self.bad),
            {name: copy_levels(levels) for name, levels in self.doomed.items()},
        )

    def remove(self, cell: int) -> int:
        """Take a free cell out, splitting those above it; return the highest level from which a cell was taken."""
        while True:
            level, parent = self.trees.level[cell], self.trees.parent[cell]
            is_last = parent == NONE or parent in self.split
            if not is_last:
                for child in self.trees.children[parent]:
                    self._append(level, child)
                self.split.add(parent)
            self._take_out(level, cell)
            if is_last:
                return level
            cell = parent

    def add(self, cell: int) -> int:
        """Put a cell back, merging it with its buddies; return the level of the cell that is free in the end."""
        while True:
            level, parent = self.trees.level[cell], self.trees.parent[cell]
            buddies = () if parent == NONE else self.trees.children[parent]
            if parent == NONE or not all(buddy == cell or buddy in self.free for buddy in buddies):
                self._append(level, cell)
                return level
            for buddy in buddies:
                if buddy != cell:
                    self._take_out(level, buddy)
            self.split.discard(parent)
            cell = parent

    def _append(self, level: int, cell: int) -> None:
        self.free[cell] = len(self.lists[level])
        self.lists[level].append(cell)

    def _take_out(self, level: int, cell: int) -> None:
        """Remove a free cell; the last one takes its place."""
        place, last = self.free.pop(cell), self.lists[level].pop()
        if last != cell:
            self.lists[level][place], self.free[last] = last, place

    def sort(self) -> None:
        """Let free cells be handed out by their numbers, whatever was taken and put back before."""
        for cells in self.lists:
            cells.sort()
            self.free.update(zip(cells, range(len(cells)), strict=True))

    def level_of_free(self, cell: int) -> int:
        """Return the level of the free cell that a cell left is, or is in."""
        while cell not in self.free:
            cell = self.trees.parent[cell]
        return self.trees.level[cell]

    def healthy(self, level: int) -> int:
        """Return how many of the cells left are healthy."""
        return self.left[level] - len(self.bad[level])


def new_books(trees: Trees, chain: Chain, tops: Sequence[int], clusters: Sequence[str]) -> FreeCells:
    """Return the books of a chain of which nothing is used and nothing is owed yet."""
    lists = [[] if level < chain.top else list(tops) for level in range(chain.top + 1)]
    left = [0] * (chain.top + 1)
    for level in range(LEAF, chain.top + 1):
        left[level] = len(tops) * chain.type_at(chain.top).leafs // chain.type_at(level).leafs
    return FreeCells(
        trees,
        chain,
        lists,
        left,
        [0] * (chain.top + 1),
        {name: [0] * (chain.top + 1) for name in clusters},
        free={cell: place for place, cell in enumerate(tops)},
        bad=[[] for _ in range(chain.top + 1)],
        doomed={name: [[] for _ in range(chain.top + 1)] for name in clusters},
    )


def spare_cells(chain: Chain, lists: Sequence[Sequence[int]], owed: Sequence[int]) -> list[int]:
    """Return how many cells of each level may be split further without breaking a guarantee; < 0 = so many lack."""
    spare = [0] * (chain.top + 2)
    for level in range(chain.top, LEAF - 1, -1):
        fanout = chain.type_at(level + 1).fanout if level < chain.top else 0
        spare[level] = len(lists[level]) - owed[level] + max(0, spare[level + 1]) * fanout
    return spare


def take_out(cells: list[int], cell: int) -> None:
    """Remove a cell from a list; the last one takes its place."""
    cells[cells.index(cell)] = cells[-1]
    cells.pop()


def copy_levels(levels: Sequence[Sequence[int]]) -> Levels:
    """Return lists of their own."""
    return [list(cells) for cells in levels]

"""Trees of cells as parallel tuples: a cell is a number, and every fact of it stands at that number.

`TreesBuilder` grows them from the top; parents have lower numbers than their children.
"""

from dataclasses import dataclass, field
from typing import Final

from voda.cells.structure.cell_types import LEAF, Chain

NONE: Final = -1
"""No cell."""


@dataclass(frozen=True)
class Trees:
    """Cells, by number."""

    parent: tuple[int, ...]
    """NONE for a topmost cell."""
    children: tuple[tuple[int, ...], ...]
    level: tuple[int, ...]
    chain: tuple[Chain, ...]
    leafs: tuple[tuple[int, ...], ...]
    """The leafs below a cell, in order; of a leaf, itself."""

    def path(self, cell: int) -> list[int]:
        """Return the cell and all above it, upwards."""
        cells = []
        while cell != NONE:
            cells.append(cell)
            cell = self.parent[cell]
        return cells

    def ancestor(self, cell: int, level: int) -> int:
        """Return the cell at `level` that is or contains the given one; the topmost where the tree is lower."""
        while self.level[cell] < level and self.parent[cell] != NONE:
            cell = self.parent[cell]
        return cell


@dataclass
class TreesBuilder:
    """Trees under construction."""

    parent: list[int] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)
    level: list[int] = field(default_factory=list)
    chain: list[Chain] = field(default_factory=list)

    def add(self, chain: Chain, level: int, parent: int = NONE) -> int:
        """Add a cell and return its number."""
        cell = len(self.parent)
        self.parent.append(parent)
        self.children.append([])
        self.level.append(level)
        self.chain.append(chain)
        if parent != NONE:
            self.children[parent].append(cell)
        return cell

    def add_full(self, chain: Chain, level: int, parent: int = NONE) -> int:
        """Add a cell with all that its type has below it, and return its number."""
        cell = self.add(chain, level, parent)
        for _ in range(chain.type_at(level).fanout):
            self.add_full(chain, level - 1, cell)
        return cell

    def done(self) -> Trees:
        """Return the trees."""
        leafs: list[tuple[int, ...]] = [()] * len(self.parent)
        for cell in reversed(range(len(self.parent))):
            below = (leaf for child in self.children[cell] for leaf in leafs[child])
            leafs[cell] = (cell,) if self.level[cell] == LEAF else tuple(below)
        return Trees(
            tuple(self.parent),
            tuple(tuple(each) for each in self.children),
            tuple(self.level),
            tuple(self.chain),
            tuple(leafs),
        )

"""Cell types and chains: a chain is the types from a topmost one down to its devices.

Level 1 is a device (leaf); the type above it has level 2, and so on. Rule: on the way from the top to the devices
exactly one type is a machine (`is_node_level`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from voda.domain.cells import CellTypeSpec
from voda.domain.errors import InvalidInput

LEAF: Final = 1
"""The level of devices."""


@dataclass(frozen=True)
class CellType:
    """One type within a chain."""

    name: str
    level: int
    fanout: int
    """Cells of the next lower level in one of this type; 0 for a leaf."""
    leafs: int
    """Devices in one cell of this type."""


@dataclass(frozen=True)
class Chain:
    """The types of all cells below topmost cells of one type; the chain has that type's name."""

    types: tuple[CellType, ...]
    """From the leaf upwards: the type of level n is at n - 1."""
    node_level: int
    """The level of machines."""

    @property
    def name(self) -> str:
        """The topmost type's name."""
        return self.types[-1].name

    @property
    def leaf_type(self) -> str:
        """The name of its devices' type."""
        return self.types[0].name

    @property
    def top(self) -> int:
        """The topmost level."""
        return len(self.types)

    @cached_property
    def levels(self) -> Mapping[str, int]:
        """Type name -> level."""
        return {each.name: each.level for each in self.types}

    @cached_property
    def below(self) -> Sequence[Sequence[tuple[int, int]]]:
        """Of each level: the lower levels, the highest first -> how many of their cells are in one of that level."""
        return [()] + [
            [(lower.level, kind.leafs // lower.leafs) for lower in reversed(self.types[: kind.level - 1])]
            for kind in self.types
        ]

    def type_at(self, level: int) -> CellType:
        """Return the type of a level, 1 <= level <= top."""
        return self.types[level - 1]


def chain_of(top: str, cell_types: Mapping[str, CellTypeSpec]) -> Chain:
    """Return the chain below a topmost type.

    Raises:
        InvalidInput: the type is not declared, contains itself, or has no or several types that are machines.
    """
    path = _path(top, cell_types)
    types: list[CellType] = [CellType(path[-1], LEAF, 0, 1)]
    for name in reversed(path[:-1]):
        fanout = cell_types[name].child_cell_number
        types.append(CellType(name, len(types) + 1, fanout, fanout * types[-1].leafs))
    machines = [each.level for each in types if each.name in cell_types and cell_types[each.name].is_node_level]
    if len(machines) != 1:
        raise InvalidInput(
            f"cell type {top}: {len(machines)} of the types from it down to its devices ({' > '.join(path)})"
            " have isNodeLevel, expected 1"
        )
    return Chain(tuple(types), machines[0])


def _path(top: str, cell_types: Mapping[str, CellTypeSpec]) -> list[str]:
    """Return the names from the topmost type down to the leaf's."""
    if top not in cell_types:
        raise InvalidInput(f"cell type {top or '(none)'} of a topmost physical cell is not declared in cellTypes")
    path = [top]
    while (spec := cell_types.get(path[-1])) is not None:
        if spec.child_cell_type in path:
            raise InvalidInput(f"cell types contain each other: {' > '.join([*path, spec.child_cell_type])}")
        path.append(spec.child_cell_type)
    return path

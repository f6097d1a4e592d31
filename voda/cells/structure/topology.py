"""The physical cells: built from a specification, or derived from the nodes that are there.

`build_topology` gives every cell its address, its nodes and its devices, as HiveD does: an address that is left out is
the cell's index, and devices are counted from 0 in every node. Rule: no device is in two cells, no pin is used twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from voda.cells.structure.cell_types import LEAF, Chain, chain_of
from voda.cells.structure.trees import NONE, Trees, TreesBuilder
from voda.domain.cells import CellTypeSpec, PhysicalCellSpec, PhysicalClusterSpec
from voda.domain.errors import InvalidInput


@dataclass(frozen=True)
class Topology:
    """All physical cells, by number."""

    trees: Trees
    chains: Mapping[str, Chain]
    """In the order in which they are searched."""
    addresses: tuple[str, ...]
    nodes: tuple[tuple[str, ...], ...]
    """Names of the machines that a cell spans."""
    devices: tuple[int, ...]
    """A leaf's index on its machine; NONE for other cells."""
    pins: Mapping[str, int]
    """Pin -> cell."""

    @cached_property
    def cells_at(self) -> Mapping[tuple[str, int], tuple[int, ...]]:
        """(chain, level) -> its cells, in order."""
        cells: dict[tuple[str, int], list[int]] = {}
        for cell, level in enumerate(self.trees.level):
            cells.setdefault((self.trees.chain[cell].name, level), []).append(cell)
        return {place: tuple(each) for place, each in cells.items()}

    @cached_property
    def machines(self) -> tuple[int, ...]:
        """The cells that are machines, chain by chain."""
        return tuple(cell for chain in self.chains.values() for cell in self.cells_at[chain.name, chain.node_level])

    @cached_property
    def leaf_at(self) -> Mapping[tuple[str, int], int]:
        """(node, device) -> leaf."""
        return {(self.nodes[leaf][0], self.devices[leaf]): leaf for leaf in self._leafs()}

    @cached_property
    def leafs_on(self) -> Mapping[str, tuple[int, ...]]:
        """Node -> its leafs, chain by chain."""
        leafs: dict[str, list[int]] = {}
        for leaf in self._leafs():
            leafs.setdefault(self.nodes[leaf][0], []).append(leaf)
        return {node: tuple(each) for node, each in leafs.items()}

    def chains_with(self, leaf_type: str) -> list[Chain]:
        """Return the chains whose devices are of a type, in the order in which they are searched."""
        return [chain for chain in self.chains.values() if chain.leaf_type == leaf_type]

    @property
    def leaf_types(self) -> list[str]:
        """The types of devices, in the order in which they are searched."""
        return list(dict.fromkeys(chain.leaf_type for chain in self.chains.values()))

    def _leafs(self) -> list[int]:
        return [cell for cell, level in enumerate(self.trees.level) if level == LEAF]


def build_topology(spec: PhysicalClusterSpec, *, search_order: Sequence[str] = ()) -> Topology:
    """Return the physical cells; chains are searched in `search_order`, the others after them as they are declared.

    Raises:
        InvalidInput: a type is unknown or contains itself, a cell has too few or too many children, an address is no
            device index, a device is in two cells, a pin is used twice.
    """
    names = dict.fromkeys(each.cell_type for each in spec.physical_cells)
    chains = {name: chain_of(name, spec.cell_types) for name in names}
    builder = _Builder(spec.cell_types)
    for index, cell in enumerate(spec.physical_cells):
        builder.add(cell, _Position(chains[cell.cell_type], chains[cell.cell_type].top, index))
    ordered = [*(name for name in search_order if name in chains), *chains]
    return builder.topology({name: chains[name] for name in ordered})


@dataclass(frozen=True)
class _Position:
    """Where a cell is added."""

    chain: Chain
    level: int
    index: int
    """The address that it has by default."""
    parent: int = NONE
    node: str = ""


@dataclass
class _Builder:
    cell_types: Mapping[str, CellTypeSpec]
    trees: TreesBuilder = field(default_factory=TreesBuilder)
    addresses: list[str] = field(default_factory=list)
    nodes: list[tuple[str, ...]] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    pins: dict[str, int] = field(default_factory=dict)
    taken: dict[tuple[str, int], int] = field(default_factory=dict)
    """(node, device) -> the leaf that it is."""

    def topology(self, chains: Mapping[str, Chain]) -> Topology:
        return Topology(
            self.trees.done(),
            chains,
            tuple(self.addresses),
            tuple(self.nodes),
            tuple(self.devices),
            self.pins,
        )

    def add(self, spec: PhysicalCellSpec, place: _Position) -> None:
        cell = self.trees.add(place.chain, place.level, place.parent)
        own = str(spec.cell_address) if spec.cell_address != "" else str(place.index)
        above = "" if place.parent == NONE else f"{self.addresses[place.parent]}/"
        self.addresses.append(above + own)
        node = own if place.level == place.chain.node_level else place.node
        self.nodes.append((node,))
        self.devices.append(self._device(cell, own, node) if place.level == LEAF else NONE)
        self._check(spec, place, cell)
        self._add_children(spec, place, cell, node)

    def _add_children(self, spec: PhysicalCellSpec, place: _Position, cell: int, node: str) -> None:
        fanout = place.chain.type_at(place.level).fanout
        children = spec.cell_children or (PhysicalCellSpec(),) * fanout
        first = 0 if place.level == place.chain.node_level else place.index * fanout
        for number, child in enumerate(children):
            self.add(child, _Position(place.chain, place.level - 1, first + number, cell, node))
        if place.level > place.chain.node_level:
            self.nodes[cell] = tuple(name for child in self.trees.children[cell] for name in self.nodes[child])

    def _check(self, spec: PhysicalCellSpec, place: _Position, cell: int) -> None:
        kind, address = place.chain.type_at(place.level), self.addresses[cell]
        if spec.cell_type not in ("", kind.name):
            raise InvalidInput(f"physical cell {address} has cellType {spec.cell_type}, expected {kind.name}")
        if spec.cell_children and len(spec.cell_children) != kind.fanout:
            raise InvalidInput(
                f"physical cell {address} of type {kind.name} has {len(spec.cell_children)} cellChildren,"
                f" expected {kind.fanout} or none"
            )
        if spec.pinned_cell_id:
            first = self.pins.setdefault(spec.pinned_cell_id, cell)
            if first != cell:
                raise InvalidInput(
                    f"pinnedCellId {spec.pinned_cell_id} is at two physical cells, {self.addresses[first]} and"
                    f" {address}: expected one"
                )

    def _device(self, cell: int, own: str, node: str) -> int:
        address = self.addresses[cell]
        if not (own.isascii() and own.isdigit()):
            raise InvalidInput(f"physical cell {address}: the address of a device is its index, got {own!r}")
        first = self.taken.setdefault((node, int(own)), cell)
        if first != cell:
            raise InvalidInput(
                f"device {int(own)} of node {node} is in two physical cells, {self.addresses[first]} and {address}"
            )
        return int(own)

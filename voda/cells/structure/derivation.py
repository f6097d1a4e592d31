"""The topology of a pool of which nobody declared one: nodes of GPUs, in racks where labels name them.

Rule: one chain per shape. A pool of equal nodes has cells of type `node`; where nodes differ, `node-8` and `node-4`.
Racks of the same shape are one chain, `rack`, or `rack-2-node-8` where they differ; nodes that are in no rack, or in
one of unequal nodes, stand alone.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from voda.domain.cells import CellTypeSpec, PhysicalCellSpec, PhysicalClusterSpec

_Key = TypeVar("_Key")

GPU: Final = "gpu"
"""The type of devices by default."""


class RackNode(NamedTuple):
    """What a node contributes."""

    name: str
    gpus: int
    rack: str = ""
    """Empty: in no rack."""


class _Shape(NamedTuple):
    gpus: int
    nodes: int
    """In the rack; 0 = the node stands alone."""


def derive_topology(machines: Sequence[RackNode], leaf_type: str = GPU) -> PhysicalClusterSpec:
    """Return the cells of the machines that have GPUs, in the order of racks' and machines' names."""
    groups = _groups(sorted(each for each in machines if each.gpus > 0))
    shapes = sorted({shape for shape, _ in groups})
    node_types = _names("node", {shape.gpus: str(shape.gpus) for shape in shapes})
    rack_shapes = [shape for shape in shapes if shape.nodes]
    rack_types = _names("rack", {shape: f"{shape.nodes}-node-{shape.gpus}" for shape in rack_shapes})
    types = {
        node_types[gpus]: CellTypeSpec(child_cell_type=leaf_type, child_cell_number=gpus, is_node_level=True)
        for gpus in node_types
    }
    for shape, name in rack_types.items():
        types[name] = CellTypeSpec(child_cell_type=node_types[shape.gpus], child_cell_number=shape.nodes)
    cells = [
        PhysicalCellSpec(cell_type=rack_types[shape], cell_address=group[0].rack, cell_children=_addressed(group))
        if shape.nodes
        else PhysicalCellSpec(cell_type=node_types[shape.gpus], cell_address=group[0].name)
        for shape, group in groups
    ]
    return PhysicalClusterSpec(cell_types=types, physical_cells=tuple(cells))


def _groups(machines: Sequence[RackNode]) -> list[tuple[_Shape, list[RackNode]]]:
    """Return the racks of equal nodes, then the nodes that stand alone."""
    racks: dict[str, list[RackNode]] = defaultdict(list)
    for machine in machines:
        racks[machine.rack].append(machine)
    alone = racks.pop("", [])
    groups = []
    for rack in sorted(racks):
        if len({machine.gpus for machine in racks[rack]}) == 1:
            groups.append((_Shape(racks[rack][0].gpus, len(racks[rack])), racks[rack]))
        else:
            alone += racks[rack]
    return [*groups, *((_Shape(machine.gpus, 0), [machine]) for machine in sorted(alone))]


def _names(kind: str, suffixes: dict[_Key, str]) -> dict[_Key, str]:
    """Return the names of the types of one kind: the kind alone where there is but one."""
    return {key: kind if len(suffixes) == 1 else f"{kind}-{suffix}" for key, suffix in suffixes.items()}


def _addressed(group: Sequence[RackNode]) -> tuple[PhysicalCellSpec, ...]:
    return tuple(PhysicalCellSpec(cell_address=machine.name) for machine in group)

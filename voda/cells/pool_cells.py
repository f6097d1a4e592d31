"""The cells of a pool, made from what was applied and from the nodes that are there.

Where no physical cells are declared, the nodes are the cells; nodes that a declaration leaves out are added to it. The
virtual cluster `default` owns what no other was given, unless it has quotas of its own. Rule: a node that is declared
keeps its cells while it is away.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from voda.cells.book import CellBook, Shortage, open_book
from voda.cells.free_cells import FreeCells
from voda.cells.structure.cell_types import LEAF, chain_of
from voda.cells.structure.derivation import RackNode, derive_topology
from voda.cells.structure.quotas import build_quotas, quota_type
from voda.cells.structure.topology import Topology, build_topology
from voda.domain.cells import (
    DEFAULT_VIRTUAL_CLUSTER,
    CellsSpec,
    PhysicalCellSpec,
    PhysicalClusterSpec,
    QuotaSpec,
    VirtualClusterSpec,
)
from voda.domain.errors import InvalidInput
from voda.domain.node import Node

MOST_DEVICES: Final = 1_000_000
"""Of one pool."""
RACK_LABELS: Final = ("voda.dev/rack", "topology.kubernetes.io/rack")
"""Labels of nodes that name their rack; the first one wins."""


def declared_cells(spec: CellsSpec, nodes: Iterable[Node]) -> CellsSpec:
    """Return what is recorded of a specification: where it declares no physical cells, those of the nodes."""
    if spec.physical_cluster.physical_cells or not spec.virtual_clusters:
        return spec
    derived = derive_topology(_rack_nodes(nodes))
    types = {**derived.cell_types, **spec.physical_cluster.cell_types}
    return replace(spec, physical_cluster=replace(derived, cell_types=types))


def open_pool(spec: CellsSpec, nodes: Iterable[Node]) -> CellBook:
    """Return the book of a pool's unused, healthy cells, with all that is left as the quota of `default`. Takes some
    80 ms for 10,000 devices: keep it, and copy it.

    Raises:
        InvalidInput: the physical cells are wrong, or the quotas do not fit them.
    """
    _refuse_too_many_devices(spec.physical_cluster)
    topology = _topology(spec.physical_cluster, nodes)
    clusters = spec.virtual_clusters
    _refuse_excess(clusters, topology)
    book = open_book(topology, build_quotas(clusters, topology))
    default = clusters.get(DEFAULT_VIRTUAL_CLUSTER, VirtualClusterSpec())
    if default.virtual_cells or default.pinned_cells:
        return book
    default = replace(default, virtual_cells=remainder(book))
    return open_book(topology, build_quotas({**clusters, DEFAULT_VIRTUAL_CLUSTER: default}, topology))


def _refuse_too_many_devices(physical: PhysicalClusterSpec) -> None:
    """Raise InvalidInput for cells that would fill the memory; types multiply."""
    tops = Counter(cell.cell_type for cell in physical.physical_cells)
    devices = sum(number * chain_of(top, physical.cell_types).types[-1].leafs for top, number in tops.items())
    if devices > MOST_DEVICES:
        raise InvalidInput(f"the physical cells have {devices:,} devices, expected {MOST_DEVICES:,} or fewer")


def _refuse_excess(clusters: Mapping[str, VirtualClusterSpec], topology: Topology) -> None:
    """Raise InvalidInput where more cells of one type are owed than there are, before any of them is made."""
    owed: Counter[tuple[str, int]] = Counter()
    for name, cluster in clusters.items():
        for quota in cluster.virtual_cells:
            chain, level = quota_type(name, quota.cell_type, topology)
            owed[chain.name, level] += quota.cell_number
    for (chain_name, level), number in owed.items():
        available = len(topology.cells_at.get((chain_name, level), ()))
        if number > available:
            kind = topology.chains[chain_name].type_at(level)
            raise InvalidInput(str(Shortage(chain_name, kind.name, level, number, available)))


def remainder(book: CellBook) -> tuple[QuotaSpec, ...]:
    """Return the largest cells that an unused book can give away once all that is owed is handed out."""
    return tuple(quota for books in book.free.values() for quota in _rest_of(books))


def _rest_of(books: FreeCells) -> list[QuotaSpec]:
    """Go from the devices upwards: what a level lacks is split from the one above it, and what a split leaves stays."""
    chain, quotas = books.chain, []
    needed = books.owed[LEAF]
    for level in range(LEAF, chain.top + 1):
        free, kind = len(books.lists[level]), chain.type_at(level)
        fanout = chain.type_at(level + 1).fanout if level < chain.top else 1
        splits = -(-max(0, needed - free) // fanout)
        if (rest := free + splits * fanout - needed) > 0:
            path = kind.name if level == chain.top else f"{chain.name}.{kind.name}"
            quotas.append(QuotaSpec(cell_type=path, cell_number=rest))
        needed = splits + (books.owed[level + 1] if level < chain.top else 0)
    return quotas[::-1]


def _topology(physical: PhysicalClusterSpec, nodes: Iterable[Node]) -> Topology:
    topology = build_topology(physical)
    added = [node for node in _rack_nodes(nodes) if node.name not in topology.leafs_on]
    return build_topology(_joined(physical, derive_topology(added))) if added else topology


def _joined(physical: PhysicalClusterSpec, added: PhysicalClusterSpec) -> PhysicalClusterSpec:
    """Return all cells; an added type that means another thing where it is declared has another name."""
    declared = physical.cell_types
    names = {
        name: f"{name}-added" if declared.get(name, kind) != kind else name for name, kind in added.cell_types.items()
    }
    types = {
        names[name]: replace(kind, child_cell_type=names.get(kind.child_cell_type, kind.child_cell_type))
        for name, kind in added.cell_types.items()
    }
    cells = (_renamed(cell, names) for cell in added.physical_cells)
    return replace(physical, cell_types={**declared, **types}, physical_cells=(*physical.physical_cells, *cells))


def _renamed(cell: PhysicalCellSpec, names: Mapping[str, str]) -> PhysicalCellSpec:
    return replace(cell, cell_type=names[cell.cell_type])


def _rack_nodes(nodes: Iterable[Node]) -> list[RackNode]:
    return [RackNode(node.name, int(node.gpus), _rack(node.labels)) for node in nodes]


def _rack(labels: Mapping[str, str]) -> str:
    return next((labels[label] for label in RACK_LABELS if label in labels), "")

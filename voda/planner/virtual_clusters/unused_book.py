"""The book of a pool's cells in which nothing is used yet.

Rule: quotas that no longer fit, because undeclared nodes have left, are left out from the last virtual cluster on: the
others keep what they are owed, and no plan fails.
"""

from collections.abc import Iterable
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from voda.cells.book import CellBook
from voda.cells.pool_cells import RACK_LABELS, open_pool
from voda.domain.cells import CellsSpec
from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.node import Node

_Shapes = tuple[tuple[str, int, tuple[tuple[str, str], ...]], ...]
"""Name, GPUs and the labels that name the rack, of each node."""


def unused_book(cells: CellsSpec, nodes: Iterable[Node]) -> CellBook:
    """Return the book of a pool that has virtual clusters; copy it before it changes."""
    # A specification has no hash; its text is a key that is quickly made.
    document = msgspec.json.encode(cells)
    declared = _open(document, ()).topology.leafs_on if cells.physical_cluster.physical_cells else {}
    added = [node for node in nodes if node.name not in declared]
    shapes = tuple(sorted((node.name, int(node.gpus), _rack_labels(node)) for node in added))
    return _open(document, shapes)


def _rack_labels(node: Node) -> tuple[tuple[str, str], ...]:
    return tuple((label, node.labels[label]) for label in RACK_LABELS if label in node.labels)


@lru_cache(maxsize=8)
def _open(document: bytes, shapes: _Shapes) -> CellBook:
    spec = msgspec.json.decode(document, type=CellsSpec)
    nodes = [Node(name=name, gpus=Gpus(gpus), labels=dict(labels)) for name, gpus, labels in shapes]
    clusters = dict(spec.virtual_clusters)
    for name in reversed(list(spec.virtual_clusters)):
        try:
            return open_pool(replace(spec, virtual_clusters=clusters), nodes)
        except InvalidInput:
            clusters[name] = replace(clusters[name], virtual_cells=(), pinned_cells=())
    return open_pool(replace(spec, virtual_clusters=clusters), nodes)

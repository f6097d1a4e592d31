"""The book of a pool's cells in which nothing is used yet, made once for as long as nodes and quotas stay.

Rule: quotas that no longer fit, because undeclared nodes have left, are left out from the last virtual cluster on: the
others keep what they are owed, and no plan fails.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from voda.cells.pool_cells import open_pool
from voda.domain.cells import CellsSpec
from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.node import Node
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.former_workers import KeptWorkers

_latest: Final[dict[str, tuple[CellsSpec, list[Node], KeptWorkers]]] = {}
"""Pool -> what its last decision was made of."""


def kept_workers(view: ClusterState) -> KeptWorkers:
    """Return the book of a pool that has virtual clusters, and what is kept of its workers; copy the book first."""
    assert view.cells is not None, "the pool has virtual clusters"
    last, there = _latest.get(view.pool), list(view.nodes.values())
    # Nearly always these are the very objects, which are compared at once.
    if last is not None and last[0] is view.cells and last[1] == there:
        return last[2]
    kept = _kept_workers(view.cells, there)
    _latest[view.pool] = view.cells, there, kept
    return kept


def _kept_workers(cells: CellsSpec, there: Sequence[Node]) -> KeptWorkers:
    nodes = sorted(there, key=lambda node: node.name)
    shapes = tuple((node.name, int(node.gpus), tuple(sorted(node.labels.items()))) for node in nodes)
    # A specification has no hash; its text is a key that is quickly made.
    return _open(msgspec.json.encode(cells), shapes)


@lru_cache(maxsize=8)
def _open(document: bytes, shapes: tuple[tuple[str, int, tuple[tuple[str, str], ...]], ...]) -> KeptWorkers:
    spec = msgspec.json.decode(document, type=CellsSpec)
    nodes = [Node(name=name, gpus=Gpus(gpus), labels=dict(labels)) for name, gpus, labels in shapes]
    clusters = dict(spec.virtual_clusters)
    for name in reversed(list(spec.virtual_clusters)):
        try:
            return KeptWorkers(open_pool(replace(spec, virtual_clusters=clusters), nodes))
        except InvalidInput:
            clusters[name] = replace(clusters[name], virtual_cells=(), pinned_cells=())
    return KeptWorkers(open_pool(replace(spec, virtual_clusters=clusters), nodes))


def forget_kept_workers() -> None:
    """Let the next decision make everything anew."""
    _open.cache_clear()
    _latest.clear()

"""The book of a pool's cells in which nothing is used yet, made once for as long as nodes and quotas stay.

Rule: quotas that no longer fit, because undeclared nodes have left, are left out from the last virtual cluster on: the
others keep what they are owed, and no plan fails.
"""

from functools import lru_cache

import msgspec
from msgspec.structs import replace

from voda.cells.pool_cells import open_pool
from voda.domain.cells import CellsSpec
from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.node import Node
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.former_workers import KeptWorkers


def kept_workers(view: ClusterState) -> KeptWorkers:
    """Return the book of a pool that has virtual clusters, and what is kept of its workers; copy the book first."""
    assert view.cells is not None, "the pool has virtual clusters"
    nodes = sorted(view.nodes.values(), key=lambda node: node.name)
    shapes = tuple((node.name, int(node.gpus), tuple(sorted(node.labels.items()))) for node in nodes)
    # A specification has no hash; its text is a key that is quickly made.
    return _open(msgspec.json.encode(view.cells), shapes)


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

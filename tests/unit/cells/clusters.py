"""Small clusters of cells for tests: a rack of machines with switches, machines alone, pins; and requests."""

from collections.abc import Mapping
from typing import Any, Final

from voda.cells.book import CellBook, open_book
from voda.cells.gangs import GangRequest
from voda.cells.structure.quotas import build_quotas
from voda.cells.structure.topology import build_topology
from voda.domain.cells import CellsSpec, read_specification

TYPES: Final = {
    "switch": {"childCellType": "gpu", "childCellNumber": 2},
    "node": {"childCellType": "switch", "childCellNumber": 2, "isNodeLevel": True},
    "rack": {"childCellType": "node", "childCellNumber": 2},
    "box": {"childCellType": "gpu", "childCellNumber": 2, "isNodeLevel": True},
}
"""A rack has 2 nodes of 2 switches of 2 GPUs; a box is a machine of 2 GPUs."""


def a_cluster(
    *, racks: int = 0, boxes: int = 0, quotas: Mapping[str, Mapping[str, int]] | None = None, pins: str = ""
) -> CellsSpec:
    """Return a specification.

    Args:
        quotas: virtual cluster -> cell type, such as rack.node, -> number.
        pins: virtual cluster to which the first node of the first rack is pinned as `pin`.
    """
    cells: list[dict[str, Any]] = [
        {"cellType": "rack", "cellChildren": [{"cellAddress": f"r{rack}n0"}, {"cellAddress": f"r{rack}n1"}]}
        for rack in range(racks)
    ]
    if pins:
        cells[0]["cellChildren"][0]["pinnedCellId"] = "pin"
    cells += [{"cellType": "box", "cellAddress": f"b{box}"} for box in range(boxes)]
    clusters = {
        name: {
            "virtualCells": [{"cellType": kind, "cellNumber": number} for kind, number in each.items()],
            "pinnedCells": [{"pinnedCellId": "pin"}] if name == pins else [],
        }
        for name, each in (quotas or {}).items()
    }
    document = {"physicalCluster": {"cellTypes": TYPES, "physicalCells": cells}, "virtualClusters": clusters}
    return read_specification(document)


def a_book(spec: CellsSpec) -> CellBook:
    """Return the book of a specification."""
    topology = build_topology(spec.physical_cluster)
    return open_book(topology, build_quotas(spec.virtual_clusters, topology))


def a_gang(name: str, cluster: str = "a", *members: tuple[int, int], **fields: Any) -> GangRequest:
    """Return a request, of one worker with one GPU by default."""
    return GangRequest(name=name, virtual_cluster=cluster, members=members or ((1, 1),), **fields)

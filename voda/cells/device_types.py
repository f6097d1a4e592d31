"""The part of a specification that is about devices of one type, for pools that have one type each."""

from collections.abc import Iterator

from msgspec.structs import replace

from voda.cells.structure.cell_types import chain_of
from voda.domain.cells import CellsSpec, PhysicalCellSpec
from voda.domain.errors import InvalidInput


def of_device_type(spec: CellsSpec, leaf_type: str) -> CellsSpec:
    """Return the cells of one type of devices, and the virtual clusters with their quotas of it, some perhaps empty.

    Raises:
        InvalidInput: no cell has such devices, or the cell types are wrong.
    """
    physical = spec.physical_cluster
    tops = dict.fromkeys(cell.cell_type for cell in physical.physical_cells)
    leafs = {top: chain_of(top, physical.cell_types).leaf_type for top in tops}
    if leaf_type not in leafs.values():
        raise InvalidInput(
            f"no physical cell has devices of type {leaf_type}, expected one of"
            f" {', '.join(dict.fromkeys(leafs.values())) or '(none)'}"
        )
    cells = tuple(cell for cell in physical.physical_cells if leafs[cell.cell_type] == leaf_type)
    pins = {pin for cell in cells for pin in _pins(cell)}
    clusters = {
        name: replace(
            cluster,
            virtual_cells=tuple(
                quota for quota in cluster.virtual_cells if leafs.get(quota.cell_type.split(".")[0]) == leaf_type
            ),
            pinned_cells=tuple(pin for pin in cluster.pinned_cells if pin.pinned_cell_id in pins),
        )
        for name, cluster in spec.virtual_clusters.items()
    }
    return replace(spec, physical_cluster=replace(physical, physical_cells=cells), virtual_clusters=clusters)


def _pins(cell: PhysicalCellSpec) -> Iterator[str]:
    if cell.pinned_cell_id:
        yield cell.pinned_cell_id
    for child in cell.cell_children:
        yield from _pins(child)

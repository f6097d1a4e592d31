"""The cells of a pool: derived, added to, and shared out to the last one."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_node
from tests.unit.cells.clusters import a_book, a_cluster
from voda.cells.accounting import QuotaKey, quota_use
from voda.cells.free_cells import spare_cells
from voda.cells.pool_cells import declared_cells, open_pool, remainder
from voda.cells.structure.cell_types import LEAF
from voda.domain.cells import (
    CellsSpec,
    CellTypeSpec,
    PhysicalCellSpec,
    PhysicalClusterSpec,
    QuotaSpec,
    VirtualClusterSpec,
)
from voda.domain.errors import InvalidInput


def one_quota(cell_type: str, number: int) -> CellsSpec:
    quota = QuotaSpec(cell_type=cell_type, cell_number=number)
    return CellsSpec(virtual_clusters={"vision": VirtualClusterSpec(virtual_cells=(quota,))})


def cells_of(spec: CellsSpec, *nodes: str) -> dict[tuple[str, str, str], int]:
    uses = quota_use(open_pool(spec, [a_node(name, gpus=8) for name in nodes]))
    return {(key.virtual_cluster, key.chain, key.cell_type): use.cells for key, use in uses.items()}


def test_pool_when_it_declares_no_cells_has_those_of_its_nodes_and_default_owns_the_rest() -> None:
    spec = one_quota("node", 2)
    declared = declared_cells(spec, [a_node(name, gpus=8) for name in ("n1", "n2", "n3")])
    assert cells_of(declared, "n1", "n2", "n3") == {("default", "node", "node"): 1, ("vision", "node", "node"): 2}


def test_pool_when_a_declared_node_is_away_keeps_its_cells_and_a_new_one_is_added_to_default() -> None:
    declared = declared_cells(one_quota("node", 2), [a_node(name, gpus=8) for name in ("n1", "n2")])
    assert cells_of(declared, "n2", "n3") == {("default", "node", "node"): 1, ("vision", "node", "node"): 2}


def test_pool_when_an_added_node_has_another_shape_gives_its_type_another_name() -> None:
    declared = declared_cells(one_quota("node", 1), [a_node("n1", gpus=8)])
    book = open_pool(declared, [a_node("n1", gpus=8), a_node("n2", gpus=4)])
    assert quota_use(book)[QuotaKey("default", "node-added", "node-added")].leafs == 4


def test_nodes_when_labels_name_their_racks_are_cells_of_racks() -> None:
    nodes = [a_node(f"n{index}", gpus=8, labels={"voda.dev/rack": f"r{index % 2}"}) for index in range(4)]
    book = open_pool(declared_cells(one_quota("rack", 1), nodes), nodes)
    assert quota_use(book)[QuotaKey("vision", "rack", "rack")].leafs == 16


def test_default_when_it_has_quotas_of_its_own_owns_no_more() -> None:
    spec = one_quota("node", 1)
    own = VirtualClusterSpec(virtual_cells=(QuotaSpec(cell_type="node.gpu", cell_number=2),))
    spec = replace(spec, virtual_clusters={**spec.virtual_clusters, "default": own})
    declared = declared_cells(spec, [a_node(name, gpus=8) for name in ("n1", "n2", "n3")])
    assert cells_of(declared)[("default", "node", "gpu")] == 2
    assert ("default", "node", "node") not in cells_of(declared)


def test_quotas_when_they_do_not_fit_are_refused_with_type_level_owed_and_available() -> None:
    with pytest.raises(InvalidInput, match=r"owed 3 cells of type node \(level 2\) in chain node, and 2 are available"):
        open_pool(declared_cells(one_quota("node", 3), [a_node("n1"), a_node("n2")]), [])


def test_cells_when_there_are_far_too_many_are_refused_before_they_are_made() -> None:
    types = {"node": CellTypeSpec(child_cell_type="gpu", child_cell_number=8, is_node_level=True)}
    for level in range(3):
        types[f"t{level}"] = CellTypeSpec(
            child_cell_type=f"t{level - 1}" if level else "node", child_cell_number=65_536
        )
    physical = PhysicalClusterSpec(cell_types=types, physical_cells=(PhysicalCellSpec(cell_type="t2"),))
    with pytest.raises(InvalidInput, match="devices, expected 1,000,000 or fewer"):
        open_pool(CellsSpec(physical_cluster=physical), [])
    many = declared_cells(one_quota("node", 1_000_000), [a_node("n1")])
    with pytest.raises(InvalidInput, match="owed 1000000 cells of type node"):
        open_pool(many, [])


@given(
    racks=st.integers(1, 3),
    boxes=st.integers(0, 2),
    counts=st.lists(st.integers(0, 5), min_size=5, max_size=5),
    pins=st.sampled_from(["", "a"]),
)
def test_remainder_and_quotas_together_are_all_cells_and_fit(
    racks: int, boxes: int, counts: list[int], pins: str
) -> None:
    kinds = ["rack", "rack.node", "rack.node.switch", "rack.gpu", *(["box.gpu"] if boxes else [])]
    spec = a_cluster(racks=racks, boxes=boxes, quotas={"a": dict(zip(kinds, counts, strict=False))}, pins=pins)
    try:
        a_book(spec)
    except InvalidInput:
        assume(False)
    book = open_pool(spec, [])
    assert remainder(book) == ()
    assert all(spare_cells(each.chain, each.lists, each.owed)[LEAF] == 0 for each in book.free.values())
    assert sum(use.leafs for use in quota_use(book).values()) == 8 * racks + 2 * boxes

"""Virtual cells of quotas and pins, and quotas that name what is not there."""

import pytest

from tests.unit.cells.clusters import a_book, a_cluster
from voda.cells.structure.quotas import build_quotas
from voda.cells.structure.topology import build_topology
from voda.domain.cells import PinSpec, QuotaSpec, VirtualClusterSpec
from voda.domain.errors import InvalidInput


def test_quotas_when_cells_are_of_several_sizes_are_seen_as_machines_and_what_is_smaller() -> None:
    quotas = a_book(
        a_cluster(racks=3, quotas={"a": {"rack.node.switch.gpu": 1, "rack.node.switch": 1, "rack": 1}})
    ).quotas
    view = quotas.views["a", "rack"]
    assert [quotas.trees.level[node] for node in view.nodes] == [3, 3, 2, 1]
    assert [quotas.trees.level[root] for root in view.roots] == [1, 2, 4]


def test_quotas_when_a_cell_is_pinned_have_it_apart() -> None:
    book = a_book(a_cluster(racks=1, quotas={"a": {"rack.node": 1}}, pins="a"))
    pinned = book.quotas.pin_views["a", "pin"].roots[0]
    assert book.topology.nodes[book.place[pinned]] == ("r0n0",)
    assert book.quotas.count("a", "rack", 3) == 2


@pytest.mark.parametrize(
    ("quota", "sentence"),
    [
        ("tower.node", r"virtual cluster a: quota tower.node begins with tower, .* \(there are: rack\)"),
        ("tower.rack", r"begins with tower, and .* \(there are: rack\); write rack$"),
        ("rack.box", "virtual cluster a: quota rack.box ends with box, expected a type of chain rack: gpu, switch"),
    ],
)
def test_quotas_when_a_type_is_unknown_are_refused(quota: str, sentence: str) -> None:
    topology = build_topology(a_cluster(racks=1).physical_cluster)
    spec = VirtualClusterSpec(virtual_cells=(QuotaSpec(cell_type=quota, cell_number=1),))
    with pytest.raises(InvalidInput, match=sentence):
        build_quotas({"a": spec}, topology)


def test_quotas_when_a_pin_is_unknown_or_given_twice_are_refused() -> None:
    topology = build_topology(a_cluster(racks=1, pins="a").physical_cluster)
    pinned, unknown = (VirtualClusterSpec(pinned_cells=(PinSpec(pinned_cell_id=pin),)) for pin in ("pin", "other"))
    with pytest.raises(InvalidInput, match="virtual cluster b: no physical cell has pinnedCellId other"):
        build_quotas({"b": unknown}, topology)
    with pytest.raises(InvalidInput, match="pinned cell pin is given twice, to virtual clusters a and b"):
        build_quotas({"a": pinned, "b": pinned}, topology)

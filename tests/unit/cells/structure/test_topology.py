"""Physical cells: addresses and devices by default, and cells that cannot be."""

from typing import Any

import pytest

from tests.unit.cells.clusters import TYPES
from voda.cells.structure.topology import Topology, build_topology
from voda.domain.cells import read_specification
from voda.domain.errors import InvalidInput


def _topology(*cells: dict[str, Any], search_order: tuple[str, ...] = ()) -> Topology:
    document = {"physicalCluster": {"cellTypes": TYPES, "physicalCells": list(cells)}}
    return build_topology(read_specification(document).physical_cluster, search_order=search_order)


def test_topology_when_addresses_are_left_out_counts_devices_from_zero_in_every_node() -> None:
    topology = _topology({"cellType": "box", "cellAddress": "b0"}, {"cellType": "rack"})
    assert topology.addresses[0] == "b0"
    assert topology.nodes[0] == ("b0",)
    rack = topology.cells_at["rack", 4][0]
    assert topology.nodes[rack] == ("2", "3")
    assert sorted(topology.leaf_at) == [*((node, device) for node in "23" for device in range(4)), ("b0", 0), ("b0", 1)]
    assert topology.addresses[topology.leaf_at["3", 3]] == "1/3/1/3"


def test_topology_when_devices_are_given_keeps_their_order() -> None:
    topology = _topology(
        {"cellType": "box", "cellAddress": "b0", "cellChildren": [{"cellAddress": 7}, {"cellAddress": "4"}]}
    )
    assert [topology.devices[leaf] for leaf in topology.leafs_on["b0"]] == [7, 4]


def test_topology_when_one_machine_has_two_kinds_of_devices_has_it_in_two_chains() -> None:
    other = [{"cellAddress": "8"}, {"cellAddress": "9"}]
    topology = _topology(
        {"cellType": "node", "cellAddress": "m"}, {"cellType": "box", "cellAddress": "m", "cellChildren": other}
    )
    assert [topology.trees.chain[leaf].name for leaf in topology.leafs_on["m"]] == ["node"] * 4 + ["box"] * 2


def test_topology_when_an_order_is_given_searches_chains_in_it() -> None:
    cells = {"cellType": "box", "cellAddress": "b"}, {"cellType": "node", "cellAddress": "n"}
    assert list(_topology(*cells).chains) == ["box", "node"]
    assert list(_topology(*cells, search_order=("node",)).chains) == ["node", "box"]


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (
            [{"cellType": "box", "cellAddress": "b"}, {"cellType": "box", "cellAddress": "b"}],
            "device 0 of node b is in two physical cells, b/0 and b/0",
        ),
        (
            [{"cellType": "box", "cellAddress": "b", "cellChildren": [{"cellAddress": "x"}, {}]}],
            "physical cell b/x: the address of a device is its index, got 'x'",
        ),
        (
            [{"cellType": "box", "cellAddress": "b", "cellChildren": [{}]}],
            "physical cell b of type box has 1 cellChildren, expected 2 or none",
        ),
        (
            [{"cellType": "rack", "cellChildren": [{"cellType": "box"}, {}]}],
            "physical cell 0/0 has cellType box, expected node",
        ),
        (
            [
                {"cellType": "box", "cellAddress": "b", "pinnedCellId": "p"},
                {"cellType": "box", "cellAddress": "c", "pinnedCellId": "p"},
            ],
            "pinnedCellId p is at two physical cells, b and c: expected one",
        ),
        ([{"cellType": "tower"}], "cell type tower of a topmost physical cell is not declared in cellTypes"),
        ([{"cellAddress": "b"}], r"cell type \(none\) of a topmost physical cell is not declared"),
        ([{"cellType": "switch"}], "cell type switch: 0 of the types"),
    ],
)
def test_topology_when_cells_cannot_be_is_refused(cells: list[dict[str, Any]], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        _topology(*cells)

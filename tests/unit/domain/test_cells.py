"""What an operator writes: everything that is not understood is refused, with its path."""

from typing import Any

import pytest

from voda.domain.cells import CellsSpec, VirtualClusterSpec, read_specification
from voda.domain.errors import InvalidField


def test_specification_when_it_is_hiveds_is_read_as_it_is() -> None:
    spec = read_specification(
        {
            "physicalCluster": {
                "skuTypes": {"K80": {"gpu": 1, "cpu": 4, "memory": "8192Mi"}},
                "cellTypes": {"node": {"childCellType": "K80", "childCellNumber": 4, "isNodeLevel": True}},
                "physicalCells": [{"cellType": "node", "cellAddress": "10.0.0.1", "pinnedCellId": "pin"}],
            },
            "virtualClusters": {
                "vc": {
                    "virtualCells": [{"cellType": "node", "cellNumber": 0}],
                    "pinnedCells": [{"pinnedCellId": "pin"}],
                }
            },
        }
    )
    assert spec.physical_cluster.physical_cells[0].pinned_cell_id == "pin"
    assert spec.virtual_clusters["vc"].virtual_cells[0].cell_type == "node"


@pytest.mark.parametrize(
    ("document", "field", "sentence"),
    [
        ({"virtualCluster": {}}, "", "unknown field `virtualCluster`"),
        (
            {"virtualClusters": {"vc": {"virtualCells": [{"cellType": "node", "cellNumber": "many"}]}}},
            "virtualClusters[...].virtualCells[0].cellNumber",
            "expected `int`, got `str`",
        ),
        (
            {"virtualClusters": {"vc": {"virtualCells": [], "pins": []}}},
            "virtualClusters[...]",
            "unknown field `pins`",
        ),
        (
            {"virtualClusters": {"vc": {"virtualCells": [{"cellType": "node", "cellNumber": -1}]}}},
            "virtualClusters[...].virtualCells[0].cellNumber",
            ">= 0",
        ),
        (
            {"physicalCluster": {"cellTypes": {"node": {"childCellType": "gpu", "childCellNumber": 0}}}},
            "physicalCluster.cellTypes[...].childCellNumber",
            ">= 1",
        ),
        ([], "", "expected `object`, got `array`"),
    ],
)
def test_specification_when_something_is_not_understood_is_refused_with_its_path(
    document: Any, field: str, sentence: str
) -> None:
    with pytest.raises(InvalidField) as refused:
        read_specification(document)
    assert refused.value.field == field
    assert sentence in str(refused.value)


def of_members(**members: tuple[str, ...]) -> CellsSpec:
    return CellsSpec(virtual_clusters={name: VirtualClusterSpec(members=each) for name, each in members.items()})


@pytest.mark.parametrize(
    ("cells", "home"),
    [
        (of_members(vision=("ada",), speech=("bob",)), "vision"),
        (of_members(vision=("ada",), speech=("ada", "bob")), "default"),
        (of_members(vision=("*",), speech=("bob",)), "vision"),
        (of_members(vision=("bob",)), "default"),
        (CellsSpec(), "default"),
    ],
)
def test_home_of_a_user_is_the_only_virtual_cluster_that_has_the_member(cells: CellsSpec, home: str) -> None:
    assert cells.home_of("ada") == home


def test_members_when_none_are_named_are_all_users_and_none_where_the_list_is_empty() -> None:
    cells = CellsSpec(virtual_clusters={"open": VirtualClusterSpec(), "closed": VirtualClusterSpec(members=())})
    assert [cells.has_member(name, "ada") for name in ("open", "closed", "default", "other")] == [
        True,
        False,
        True,
        False,
    ]

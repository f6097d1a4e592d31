"""Chains of cell types, and types that are none."""

import pytest

from voda.cells.structure.cell_types import chain_of
from voda.domain.cells import CellTypeSpec
from voda.domain.errors import InvalidInput

SWITCH = CellTypeSpec(child_cell_type="gpu", child_cell_number=2)
NODE = CellTypeSpec(child_cell_type="switch", child_cell_number=4, is_node_level=True)
RACK = CellTypeSpec(child_cell_type="node", child_cell_number=10)


def test_chain_when_types_are_nested_has_levels_from_the_device_upwards() -> None:
    chain = chain_of("rack", {"rack": RACK, "node": NODE, "switch": SWITCH})
    assert [(each.name, each.level, each.leafs) for each in chain.types] == [
        ("gpu", 1, 1),
        ("switch", 2, 2),
        ("node", 3, 8),
        ("rack", 4, 80),
    ]
    assert (chain.name, chain.leaf_type, chain.node_level, chain.top) == ("rack", "gpu", 3, 4)


def test_chain_when_a_type_contains_itself_is_refused() -> None:
    loop = {"node": NODE, "switch": CellTypeSpec(child_cell_type="node", child_cell_number=2)}
    with pytest.raises(InvalidInput, match="contain each other: node > switch > node"):
        chain_of("node", loop)


def test_chain_when_the_top_is_not_declared_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cell type rack of a topmost physical cell is not declared"):
        chain_of("rack", {"node": NODE})


@pytest.mark.parametrize("rack_is_node", [True, False])
def test_chain_when_not_exactly_one_type_is_a_machine_is_refused(rack_is_node: bool) -> None:
    node = NODE if rack_is_node else CellTypeSpec(child_cell_type="switch", child_cell_number=4)
    rack = CellTypeSpec(child_cell_type="node", child_cell_number=10, is_node_level=rack_is_node)
    with pytest.raises(InvalidInput, match=f"cell type rack: {2 if rack_is_node else 0} of the types .* expected 1"):
        chain_of("rack", {"rack": rack, "node": node, "switch": SWITCH})

"""A topology from the nodes that are there."""

from voda.cells.structure.derivation import RackNode, derive_topology
from voda.cells.structure.topology import build_topology


def test_derived_topology_when_nodes_are_equal_has_nodes_over_gpus() -> None:
    spec = derive_topology([RackNode("n1", 4), RackNode("n0", 4), RackNode("cpu", 0)])
    topology = build_topology(spec)
    assert [each.name for each in topology.chains["node"].types] == ["gpu", "node"]
    assert list(topology.leafs_on) == ["n0", "n1"]


def test_derived_topology_when_nodes_differ_names_their_sizes() -> None:
    topology = build_topology(derive_topology([RackNode("n0", 4), RackNode("n1", 8)]))
    assert list(topology.chains) == ["node-4", "node-8"]


def test_derived_topology_when_labels_name_racks_has_racks() -> None:
    machines = [RackNode(f"n{number}", 8, f"r{number // 2}") for number in range(4)]
    topology = build_topology(derive_topology([*machines, RackNode("alone", 8)], leaf_type="a100"))
    assert [each.name for each in topology.chains["rack"].types] == ["a100", "node", "rack"]
    assert topology.nodes[topology.cells_at["rack", 3][1]] == ("n2", "n3")
    assert topology.addresses[0] == "r0"
    assert list(topology.chains) == ["rack", "node"]


def test_derived_topology_when_racks_differ_has_a_type_for_each_shape() -> None:
    machines = [RackNode("a", 8, "r0"), RackNode("b", 8, "r0"), RackNode("c", 8, "r1"), RackNode("d", 4, "r2")]
    mixed = [RackNode("e", 4, "r3"), RackNode("f", 8, "r3")]
    topology = build_topology(derive_topology([*machines, *mixed]))
    assert list(topology.chains) == ["rack-2-node-8", "rack-1-node-8", "rack-1-node-4", "node-4", "node-8"]


def test_derived_topology_when_machines_come_in_another_order_is_the_same() -> None:
    machines = [RackNode(f"n{number}", 8, f"r{number % 3}") for number in range(9)]
    assert derive_topology(machines) == derive_topology(machines[::-1])


def test_derived_topology_when_there_is_no_machine_is_empty() -> None:
    assert build_topology(derive_topology([])).chains == {}

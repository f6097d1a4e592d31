"""Changes the nodes of one pool, and since when those that are silent are waited for.

Rule: once most nodes of a pool answer again, the others are waited for anew: they may only be a moment behind.
"""

from collections.abc import MutableMapping

from voda.domain.node import Node
from voda.domain.state import mostly_silent


def put_node(nodes: MutableMapping[str, Node], silent_since: MutableMapping[str, float], node: Node, at: float) -> None:
    """Store a node that joined or changed at that instant, seconds since the epoch; the last changed node is last."""
    was_ill = mostly_silent(silent_since, nodes)
    nodes.pop(node.name, None)
    nodes[node.name] = node
    if node.is_ready or node.is_draining:
        silent_since.pop(node.name, None)
    else:
        silent_since.setdefault(node.name, at)
    _restart(nodes, silent_since, at, was_ill=was_ill)


def drop_node(nodes: MutableMapping[str, Node], silent_since: MutableMapping[str, float], name: str, at: float) -> None:
    """Remove a node that is there and left at that instant."""
    was_ill = mostly_silent(silent_since, nodes)
    del nodes[name]
    silent_since.pop(name, None)
    _restart(nodes, silent_since, at, was_ill=was_ill)


def _restart(
    nodes: MutableMapping[str, Node], silent_since: MutableMapping[str, float], at: float, *, was_ill: bool
) -> None:
    if was_ill and not mostly_silent(silent_since, nodes):
        silent_since.update(dict.fromkeys(silent_since, at))

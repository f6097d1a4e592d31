"""Packing: on which nodes of a view the workers of a gang go, and which leafs of the node each gets.

Nodes are tried in the order of preference, workers from the smallest, and a node that does not fit is never tried
again: quick, and it fills nodes. Where that finds nothing, the workers are tried once more from the largest, each on
the fullest node that still holds it. Both are polynomial; the second is exact where every size divides the next.
"""

from collections.abc import Callable, Mapping, Sequence

from voda.cells.structure.cell_types import LEAF
from voda.cells.structure.trees import Trees

Sizes = Sequence[int]
"""Leafs of each worker, ascending."""


def pack(sizes: Sizes, nodes: Sequence[int], room: Mapping[int, int]) -> list[int] | None:
    """Return the node of each worker; None where they do not fit.

    Args:
        nodes: in the order of preference.
        room: node -> leafs that are free.
    """
    return _pack_in_order(sizes, nodes, room) or _pack_largest_first(sizes, nodes, room)


def _pack_in_order(sizes: Sizes, nodes: Sequence[int], room: Mapping[int, int]) -> list[int] | None:
    chosen: list[int] = []
    for node in nodes:
        left = room[node]
        while left >= sizes[len(chosen)]:
            left -= sizes[len(chosen)]
            chosen.append(node)
            if len(chosen) == len(sizes):
                return chosen
    return None


def _pack_largest_first(sizes: Sizes, nodes: Sequence[int], room: Mapping[int, int]) -> list[int] | None:
    left = {node: room[node] for node in nodes if room[node] >= sizes[0]}
    if sum(left.values()) < sum(sizes):
        return None
    chosen = []
    for size in reversed(sizes):
        fitting = [node for node, leafs in left.items() if leafs >= size]
        if not fitting:
            return None
        node = min(fitting, key=left.__getitem__)
        left[node] -= size
        chosen.append(node)
    return chosen[::-1]


def choose_leafs(trees: Trees, candidates: Sequence[int], count: int) -> list[int]:
    """Return `count` leafs that are as near to each other as can be: below the lowest cell that has so many.

    Of several such cells it is the one whose first leaf comes first among the candidates.

    Args:
        candidates: leafs of one node, the most preferred first; at least `count`.
    """
    above = list(candidates)
    level = LEAF
    while True:
        groups: dict[int, list[int]] = {}
        for leaf, cell in zip(candidates, above, strict=True):
            groups.setdefault(cell, []).append(leaf)
        for leafs in groups.values():
            if len(leafs) >= count:
                return leafs[:count]
        level += 1
        above = [trees.ancestor(cell, level) for cell in above]


def leafs_of_workers(
    trees: Trees, sizes: Sizes, nodes: Sequence[int], candidates: Callable[[int], list[int]]
) -> list[list[int]]:
    """Return the leafs of each worker, in the order of `sizes`, given the node of each.

    Args:
        candidates: node -> leafs that can be used there, the most preferred first.
    """
    left = {node: candidates(node) for node in dict.fromkeys(nodes)}
    chosen = []
    for size, node in zip(sizes, nodes, strict=True):
        leafs = choose_leafs(trees, left[node], size)
        left[node] = [leaf for leaf in left[node] if leaf not in leafs]
        chosen.append(leafs)
    return chosen

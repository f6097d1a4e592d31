"""What HiveD's inspection shows: gangs as affinity groups, the physical cells, and the cells of each virtual cluster.

Opportunistic use is shown in the user's virtual cluster as cells of its own, whose addresses end with `-opp`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from voda.cells.book import CellBook
from voda.cells.gangs import FREE, OPPORTUNISTIC, Gang
from voda.cells.structure.cell_types import Chain
from voda.cells.structure.trees import NONE

Document = dict[str, Any]
_FREE: Final = "Free"
_USED: Final = "Used"


def gangs_of_pods(book: CellBook) -> list[Gang]:
    """Return the gangs of pods that have or have reserved cells; the workers of jobs are gangs without pods."""
    return [gang for gang in book.gangs.values() if gang.workers or gang.waiting]


def affinity_groups(book: CellBook) -> Document:
    """Return all gangs of pods that have or have reserved cells."""
    return {"items": [affinity_group(book, gang) for gang in gangs_of_pods(book)]}


def affinity_group(book: CellBook, gang: Gang) -> Document:
    """Return one gang."""
    physical: dict[str, list[int]] = {}
    virtual: dict[str, list[str]] = {}
    for leaf in gang.leafs:
        physical.setdefault(book.topology.nodes[leaf][0], []).append(book.topology.devices[leaf])
    for cell in gang.virtual.values():
        virtual.setdefault(book.quotas.addresses[book.quotas.root[cell]], []).append(book.quotas.addresses[cell])
    status: Document = {
        "vc": gang.request.virtual_cluster,
        "priority": gang.request.priority,
        "state": book.state(gang).value,
        "physicalPlacement": physical,
        "virtualPlacement": virtual,
        "allocatedPods": list(gang.workers.values()),
        "preemptingPods": sorted(gang.waiting),
    }
    if gang.downgraded_by:
        status["lazyPreemptionStatus"] = {"preemptor": gang.downgraded_by}
    return {"metadata": {"name": gang.name}, "status": status}


def physical_cluster(book: CellBook) -> list[Document]:
    """Return the physical cells, each with those in it."""
    return [_physical(book, cell) for cell, above in enumerate(book.topology.trees.parent) if above == NONE]


def virtual_clusters(book: CellBook) -> dict[str, list[Document]]:
    """Return the cells of every virtual cluster."""
    return {name: virtual_cluster(book, name) for name in book.quotas.clusters}


def virtual_cluster(book: CellBook, name: str) -> list[Document]:
    """Return the cells of a virtual cluster, quota by quota, and what it uses beyond them."""
    roots = [cell for cell, above in enumerate(book.quotas.trees.parent) if above == NONE]
    owned = [_virtual(book, root) for root in roots if book.quotas.owner[root] == name]
    return [*owned, *_borrowed(book, name)]


def _physical(book: CellBook, cell: int) -> Document:
    trees = book.topology.trees
    children = [_physical(book, child) for child in trees.children[cell]]
    shown = {**_physical_head(book, cell), **_rolled_up(children, lambda: _leaf_status(book, cell))}
    if children:
        shown["cellChildren"] = children
    if (virtual := book.virtual[cell]) != NONE:
        shown["vc"] = book.quotas.owner[virtual]
        shown["virtualCell"] = {**_status(shown), **_virtual_head(book, virtual)}
    return shown


def _virtual(book: CellBook, cell: int) -> Document:
    children = [_virtual(book, child) for child in book.quotas.trees.children[cell]]
    place = book.place[cell]

    def leaf_status() -> Document:
        is_used = place != NONE and book.virtual_priority[cell] != FREE
        return _leaf_status(book, place) if is_used else {"cellState": _FREE, "cellPriority": FREE}

    shown = {**_virtual_head(book, cell), **_rolled_up(children, leaf_status)}
    shown["cellHealthiness"] = "Bad" if book.is_bad_binding(cell) else "Healthy"
    if children:
        shown["cellChildren"] = children
    if place != NONE:
        shown["physicalCell"] = {**_physical_head(book, place), **_status(shown)}
    return shown


def _borrowed(book: CellBook, name: str) -> Iterator[Document]:
    for gang in book.gangs.values():
        if gang.request.virtual_cluster == name:
            for leaf in (leaf for leaf in gang.leafs if book.priority[leaf] == OPPORTUNISTIC):
                head = _physical_head(book, leaf)
                status = _leaf_status(book, leaf)
                yield {
                    **head,
                    **status,
                    "cellAddress": f"{head['cellAddress']}-opp",
                    "physicalCell": {**head, **status},
                }


def _status(shown: Mapping[str, Any]) -> Document:
    """Return the state and priority of a cell that is shown."""
    return {key: shown[key] for key in ("cellState", "cellPriority")}


def _rolled_up(children: list[Document], leaf_status: Callable[[], Document]) -> Document:
    if not children:
        return leaf_status()
    states = {child["cellState"] for child in children}
    state = _USED if _USED in states else states.pop() if len(states) == 1 else _FREE
    return {"cellState": state, "cellPriority": max(child["cellPriority"] for child in children)}


def _leaf_status(book: CellBook, leaf: int) -> Document:
    is_held, is_reserved = bool(book.holder[leaf]), bool(book.reserver[leaf])
    states = {(True, True): "Reserving", (True, False): _USED, (False, True): "Reserved", (False, False): _FREE}
    return {"cellState": states[is_held, is_reserved], "cellPriority": book.priority[leaf]}


def _physical_head(book: CellBook, cell: int) -> Document:
    trees = book.topology.trees
    head = _head(trees.chain[cell], trees.level[cell], is_top=trees.parent[cell] == NONE)
    healthiness = "Bad" if book.bad[cell] else "Healthy"
    return {**head, "cellAddress": book.topology.addresses[cell], "cellHealthiness": healthiness}


def _virtual_head(book: CellBook, cell: int) -> Document:
    trees = book.quotas.trees
    head = _head(trees.chain[cell], trees.level[cell], is_top=trees.parent[cell] == NONE)
    return {
        **head,
        "cellAddress": book.quotas.addresses[cell],
        "cellHealthiness": "Bad" if book.is_bad_binding(cell) else "Healthy",
    }


def _head(chain: Chain, level: int, *, is_top: bool) -> Document:
    kind = chain.type_at(level)
    head: Document = {"leafCellType": chain.leaf_type} if is_top else {}
    return {**head, "cellType": kind.name, "isNodeLevel": level == chain.node_level}

"""HiveD's words for what voda says: codes of reasons, states of groups, shapes of placements."""

from collections.abc import Mapping
from typing import Any, Final

from tests.conformance.hived.vectors import Answer, BadCells, FreeCells, PodSpec
from voda.cells.book import CellBook
from voda.cells.decisions import WaitReason
from voda.cells.gangs import Gang, GangRequest, WorkerCells
from voda.cells.health import doomed_cells
from voda.cells.requests import RefusalReason

WAIT_CODES: Final = {
    WaitReason.NO_QUOTA: "insufficient_capacity_in_vc",
    WaitReason.QUOTA_IN_USE: "insufficient_capacity_in_vc",
    WaitReason.QUOTA_BAD: "needs_bad_node_in_vc",
    WaitReason.QUOTA_NOT_SUGGESTED: "needs_non_suggested_node_in_vc",
    WaitReason.NOT_IDLE: "insufficient_capacity_in_physical",
    WaitReason.IDLE_BAD: "needs_bad_node_in_physical",
    WaitReason.IDLE_NOT_SUGGESTED: "needs_non_suggested_node_in_physical",
    WaitReason.MAPPING_NEEDS_BAD: "mapping_needs_bad_node",
    WaitReason.MAPPING_NEEDS_UNUSABLE: "mapping_needs_bad_or_non_suggested_node",
    WaitReason.BEING_PREEMPTED: "group_being_preempted",
}
REFUSAL_CODES: Final = {
    RefusalReason.NO_VIRTUAL_CLUSTER: "vc_empty",
    RefusalReason.UNKNOWN_VIRTUAL_CLUSTER: "unknown_vc",
    RefusalReason.PRIORITY_TOO_LOW: "priority_below_-1",
    RefusalReason.PRIORITY_TOO_HIGH: "priority_above_1000",
    RefusalReason.NO_LEAFS: "leaf_number_not_positive",
    RefusalReason.NO_NAME: "group_name_empty",
    RefusalReason.NO_WORKERS: "member_pod_number_not_positive",
    RefusalReason.NO_MEMBER_LEAFS: "member_leaf_number_not_positive",
    RefusalReason.SIZE_UNKNOWN: "pod_size_not_in_group_members",
    RefusalReason.TOO_MANY_WORKERS: "more_pods_than_group_declares",
    RefusalReason.UNKNOWN_LEAF_TYPE: "leaf_type_unknown_in_cluster",
    RefusalReason.LEAF_TYPE_WITHOUT_QUOTA: "leaf_type_absent_in_vc",
    RefusalReason.UNKNOWN_PIN: "unknown_pinned_cell_in_vc",
    RefusalReason.OPPORTUNISTIC_PIN: "opportunistic_with_pinned_cell",
}
_NAMESPACE: Final = "test"
"""Of pods that belong to no group."""


def request_of(pod: str, spec: PodSpec) -> GangRequest:
    """Return the gang that a pod's request names, or its own."""
    group = spec.affinity_group
    members: tuple[tuple[int, int], ...] = ((1, spec.leaf_cell_number),)
    if group is not None:
        members = tuple((member.pod_number, member.leaf_cell_number) for member in group.members)
    return GangRequest(
        name=f"{_NAMESPACE}/{pod}" if group is None else group.name,
        virtual_cluster=spec.virtual_cluster,
        members=members,
        priority=spec.priority,
        leaf_type=spec.leaf_cell_type,
        pin=spec.pinned_cell_id,
        yields=spec.lazy_preemption_enable,
        ignores_suggestions=spec.ignore_k8s_suggested_nodes,
    )


def group_state(book: CellBook, gang: Gang) -> Mapping[str, Any]:
    """Return a gang's state."""
    placement: dict[str, list[int]] = {}
    for leaf in gang.leafs:
        placement.setdefault(book.topology.nodes[leaf][0], []).append(book.topology.devices[leaf])
    state = {
        "state": book.state(gang).value,
        "vc": gang.request.virtual_cluster,
        "priority": gang.request.priority,
        "inVirtualCluster": gang.request.is_guaranteed and not gang.downgraded_by,
        "lazyPreempted": bool(gang.downgraded_by),
        "physicalPlacement": {node: sorted(devices) for node, devices in sorted(placement.items())},
    }
    missing = sum(gang.request.sizes) - len(gang.leafs)
    return state | ({"leafCellsNotInPhysicalConfig": missing} if missing else {})


def free_cells(book: CellBook) -> FreeCells:
    """Return how many cells of each level are free."""
    return {
        name: {str(level): len(cells) for level, cells in enumerate(books.lists) if cells}
        for name, books in book.free.items()
    }


def bad_cells(book: CellBook) -> BadCells:
    """Return how many quota cells of each level are bad."""
    return {
        cluster: {f"{chain}@{level}": count for (chain, level), count in sorted(counts.items())}
        for cluster, counts in doomed_cells(book).items()
    }


def bound(book: CellBook, request: GangRequest, cells: WorkerCells) -> Answer:
    """Return the answer for a worker that starts, in the book before anything changes."""
    leafs = [book.topology.leaf_at[cells.node, device] for device in cells.devices]
    chain = book.topology.trees.chain[leafs[0]]
    tops = set(leafs)
    while len(tops) > 1:
        tops = {book.topology.trees.parent[cell] for cell in tops}
    on_node = {name for leaf in book.topology.leafs_on[cells.node] for name in (book.holder[leaf], book.reserver[leaf])}
    return {
        "kind": "bind",
        "node": cells.node,
        "leafCells": list(cells.devices),
        "chain": cells.chain,
        "preassignedCellTypes": [cells.quota],
        "shape": {
            "leafCount": len(leafs),
            "lowestCommonCellType": chain.type_at(book.topology.trees.level[tops.pop()]).name,
            "nodeSharedWithGroups": sorted(on_node - {"", request.name}),
            "ownGroupMembersOnNode": request.name in on_node,
        },
    }

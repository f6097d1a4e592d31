"""What a request must be: every rule with a sentence, and a reason for programs."""

from enum import StrEnum

from voda.cells.book import CellBook
from voda.cells.gangs import HIGHEST, OPPORTUNISTIC, GangRequest
from voda.cells.structure.cell_types import Chain
from voda.domain.errors import InvalidInput


class RefusalReason(StrEnum):
    """Why a request can never be met as it is."""

    NO_VIRTUAL_CLUSTER = "no virtual cluster"
    UNKNOWN_VIRTUAL_CLUSTER = "unknown virtual cluster"
    PRIORITY_TOO_LOW = "priority too low"
    PRIORITY_TOO_HIGH = "priority too high"
    NO_LEAFS = "no leafs"
    NO_NAME = "no name"
    NO_WORKERS = "no workers"
    NO_MEMBER_LEAFS = "no leafs of a member"
    SIZE_UNKNOWN = "size unknown"
    TOO_MANY_WORKERS = "too many workers"
    UNKNOWN_LEAF_TYPE = "unknown leaf type"
    LEAF_TYPE_WITHOUT_QUOTA = "leaf type without quota"
    UNKNOWN_PIN = "unknown pin"
    OPPORTUNISTIC_PIN = "opportunistic pin"


class RequestRefused(InvalidInput):
    """The request can never be met as it is."""

    def __init__(self, reason: RefusalReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def check_worker(request: GangRequest, leafs: int) -> None:
    """Check what a request says of itself, asked for a worker of so many leafs.

    Raises:
        RequestRefused: a name is missing, a number is out of bounds, or no member has that size.
    """
    name = request.name
    if not request.virtual_cluster:
        raise RequestRefused(RefusalReason.NO_VIRTUAL_CLUSTER, f"gang {name} names no virtual cluster")
    if request.priority < OPPORTUNISTIC:
        raise RequestRefused(RefusalReason.PRIORITY_TOO_LOW, _bounds(request))
    if request.priority > HIGHEST:
        raise RequestRefused(RefusalReason.PRIORITY_TOO_HIGH, _bounds(request))
    if leafs <= 0:
        raise RequestRefused(RefusalReason.NO_LEAFS, f"gang {name}: a worker needs 1 device at least, got {leafs}")
    if not name:
        raise RequestRefused(RefusalReason.NO_NAME, "the gang has no name")
    for workers, size in request.members:
        if workers <= 0:
            message = f"gang {name}: a member must have 1 worker at least, got {workers}"
            raise RequestRefused(RefusalReason.NO_WORKERS, message)
        if size <= 0:
            message = f"gang {name}: workers of a member need 1 device at least, got {size}"
            raise RequestRefused(RefusalReason.NO_MEMBER_LEAFS, message)
    sizes = sorted({size for _, size in request.members})
    if leafs not in sizes:
        message = f"gang {name}: no member has workers of {leafs} devices, expected one of {sizes}"
        raise RequestRefused(RefusalReason.SIZE_UNKNOWN, message)


def chains_to_search(book: CellBook, request: GangRequest) -> list[Chain]:
    """Return the chains that a request without a pin may be placed in, in order; with a pin, none.

    Raises:
        RequestRefused: the virtual cluster, pin or device type is unknown, or there is no quota of that type.
    """
    cluster, leaf_type = request.virtual_cluster, request.leaf_type
    if cluster not in book.quotas.clusters:
        known = ", ".join(book.quotas.clusters) or "none"
        message = f"gang {request.name}: there is no virtual cluster {cluster} (there are: {known})"
        raise RequestRefused(RefusalReason.UNKNOWN_VIRTUAL_CLUSTER, message)
    if request.pin:
        _check_pin(book, request)
        return []
    types = book.topology.leaf_types
    if leaf_type and leaf_type not in types:
        message = f"gang {request.name}: no device is of type {leaf_type} (there are: {', '.join(types)})"
        raise RequestRefused(RefusalReason.UNKNOWN_LEAF_TYPE, message)
    chains = [chain for each in ([leaf_type] if leaf_type else types) for chain in book.topology.chains_with(each)]
    if request.is_guaranteed:
        chains = [chain for chain in chains if _has_quota(book, cluster, chain)]
        if leaf_type and not chains:
            message = f"gang {request.name}: virtual cluster {cluster} has no quota of devices of type {leaf_type}"
            raise RequestRefused(RefusalReason.LEAF_TYPE_WITHOUT_QUOTA, message)
    return chains


def _has_quota(book: CellBook, cluster: str, chain: Chain) -> bool:
    view = book.quotas.views.get((cluster, chain.name))
    return view is not None and bool(view.roots)


def _check_pin(book: CellBook, request: GangRequest) -> None:
    cluster, pin = request.virtual_cluster, request.pin
    if (cluster, pin) not in book.quotas.pin_views:
        message = f"gang {request.name}: virtual cluster {cluster} has no pinned cell {pin}"
        raise RequestRefused(RefusalReason.UNKNOWN_PIN, message)
    if not request.is_guaranteed:
        message = f"gang {request.name}: opportunistic work cannot ask for a pinned cell, got {pin}"
        raise RequestRefused(RefusalReason.OPPORTUNISTIC_PIN, message)


def _bounds(request: GangRequest) -> str:
    return f"gang {request.name}: priority must be from {OPPORTUNISTIC} to {HIGHEST}, got {request.priority}"

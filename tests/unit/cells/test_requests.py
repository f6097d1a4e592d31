"""Requests that can never be met, each with its reason and a sentence."""

import pytest

from tests.unit.cells.clusters import a_book, a_cluster, a_gang
from voda.cells.gangs import GangRequest
from voda.cells.requests import RefusalReason, RequestRefused
from voda.cells.scheduling import decide

BOOK = a_book(a_cluster(racks=1, boxes=1, quotas={"a": {"rack.node": 1}, "b": {}}, pins="a"))


@pytest.mark.parametrize(
    ("request_", "leafs", "reason", "sentence"),
    [
        (a_gang("g", ""), 1, RefusalReason.NO_VIRTUAL_CLUSTER, "gang g names no virtual cluster"),
        (a_gang("g", "z"), 1, RefusalReason.UNKNOWN_VIRTUAL_CLUSTER, r"no virtual cluster z \(there are: a, b\)"),
        (a_gang("g", priority=-2), 1, RefusalReason.PRIORITY_TOO_LOW, "must be from -1 to 1000, got -2"),
        (a_gang("g", priority=10**30), 1, RefusalReason.PRIORITY_TOO_HIGH, "must be from -1 to 1000, got 1000000"),
        (a_gang("g"), 0, RefusalReason.NO_LEAFS, "a worker needs 1 device at least, got 0"),
        (a_gang(""), 1, RefusalReason.NO_NAME, "the gang has no name"),
        (a_gang("g", "a", (0, 1)), 1, RefusalReason.NO_WORKERS, "1 worker at least, got 0"),
        (a_gang("g", "a", (1, -1)), 1, RefusalReason.NO_MEMBER_LEAFS, "1 device at least, got -1"),
        (a_gang("g", "a", (1, 2)), 1, RefusalReason.SIZE_UNKNOWN, r"workers of 1 devices, expected one of \[2\]"),
        (a_gang("g", leaf_type="h100"), 1, RefusalReason.UNKNOWN_LEAF_TYPE, r"type h100 \(there are: gpu\)"),
        (a_gang("g", "b", leaf_type="gpu"), 1, RefusalReason.LEAF_TYPE_WITHOUT_QUOTA, "b has no quota of .* gpu"),
        (a_gang("g", "b", pin="pin"), 1, RefusalReason.UNKNOWN_PIN, "virtual cluster b has no pinned cell pin"),
        (a_gang("g", pin="pin", priority=-1), 1, RefusalReason.OPPORTUNISTIC_PIN, "cannot ask for a pinned cell"),
    ],
)
def test_request_when_it_can_never_be_met_is_refused(
    request_: GangRequest, leafs: int, reason: RefusalReason, sentence: str
) -> None:
    with pytest.raises(RequestRefused, match=sentence) as refused:
        decide(BOOK, request_, leafs)
    assert refused.value.reason == reason

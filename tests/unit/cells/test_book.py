"""The load check: quotas fit the cells, or a sentence says what lacks."""

from collections.abc import Mapping
from dataclasses import FrozenInstanceError

import pytest

from tests.unit.cells.book_check import is_safe
from tests.unit.cells.clusters import TYPES, a_book, a_cluster, a_gang
from tests.unit.cells.running import running
from voda.cells.bindings import can_be_bound
from voda.cells.book import Shortage
from voda.cells.decisions import GangWaits
from voda.cells.search.views import Packing
from voda.domain.cells import read_specification
from voda.domain.errors import InvalidInput


@pytest.mark.parametrize(
    ("quotas", "pins", "sentence"),
    [
        (
            {"a": {"rack": 1}, "b": {"rack.node": 3}},
            "",
            r"the virtual clusters are owed 3 cells of type node \(level 3\) in chain rack, and 2 are available",
        ),
        ({"a": {"rack": 2}, "b": {"rack": 1}}, "", r"owed 3 cells of type rack \(level 4\) in chain rack, and 2 are"),
        ({"a": {"rack": 2}}, "a", r"owed 2 cells of type rack \(level 4\) in chain rack, and 1 is available"),
        ({"a": {"box": 1, "box.gpu": 1}}, "", r"owed 1 cell of type gpu \(level 1\) in chain box, and 0 are"),
    ],
)
def test_book_when_quotas_do_not_fit_says_type_level_owed_and_available(
    quotas: Mapping[str, Mapping[str, int]], pins: str, sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        a_book(a_cluster(racks=2, boxes=1, quotas=quotas, pins=pins))


def test_book_when_quotas_fit_exactly_is_opened() -> None:
    book = a_book(a_cluster(racks=2, quotas={"a": {"rack": 1}, "b": {"rack.node": 1, "rack.node.switch": 2}}))
    assert book.free["rack"].owed == [0, 0, 2, 1, 1]
    assert is_safe(book.free["rack"])


def test_book_when_copied_shares_nothing_that_changes() -> None:
    book = a_book(a_cluster(racks=1, quotas={"a": {"rack": 1}}))
    copied = book.copy()
    assert copied == book
    copied.free["rack"].lists[4].clear()
    copied.virtual[0] = 5
    assert book == a_book(a_cluster(racks=1, quotas={"a": {"rack": 1}}))


def test_book_when_a_topmost_cell_is_pinned_keeps_nothing_of_it_for_others() -> None:
    cells = [{"cellType": "box", "cellAddress": name, "pinnedCellId": name} for name in ("b0", "b1")]
    document = {
        "physicalCluster": {"cellTypes": TYPES, "physicalCells": cells},
        "virtualClusters": {"a": {"pinnedCells": [{"pinnedCellId": "b0"}]}},
    }
    book = a_book(read_specification(document))
    assert book.free["box"].left == [0, 2, 1]
    assert is_safe(book.free["box"])


def test_leaf_when_the_cell_around_it_is_bound_can_be_bound_in_the_same_quota_cell_alone() -> None:
    book = running(a_cluster(racks=1, quotas={"a": {"rack.node": 2}}), a_gang("g"))
    (used,) = book.gangs["g"].leafs
    (bound,) = book.gangs["g"].virtual.values()
    here, there = book.topology.leafs_on["r0n0"], book.topology.leafs_on["r0n1"]
    if used in there:
        here, there = there, here
    inside, outside = (
        [leaf for leaf in book.quotas.trees.leafs[root] if leaf != bound]
        for root in book.quotas.views["a", "rack"].roots
    )
    if book.place[book.quotas.root[inside[0]]] == -1:
        inside, outside = outside, inside
    free = next(leaf for leaf in here if leaf != used)
    assert can_be_bound(book, free, inside[0])
    assert not can_be_bound(book, there[0], inside[0])
    assert not can_be_bound(book, free, outside[-1])
    assert can_be_bound(book, there[0], outside[-1])


@pytest.mark.parametrize("value", [Shortage("c", "t", 1, 2, 1), GangWaits(()), Packing((), lambda _: [])])
def test_answer_when_given_cannot_be_changed(value: object) -> None:
    field = next(iter(vars(value)))
    with pytest.raises(FrozenInstanceError):
        setattr(value, field, None)

"""The load check: quotas fit the cells, or a sentence says what lacks."""

from collections.abc import Mapping

import pytest

from tests.unit.cells.clusters import a_book, a_cluster
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
        ({"a": {"rack": 2}}, "a", r"owed 2 cells of type rack \(level 4\) in chain rack, and 1 are available"),
        ({"a": {"box": 1, "box.gpu": 1}}, "", r"owed 1 cells of type gpu \(level 1\) in chain box, and 0 are"),
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
    assert book.free["rack"].is_safe()


def test_book_when_copied_shares_nothing_that_changes() -> None:
    book = a_book(a_cluster(racks=1, quotas={"a": {"rack": 1}}))
    copied = book.copy()
    assert copied == book
    copied.free["rack"].lists[4].clear()
    copied.virtual[0] = 5
    assert book == a_book(a_cluster(racks=1, quotas={"a": {"rack": 1}}))

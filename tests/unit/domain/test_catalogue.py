"""Parts are found by their file, and a wrong name is answered helpfully."""

import pytest

from voda import placement
from voda.domain.errors import InvalidInput
from voda.domain.plugins import chosen, classes_with


def test_classes_with_when_a_package_is_searched_then_protocols_and_imports_are_left_out() -> None:
    found = classes_with("place", placement)
    assert all(part.__module__ == f"voda.placement.{name}" for name, part in found.items())
    assert list(found) == sorted(found)


def test_chosen_when_the_name_is_wrong_then_the_closest_one_is_offered() -> None:
    with pytest.raises(InvalidInput, match=r"policy 'fifi' is not known. Did you mean 'fifo'\? Known: fifo, srjf."):
        chosen("fifi", {"fifo": 1, "srjf": 2}, what="policy")


def test_chosen_when_nothing_is_close_then_all_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"policy 'xyz' is not known. Known: fifo."):
        chosen("xyz", {"fifo": 1}, what="policy")

"""One option for each, the first in order that leaves the others one."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from voda.cells.search.matching import first_matching


def test_matching_when_the_first_choice_leaves_another_none_takes_the_next() -> None:
    assert first_matching([[1, 2], [1]]) == [2, 1]
    assert first_matching([[1, 2, 3], [1, 2], [1]]) == [3, 2, 1]


def test_matching_when_two_have_the_same_only_option_is_none() -> None:
    assert first_matching([[1], [1]]) is None
    assert first_matching([[]]) is None


@given(st.lists(st.lists(st.integers(0, 4), unique=True, max_size=4), max_size=4))
def test_matching_when_drawn_is_the_first_of_all_that_are_possible(options: list[list[int]]) -> None:
    possible = [list(each) for each in product(*options) if len(set(each)) == len(each)]
    assert first_matching(options) == (possible[0] if possible else None)

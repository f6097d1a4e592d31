"""Sizes: what they hold, the nearest ones, what people write, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.domain.errors import InvalidField, InvalidInput
from voda.domain.job import JobSpec, validated
from voda.domain.sizes import JobSizes, SizeRange
from voda.domain.sizes.text import parse_sizes

NUMBERS = st.sets(st.integers(1, 60), min_size=1, max_size=20).map(sorted)


@given(numbers=NUMBERS, size=st.integers(0, 70))
def test_sizes_when_asked_answer_as_the_list_of_them_would(numbers: list[int], size: int) -> None:
    sizes = JobSizes.of(numbers)
    assert [*sizes] == numbers
    assert (sizes.least, sizes.most) == (numbers[0], numbers[-1])
    assert sizes.floor(size) == max((each for each in numbers if each <= size), default=0)
    assert sizes.above(size) == min((each for each in numbers if each > size), default=0)
    assert (size in sizes) == (size in numbers)
    assert [*sizes.beyond(size)] == [each - size for each in numbers if each > size]
    assert sizes.is_dense == (numbers == [*range(numbers[0], numbers[-1] + 1)])


@given(numbers=NUMBERS)
def test_sizes_when_written_are_read_as_the_same_ones(numbers: list[int]) -> None:
    assert parse_sizes(str(JobSizes.of(numbers)), "sizes") == JobSizes.of(numbers)


@pytest.mark.parametrize(
    ("text", "sizes", "shown"),
    [
        ("4", [4], "4"),
        ("1-4", [1, 2, 3, 4], "1-4"),
        ("2-16:2", [*range(2, 17, 2)], "2-16:2"),
        (" 1, 2,4,8 ", [1, 2, 4, 8], "1,2,4,8"),
        ("1-4,8,16", [1, 2, 3, 4, 8, 16], "1-4,8,16"),
        ("4-4096:4", [*range(4, 4097, 4)], "4-4096:4"),
    ],
)
def test_sizes_when_written_by_people_are_read(text: str, sizes: list[int], shown: str) -> None:
    read = parse_sizes(text, "sizes")
    assert ([*read], str(read)) == (sizes, shown)


def test_sizes_when_in_steps_are_one_range_however_many_they_are() -> None:
    assert parse_sizes("2-4096:2", "sizes").ranges == (SizeRange(2, 4096, 2),)


EXPECTED = "sizes: expected 1 to 4,096, such as 2, 1-4, 2-16:2 or 1,2,4,8, got"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", f"{EXPECTED} ''"),
        ("1,,2", f"{EXPECTED} ''"),
        ("two", f"{EXPECTED} 'two'"),
        ("0,2", f"{EXPECTED} '0'"),
        ("8-2", "sizes: expected the smaller number first, got '8-2': 8 is above 2"),
        ("1,8-2:3", "sizes: expected the smaller number first, got '8-2:3': 8 is above 2"),
        ("9-0", f"{EXPECTED} '9-0'"),
        ("9999-2", f"{EXPECTED} '9999-2'"),
        ("2-8:0", f"{EXPECTED} '2-8:0'"),
        ("1,4097", f"{EXPECTED} '4097'"),
        ("1,2,2,4", "sizes: expected sizes in ascending order, each once, got 2 twice"),
        ("1,4,2", "sizes: expected sizes in ascending order, each once, got 2 after 4"),
        ("2-9:4", "sizes: steps of 4 from 2 do not reach 9: expected 2-6:4 or 2-10:4, got 2-9:4"),
        ("1-4:9", "sizes: steps of 9 from 1 do not reach 4: expected 1 or 1-10:9, got 1-4:9"),
        ("2-4:5000", "sizes: steps of 5000 from 2 do not reach 4: expected 2, got 2-4:5000"),
        (",".join(["1-4096"] * 800), "sizes: expected up to 4,096 letters, got 5,599"),
        (
            ",".join(str(n * (n + 1) // 2) for n in range(1, 900) if n * (n + 1) // 2 <= 4096) + ",4094,4096",
            "sizes: expected sizes in ascending order, each once, got 4094 after 4095",
        ),
    ],
)
def test_sizes_when_they_are_none_are_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InvalidField) as refused:
        parse_sizes(text, "sizes")
    assert str(refused.value) == sentence
    assert refused.value.field == "sizes"


def test_sizes_when_they_are_of_more_ranges_than_an_event_should_hold_are_refused() -> None:
    numbers = [size for start in range(1, 4000, 10) for size in (start, start + 1, start + 3, start + 7)]
    with pytest.raises(InvalidField, match=r"^sizes: expected up to 256 ranges of equal steps, got more$"):
        parse_sizes(",".join(map(str, numbers))[:4096].rpartition(",")[0], "sizes")


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ({"min_replicas": 3, "max_replicas": 8}, "job a: min_replicas is 3, expected one of its sizes, 1,2,4,8"),
        ({"min_replicas": 1, "max_replicas": 6}, "job a: max_replicas is 6, expected one of its sizes, 1,2,4,8"),
        ({"max_replicas": 8, "requested_replicas": 5}, "job a: requested is 5, expected one of its sizes, 1,2,4,8"),
    ],
)
def test_job_when_a_bound_is_none_of_its_sizes_is_refused(bounds: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{sentence}$"):
        validated(JobSpec(job_id="a", sizes=JobSizes.of([1, 2, 4, 8]), **bounds))


def test_job_when_it_has_bounds_within_its_sizes_has_those_between_them() -> None:
    spec = JobSpec(job_id="a", min_replicas=2, max_replicas=4, sizes=JobSizes.of([1, 2, 4, 8]))
    assert [spec.size_within(most) for most in range(10)] == [0, 0, 2, 2, 4, 4, 4, 4, 4, 4]
    assert [spec.size_above(size) for size in range(6)] == [2, 2, 4, 4, 0, 0]

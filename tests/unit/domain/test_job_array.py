"""Ranges of tasks as users write them, and dependencies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.domain.dependency import DependencyRequest, parse_dependencies
from voda.domain.errors import InvalidInput
from voda.domain.job_array import MOST_TASKS, ArrayRange, ArrayTask, indices_of, parse_array


@pytest.mark.parametrize(
    ("text", "indices", "at_once"),
    [
        ("0-3", (0, 1, 2, 3), 0),
        ("0-8:2", (0, 2, 4, 6, 8), 0),
        ("0-7:2%2", (0, 2, 4, 6), 2),
        ("7,1,3,1-3", (1, 2, 3, 7), 0),
        ("5", (5,), 0),
        (" 0-1%10 ", (0, 1), 10),
    ],
)
def test_range_is_read_as_slurm_reads_it(text: str, indices: tuple[int, ...], at_once: int) -> None:
    found = parse_array(text)
    assert (indices_of(found.indices), found.at_once) == (indices, at_once)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "expected tasks as in"),
        ("a-b", "got 'a-b'"),
        ("3-1", "a range that ascends"),
        ("0-9:0", "a step of 1 or more"),
        ("-1", "expected tasks as in"),
        ("0-9%0", "1 or more after %"),
        ("0-9%", "1 or more after %"),
        ("0-9%%2", "1 or more after %"),
        ("0-999999999", "indices of 0 to 999999, got 999999999"),
        ("0-999999", "up to 5,000 tasks, got 1,000,000"),
        ("0-4000,4001-8000", "up to 5,000 tasks, got 8,001"),
        ("1," * 400, "up to 500 characters"),
        ("٣", "expected tasks as in"),
    ],
)
def test_range_that_is_none_is_refused_with_what_was_expected(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        parse_array(text)


@given(st.text(alphabet="0123456789-:,% x", max_size=40))
def test_range_is_refused_or_bounded(text: str) -> None:
    try:
        found = parse_array(text)
    except InvalidInput:
        return
    assert 1 <= len(indices_of(found.indices)) <= MOST_TASKS
    assert list(indices_of(found.indices)) == sorted(set(indices_of(found.indices)))
    assert parse_array(f"{found.indices}%{found.at_once}" if found.at_once else found.indices) == found


def test_task_knows_its_array_by_variables() -> None:
    task = ArrayTask(array_id="s-2", name="s", index=4, indices="2-6:2")
    assert (task.count, dict(task.environment)) == (
        3,
        {
            "VODA_ARRAY_NAME": "s",
            "VODA_ARRAY_TASK_ID": "4",
            "VODA_ARRAY_TASK_COUNT": "3",
            "VODA_ARRAY_TASK_MIN": "2",
            "VODA_ARRAY_TASK_MAX": "6",
        },
    )
    assert parse_array("2-6:2") == ArrayRange("2-6:2")


def test_dependencies_are_read_each_once() -> None:
    found = parse_dependencies("train, prep:any,train:ok ,")
    assert found == (DependencyRequest("train"), DependencyRequest("prep", "any"))
    assert [each.text for each in found] == ["train", "prep:any"]


@pytest.mark.parametrize("text", [":ok", "train:", "train:done", "a:b:c", "x" * 300])
def test_dependency_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected the name of a job"):
        parse_dependencies(text)


def test_too_many_dependencies_are_refused() -> None:
    with pytest.raises(InvalidInput, match="up to 100 jobs, got 101"):
        parse_dependencies(",".join(f"j{number}" for number in range(101)))


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("0-4999", 5_000),
        ("1-2500,2501-5000", 5_000),
        ("999999", 1),
        ("3-3", 1),
        ("0-9:1%1", 10),
        (",".join("1" * 250), 1),
        (f"{'1,' * 249}11", 2),
    ],
)
def test_range_is_read_up_to_its_bounds(text: str, tasks: int) -> None:
    assert len(indices_of(parse_array(text).indices)) == tasks


@pytest.mark.parametrize("text", ["0-5000", "1-2500,2501-5001", "1000000", f"{'1,' * 249}111"])
def test_range_beyond_a_bound_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_array(text)


def test_dependencies_are_read_up_to_their_bounds() -> None:
    assert len(parse_dependencies(",".join(f"j{number}" for number in range(100)))) == 100
    assert parse_dependencies("x" * 200) == (DependencyRequest("x" * 200),)
    with pytest.raises(InvalidInput, match="expected the name of a job"):
        parse_dependencies("x" * 201)

"""`make mutants` tries the places where a test can see a change, with the tests that execute them."""

import random
from pathlib import Path

import pytest

from tools.mutants import Result, draw, mutants
from tools.trials import ROOT, RULES, Executed, lines_of

TEXT = """\
LIMIT = 3

def double(
    number: int = 1,
) -> int:
    if (
        number > LIMIT
    ):
        return number * (
            2
        )
    try:
        return number
    except ValueError:
        return 0
"""
MODULE = ROOT / "voda" / "domain" / "job.py"


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        (1, range(0)),
        (4, range(0)),
        (7, range(6, 9)),
        (10, range(9, 12)),
        (12, range(12, 13)),
        (14, range(14, 15)),
    ],
)
def test_lines_of_a_place_are_its_statement_without_the_body(line: int, lines: range) -> None:
    assert lines_of(TEXT, line) == lines


def test_tests_of_a_line_are_those_that_execute_it_and_all_of_a_file_that_shares_it() -> None:
    names = ("tests/unit/a.py::one", "tests/unit/a.py::two", "tests/dst/b.py::three", "tests/dst/b.py::four")
    lines = {"m.py:1": [names[0]], "m.py:2": ["tests/dst/b.py::"], "m.py:3": [""], "n.py:1": [names[1]]}
    executed = Executed(dict.fromkeys(names, 0.1), lines, failed=[names[3]])
    assert executed.of_lines("m.py", [1]) == {names[0]}
    assert executed.of_lines("m.py", [1, 2]) == {names[0], names[2]}
    assert executed.of_lines("m.py", [4]) == set()
    assert executed.of_lines("m.py", [3]) == executed.of_lines("m.py", []) == {names[0], names[2]}


def test_tests_of_what_the_import_executes_include_the_rules_for_all_classes() -> None:
    rule = f"{RULES}::test_values_when_they_can_be_changed_are_listed_with_a_reason"
    executed = Executed({"tests/unit/a.py::one": 0.1, rule: 0.1}, {"m.py:1": [""], "m.py:2": ["tests/unit/a.py::one"]})
    assert executed.of_lines("m.py", []) == executed.of_lines("m.py", [1]) == {"tests/unit/a.py::one", rule}
    assert executed.of_lines("m.py", [2]) == {"tests/unit/a.py::one"}
    assert (ROOT / RULES).exists()


def test_listed_mutant_is_recognised_whatever_empty_lines_stand_around_it() -> None:
    result = Result("m.py", 1, "remove", 0, "\n\n@lru_cache", "", "survived", "", 0.1)
    assert result.change == ("m.py", "@lru_cache", "")


@pytest.mark.slow
def test_mutants_change_no_annotation() -> None:
    changes = [one.change() for one in mutants(MODULE)]
    assert changes
    assert not [before for before, _ in changes if before == "ended_at: float | None = None"]


def test_sample_is_repeatable_and_takes_a_place_once() -> None:
    every = list(mutants(MODULE))
    drawn = draw(every, 20, random.Random(1))
    assert drawn == draw(every, 20, random.Random(1)) != draw(every, 20, random.Random(2))
    assert len({one.start for one in drawn}) == len(drawn)
    assert all(one.apply(Path(MODULE).read_text()) != Path(MODULE).read_text() for one in drawn)

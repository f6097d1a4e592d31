"""Grouped appends take effect one after the other, each whole or not at all."""

import math
from collections.abc import Mapping

from tests.builders import a_fact
from voda.domain.errors import Fenced, InvalidInput, VersionConflict
from voda.events.envelope import ANY_VERSION, Head
from voda.log.append_plan import Append, Outcome, plan_group, together


def planned(
    *appends: Append, heads: Mapping[str, Head] | None = None, known: Mapping[str, int] | None = None
) -> list[Outcome]:
    return plan_group(appends, position=10, heads=heads or {}, known=known or {}).outcomes


def test_group_in_one_stream_when_each_expects_the_one_before_succeeds_whole() -> None:
    first, second = Append("job.a", 0, [a_fact("1")], 0), Append("job.a", 1, [a_fact("2"), a_fact("3")], 0)
    assert planned(first, second) == [11, 13]


def test_group_when_one_append_fails_gives_its_positions_to_the_next() -> None:
    bad = Append("job.a", 0, [a_fact("1"), a_fact("2", epochs_done=math.nan)], 0)
    good = Append("job.a", 0, [a_fact("3")], 0)
    plan = plan_group([bad, good], position=0, heads={}, known={})
    assert isinstance(plan.outcomes[0], InvalidInput)
    assert [row[:4] for row in plan.rows] == [(1, "job.a", 1, "3")]


def test_group_when_an_epoch_rises_in_it_fences_the_appends_behind() -> None:
    outcomes = planned(Append("d.p", 0, [a_fact("1")], 2), Append("d.p", 1, [a_fact("2")], 1))
    assert isinstance(outcomes[1], Fenced)


def test_group_when_two_name_the_same_event_answers_both_with_one_position() -> None:
    same = Append("job.a", ANY_VERSION, [a_fact("1")], 0)
    assert planned(same, same) == [11, 11]


def test_append_when_all_its_events_are_known_needs_no_version() -> None:
    known = Append("job.a", 3, [a_fact("1")], 0)
    assert planned(known, heads={"job.a": Head(7, "0" * 64, 0)}, known={"1": 4}) == [4]


def test_append_when_some_of_its_events_are_new_needs_the_version() -> None:
    append = Append("job.a", 3, [a_fact("1"), a_fact("2")], 0)
    (outcome,) = planned(append, heads={"job.a": Head(7, "0" * 64, 0)}, known={"1": 4})
    assert isinstance(outcome, VersionConflict)


def test_appends_that_take_effect_together_are_refused_together() -> None:
    good, bad = Append("job.a", 0, [a_fact("1")], 0), Append("job.b", 3, [a_fact("2")], 0)
    plan = plan_group([together([good, bad]), good], position=0, heads={}, known={})
    assert isinstance(plan.outcomes[0], VersionConflict)
    assert (plan.outcomes[1], [row[1] for row in plan.rows]) == (1, ["job.a"])


def test_appends_that_take_effect_together_follow_one_another_in_one_stream_too() -> None:
    first, second = Append("job.a", 0, [a_fact("1")], 0), Append("job.a", 1, [a_fact("2"), a_fact("1")], 0)
    plan = plan_group([together([first, second])], position=0, heads={}, known={})
    assert (plan.outcomes, [row[:4] for row in plan.rows]) == ([1], [(1, "job.a", 1, "1"), (2, "job.a", 2, "2")])

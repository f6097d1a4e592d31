"""Claims about how a what-if, and the judgement of estimates, are told."""

import pytest
from rich.console import Console

from voda.cli.render.replay import comparison_tables, estimates_table
from voda.timetravel.estimate_accuracy import AccuracyRow
from voda.wire.base import instant
from voda.wire.what_ifs import ComparisonView, RunFiguresView


def figures(avg_jct_s: float) -> RunFiguresView:
    return RunFiguresView(
        avg_jct_s=avg_jct_s,
        p50_jct_s=avg_jct_s,
        p90_jct_s=avg_jct_s,
        makespan_s=avg_jct_s,
        avg_queueing_s=0.0,
        restarts_per_job=0.0,
        utilisation=1.0,
    )


def shown(resimulated_s: float, *, jobs: int) -> str:
    verdict = ComparisonView(
        position=0,
        at=instant(0.0),
        policy="srjf",
        placer="steady",
        jobs=jobs,
        left_out=4,
        recorded=figures(100.0),
        resimulated=figures(resimulated_s),
        what_if=figures(90.0),
        winners=(),
        losers=(),
    )
    console = Console(width=200)
    with console.capture() as capture:
        console.print(comparison_tables(verdict))
    return capture.get()


@pytest.mark.parametrize(("resimulated_s", "has_cause"), [(95.0, False), (80.0, True)])
def test_error_of_the_model_when_large_is_told_with_its_causes(resimulated_s: float, has_cause: bool) -> None:
    assert ("deaths of single workers" in shown(resimulated_s, jobs=1)) is has_cause


@pytest.mark.parametrize(("jobs", "says_so"), [(1, True), (9, True), (10, False)])
def test_comparison_of_few_jobs_says_that_they_say_little(jobs: int, says_so: bool) -> None:
    assert ("averages and percentiles say little" in shown(95.0, jobs=jobs)) is says_so


def test_comparison_of_no_jobs_is_a_sentence_without_figures() -> None:
    lines = shown(95.0, jobs=0).splitlines()
    assert lines[0].endswith("4 other jobs did not complete in all three runs (recorded, re-simulated, what-if)")
    assert lines[1].startswith("Nothing to compare yet")
    assert len(lines) == 2


@pytest.mark.parametrize(("jobs", "says_goal"), [(9, False), (10, True)])
def test_estimates_are_measured_by_the_goal_once_there_are_enough_jobs(jobs: int, says_goal: bool) -> None:
    found = AccuracyRow(moment="at 10 %", source="measured", jobs=8, unknown=0, median=1.1, p90=1.5, within=0.75)
    unknown = AccuracyRow(
        moment="at 10 %", source="assumed", jobs=jobs - 8, unknown=jobs - 8, median=None, p90=None, within=None
    )
    console = Console(width=80)
    with console.capture() as capture:
        console.print(estimates_table([found, unknown], "at 10 %"))
    text = capture.get()
    assert ("At 10 %, the goal is x1.20 in the median and x1.80 for nine of ten." in text) is says_goal
    assert "Within spread: off by no more than `voda explain` says" in text
    assert "not known" in text

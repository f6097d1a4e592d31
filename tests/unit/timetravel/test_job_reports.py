"""What a job reported is read from its stream: the newest reports, within a number and a size."""

import pytest

from tests.builders import Log
from voda.events.types import AnyFact, JobCompleted, JobProgressed, WorkerStarted
from voda.projections.jobs.record import MOST_METRICS_BYTES, MOST_REPORTS, ReportMarks, metrics_bytes
from voda.timetravel.job_reports import MOST_REPORTS_BYTES, newest_reports


def a_report(done: float, **fields: object) -> JobProgressed:
    return JobProgressed(job_id="a", epochs_done=done, workers=1, **fields)  # type: ignore[arg-type]


def a_log(*facts: AnyFact) -> Log:
    log = Log()
    for number, fact in enumerate(facts):
        log.add(fact, at=number)
    return log


@pytest.mark.parametrize("count", [1, 99, 100, 1_099, 1_100, 1_101, 2_345])
def test_newest_reports_when_read_from_their_mark_are_those_of_the_whole_log(count: int) -> None:
    log = a_log(*(a_report(number) for number in range(count)))
    marks = ReportMarks()
    for event in log.events:
        marks = marks.add(event.position)
    behind = [event for event in log.events if event.position > marks.after]
    assert newest_reports(behind) == newest_reports(log.events)
    assert len(newest_reports(behind)) == min(count, MOST_REPORTS)
    assert len(behind) < MOST_REPORTS + 200
    assert len(marks.positions) <= 11


def test_newest_reports_when_large_are_fewer() -> None:
    metrics = {"x" * (MOST_METRICS_BYTES - 8): 1.0}
    assert metrics_bytes(metrics) == MOST_METRICS_BYTES
    found = newest_reports(a_log(*(a_report(number, metrics=metrics) for number in range(300))).events)
    assert len(found) == MOST_REPORTS_BYTES // MOST_METRICS_BYTES
    assert found[-1].epochs_done == 299


def test_report_into_whose_epoch_a_change_fell_times_nothing_and_the_next_one_does() -> None:
    started = WorkerStarted(job_id="a", workers={0: "n1"})
    log = a_log(a_report(1), started, *(a_report(done, epoch_s=9.0, is_raw=True) for done in (2, 3)))
    assert [one.epoch_s for one in newest_reports(log.events)] == [None, None, 9.0]


def test_report_of_a_job_that_has_ended_is_none() -> None:
    log = a_log(a_report(1), JobCompleted(job_id="a"), a_report(2))
    assert [one.epochs_done for one in newest_reports(log.events)] == [1]

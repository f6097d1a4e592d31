"""How far off estimates were: judged against what jobs needed in the end, by how they were known."""

import pytest

from tests.builders import Log, a_spec
from voda.events.types import JobCanceled, JobCompleted, JobProgressed, JobSubmitted
from voda.timetravel.estimate_accuracy import AccuracyRow, EstimateAccuracy


def judged(log: Log) -> dict[tuple[str, str], AccuracyRow]:
    accuracy = EstimateAccuracy()
    for event in log.events:
        accuracy.apply(event)
    return {(row.moment, row.source): row for row in accuracy.rows()}


def run(log: Log, job_id: str, *, at: float, epochs: int, samples: float = 1000.0) -> None:
    """Let a job train 10 samples a second."""
    log.add(JobSubmitted(spec=a_spec(job_id, category="resnet", epochs=epochs)), at=at)
    for tenths in range(1, 10 * epochs + 1):
        fact = JobProgressed(
            job_id=job_id, epochs_done=tenths / 10, workers=1, samples_per_s=10.0, epoch_samples=samples
        )
        log.add(fact, at=at + tenths * samples / 100)


def test_first_job_of_a_category_is_unknown_at_first_and_the_next_ones_are_as_they_were() -> None:
    log = Log()
    run(log, "a", at=0, epochs=2)
    log.add(JobCompleted(job_id="a"), at=1000)
    run(log, "b", at=1000, epochs=4)
    log.add(JobCompleted(job_id="b"), at=2000)
    rows = judged(log)
    assert (rows["submitted", "assumed"].jobs, rows["submitted", "assumed"].unknown) == (1, 1)
    known = rows["submitted", "category"]
    assert (known.jobs, known.unknown, known.within) == (1, 0, 1.0)
    assert known.median == pytest.approx(1.0)
    assert rows["at 50 %", "measured"].jobs == 2


def test_job_that_needs_more_than_its_category_is_off_by_that_factor_until_it_reports() -> None:
    log = Log()
    run(log, "a", at=0, epochs=2)
    log.add(JobCompleted(job_id="a"), at=1000)
    run(log, "b", at=1000, epochs=2, samples=3000.0)
    log.add(JobCompleted(job_id="b"), at=2000)
    rows = judged(log)
    assert rows["submitted", "category"].p90 == pytest.approx(3.0)
    assert rows["submitted", "category"].within == 0.0
    assert rows["at 50 %", "measured"].p90 == pytest.approx(1.0, rel=0.05)


def test_job_that_did_not_complete_is_not_judged() -> None:
    log = Log()
    run(log, "a", at=0, epochs=2)
    log.add(JobCanceled(job_id="a"), at=1000)
    assert judged(log) == {}

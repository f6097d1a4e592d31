"""What is believed of jobs from reports within their epochs, how it is known, and what a report costs."""

import math
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

import pytest

from tests.builders import Log, a_job, a_spec
from voda.domain.settings import Settings
from voda.domain.state import Belief, Estimate
from voda.events.types import JobCompleted, JobProgressed, JobSubmitted, WorkerExited, WorkerStarted
from voda.projections.learning import Learning
from voda.projections.learning.means import LogSpread, RunningMean
from voda.projections.learning.restarts import RestartCosts

SETTINGS = Settings(resize_cost_s=60.0)


def submit(log: Log, *job_ids: str, epochs: int = 10) -> None:
    for job_id in job_ids:
        spec = a_spec(job_id, category="resnet", max_replicas=8, epochs=epochs)
        log.add(JobSubmitted(spec=spec), at=0)


def progressed(log: Log, job_id: str = "a", *, at: float, done: float, samples: float) -> None:
    """Add a report of a job that trains 10 samples a second."""
    epoch_s = samples / 10.0 if float(done).is_integer() else None
    fact = JobProgressed(
        job_id=job_id, epochs_done=done, workers=1, epoch_s=epoch_s, samples_per_s=10.0, epoch_samples=samples
    )
    log.add(fact, at=at)


def folded(log: Log) -> Learning:
    learning = Learning()
    for event in log.events:
        learning.apply(event)
    return learning


def believed(learning: Learning, job_id: str, *, done: float = 0.0, epochs: int = 10) -> Estimate:
    job = a_job(job_id, category="resnet", max_replicas=8, epochs=epochs, epochs_done=done)
    return learning.estimate(job, SETTINGS)


def test_first_epoch_of_a_category_is_known_by_a_share_of_it_and_kept_when_the_job_is_preempted() -> None:
    log = Log()
    submit(log, "a", "b")
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    progressed(log, at=10, done=0.1, samples=1000.0)
    log.add(WorkerExited(job_id="a", workers=(0,)), at=20)
    learning = folded(log)
    assert believed(learning, "a", done=0.1).remaining_s == pytest.approx(9.9 * 100)
    assert believed(learning, "b").remaining_s == pytest.approx(10 * 100)


def test_epoch_counts_once_however_often_it_is_reported() -> None:
    log = Log()
    submit(log, "a", "b")
    for part in range(1, 10):
        progressed(log, "a", at=part, done=part / 10, samples=1000.0)
    progressed(log, "b", at=20, done=0.5, samples=3000.0)
    assert folded(log)._known.categories.dump()["resnet"].work.epochs[0].mean == pytest.approx(2000.0)


def test_work_of_an_epoch_into_which_a_change_fell_counts() -> None:
    log = Log()
    submit(log, "a")
    progressed(log, at=10, done=0.5, samples=4000.0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=20)
    progressed(log, at=60, done=1.0, samples=4000.0)
    progressed(log, at=160, done=2.0, samples=1000.0)
    assert believed(folded(log), "next").remaining_s == pytest.approx(400 + 9 * 100)


def test_restart_is_costed_by_the_report_soon_after_it() -> None:
    log = Log()
    submit(log, "a")
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    progressed(log, at=40, done=0.1, samples=1000.0)
    estimate = believed(folded(log), "a", done=0.1)
    assert estimate.resize_cost_s == pytest.approx(30.0)
    assert estimate.resize_cost_belief.source == "category"


def test_length_that_nobody_declares_is_that_of_jobs_of_the_category_that_have_completed() -> None:
    log = Log()
    submit(log, "a", "b", "c", epochs=0)
    for job_id, epochs in (("a", 4), ("b", 8)):
        for done in range(1, epochs + 1):
            progressed(log, job_id, at=100 * done, done=done, samples=1000.0)
    before = believed(folded(log), "c", epochs=0)
    assert (before.remaining_s, before.length_source, before.remaining_belief) == (
        math.inf,
        "assumed",
        Belief("assumed"),
    )
    for job_id in ("a", "b"):
        log.add(JobCompleted(job_id=job_id), at=1000)
    learning = folded(log)
    found = believed(learning, "c", epochs=0)
    assert found.remaining_s == pytest.approx((4 + 8) / 2 * 100)
    assert (found.length_source, found.remaining_belief.source) == ("category", "category")
    assert believed(learning, "c", epochs=0, done=5).remaining_s == pytest.approx(3 * 100), (
        "only the longer one is left"
    )
    assert believed(learning, "c", epochs=0, done=8).remaining_s == math.inf


def test_estimate_that_was_read_before_is_renewed_by_each_completion_that_says_something_new() -> None:
    log = Log()
    submit(log, *"abcdw", epochs=0)
    for job_id, epochs in (("a", 4), ("b", 8), ("c", 8), ("d", 9)):
        for done in range(1, epochs + 1):
            progressed(log, job_id, at=100 * done, done=done, samples=1000.0 + 500 * epochs)
        log.add(JobCompleted(job_id=job_id), at=1000)
    learning = Learning()
    jobs = {"w": a_job("w", category="resnet", max_replicas=8, epochs=0)}
    for event in log.events:
        learning.apply(event)
        cold = Learning()
        cold.load(learning.dump())
        assert learning.estimates("pool", jobs, SETTINGS) == cold.estimates("pool", jobs, SETTINGS)


def test_estimate_says_whether_the_job_or_its_category_measured_it_and_own_reports_narrow_it() -> None:
    log = Log()
    submit(log, "a", "b")
    assert believed(folded(log), "b").remaining_belief == Belief("assumed")
    for done in range(1, 11):
        progressed(log, "a", at=100, done=done, samples=1000.0)
    of_others = believed(folded(log), "b").remaining_belief
    progressed(log, "b", at=100, done=1, samples=1000.0)
    once = believed(folded(log), "b", done=1).remaining_belief
    for done in range(2, 10):
        progressed(log, "b", at=100 * done, done=done, samples=1000.0)
    often = believed(folded(log), "b", done=9).remaining_belief
    assert [of_others.source, once.source, often.source] == ["category", "measured", "measured"]
    assert of_others.spread > once.spread > often.spread > 1


def test_restart_cost_is_the_median_of_the_last_ones() -> None:
    costs = RestartCosts()
    assert costs.spread == math.inf
    assert [costs.add(cost) for cost in (30.0, 1897.0, 31.0, 30.0, 29.0)][:2] == [True, True]
    assert costs.settled == pytest.approx(30.0, rel=0.05)
    assert costs.spread < 1.1
    for _ in range(20):
        costs.add(90.0)
    assert (costs.settled, len(costs.recent)) == (90.0, 15)


def test_spread_of_values_is_their_deviation() -> None:
    spread, mean = LogSpread(), RunningMean()
    for value in (1.0, 4.0) * 50:
        spread.add(value, 0.7)
        mean.add(value)
    assert spread.deviation(0.7) == pytest.approx(math.log(2.0), rel=0.1)
    assert mean.error(0.25) == pytest.approx(1.5 / 2.5 / 10, rel=0.02)
    assert RunningMean().error(0.25) == math.inf


def calls_of(work: Callable[[], object]) -> int:
    """Return how many calls of Python functions some work makes."""
    count = 0

    def see(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_report_costs_the_same_in_a_category_of_many_jobs() -> None:
    counts = []
    for jobs in (2, 5_000):
        log = Log()
        submit(log, *(f"j{number}" for number in range(jobs)))
        learning = folded(log)
        for number in range(jobs):
            believed(learning, f"j{number}")
        progressed(log, "j0", at=100, done=0.5, samples=1000.0)
        counts.append(calls_of(partial(learning.apply, log.events[-1])) + calls_of(learning.changed_materially))
        assert learning.changed_materially()
    assert counts[1] <= counts[0] + 5, "whatever the number of its jobs"

"""What a log shows of the true speed of its jobs, and of how far each is at some moment."""

from typing import Any

import pytest

from tests.builders import Log, a_spec
from voda.domain.settings import Settings
from voda.events.types import (
    JobCanceled,
    JobChanged,
    JobCompleted,
    JobProgressed,
    JobSubmitted,
    WorkerExited,
    WorkerStarted,
)
from voda.simulator.whatif.epoch_times import EpochMeasurements
from voda.simulator.whatif.hindsight import Hindsight, HindsightProfile
from voda.simulator.whatif.job_replay import JobReplay
from voda.simulator.workload import Costs, SpeedupProfile, speedup_law


def profile_of(log: Log, job_id: str = "a") -> HindsightProfile:
    watch = EpochMeasurements()
    for event in log.events:
        watch.apply(event)
    return Hindsight(watch.jobs, Settings(resize_cost_s=99.0, span_penalty=0.5)).profile(job_id)


def a_log(*, epochs: int = 4, job_id: str = "a") -> Log:
    log = Log()
    log.add(JobSubmitted(spec=a_spec(job_id, max_replicas=4, epochs=epochs, category="kind")), at=0)
    return log


def report(log: Log, at: float, **fields: Any) -> None:
    log.add(JobProgressed(**{"job_id": "a", **fields}), at=at)


def a_resized_job() -> Log:
    """A job of 100 s per epoch on one worker and 60 s on two, whose start costs 10 s and whose resize costs 20 s."""
    log = a_log(epochs=6)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    report(log, 110, epochs_done=1, workers=1, epoch_s=None)
    report(log, 210, epochs_done=2, workers=1, epoch_s=100.0)
    report(log, 310, epochs_done=3, workers=1, epoch_s=100.0)
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=360)
    report(log, 410, epochs_done=4, workers=2, epoch_s=None)
    report(log, 470, epochs_done=5, workers=2, epoch_s=60.0)
    report(log, 530, epochs_done=6, workers=2, epoch_s=60.0)
    log.add(JobCompleted(job_id="a"), at=530)
    return log


def test_profile_when_sizes_were_measured_gives_them_back() -> None:
    profile = profile_of(a_resized_job())
    assert profile.epochs == 6
    assert profile.epoch_s(1, (1,)) == pytest.approx(100.0)
    assert profile.epoch_s(5, (2,)) == pytest.approx(60.0)


def test_raw_epochs_are_timed_unless_the_workers_changed_within_them() -> None:
    log, watch = a_log(epochs=6), EpochMeasurements()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    report(log, 110, epochs_done=1, workers=1, epoch_s=100.0, is_raw=True)
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=160)
    report(log, 210, epochs_done=2, workers=2, epoch_s=100.0, is_raw=True)
    for event in log.events:
        watch.apply(event)
    assert watch.jobs["a"].timed_epochs == {0: ((1, False), 100.0)}
    assert set(watch.jobs["a"].disturbed_epochs) == {1}


def test_reports_within_epochs_change_no_time_and_no_piece() -> None:
    log, watch, plain = a_log(epochs=6), EpochMeasurements(), EpochMeasurements()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    report(log, 110, epochs_done=1, workers=1, epoch_s=100.0, is_raw=True)
    report(log, 150, epochs_done=1.4, workers=1)
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=160)
    report(log, 190, epochs_done=1.8, workers=2)
    report(log, 200, epochs_done=1.9, workers=2)
    report(log, 210, epochs_done=2, workers=2, epoch_s=100.0, is_raw=True)
    for event in log.events:
        watch.apply(event)
        if not isinstance(event.data, JobProgressed) or event.data.epochs_done.is_integer():
            plain.apply(event)
    assert watch.jobs == plain.jobs
    assert set(watch.jobs["a"].disturbed_epochs) == {1}


def test_costs_when_single_changes_were_seen_are_told_apart_by_kind() -> None:
    costs = profile_of(a_resized_job()).costs
    assert costs.start_s == pytest.approx(10.0)
    assert costs.resize_s == pytest.approx(20.0)


def test_disturbed_epoch_has_the_length_that_its_pieces_make() -> None:
    profile = profile_of(a_resized_job())
    assert profile.epoch_s(3, (1,)) == pytest.approx(100.0)


def test_profile_at_sizes_never_seen_follows_the_law_and_spanning_costs_what_is_assumed() -> None:
    profile = profile_of(a_resized_job())
    assert 30.0 < profile.epoch_s(0, (3,)) < 60.0
    assert profile.epoch_s(0, (1, 1)) == pytest.approx(60.0 * 1.5)
    assert profile.epoch_s(0, (4, 4)) > 0


def test_trend_when_epochs_grow_shorter_is_not_taken_for_speedup() -> None:
    log = Log()
    for number, size in enumerate((1, 2)):
        job_id = f"job-{size}"
        log.add(JobSubmitted(spec=a_spec(job_id, max_replicas=2, epochs=5, category="kind")), at=number)
        log.add(WorkerStarted(job_id=job_id, workers=dict.fromkeys(range(size), "n1")), at=number)
        for epoch in range(5):
            seconds = (100.0, 60.0)[size - 1] * (2.0 - 0.2 * epoch)
            report(log, 1000.0 * (epoch + 1), epochs_done=epoch + 1, workers=size, epoch_s=seconds, job_id=job_id)
    profile = profile_of(log, "job-1")
    assert profile.epoch_s(0, (1,)) / profile.epoch_s(4, (1,)) == pytest.approx(2.0 / 1.2)
    assert profile.epoch_s(0, (1,)) / profile.epoch_s(0, (2,)) == pytest.approx(100 / 60)


def test_job_that_ended_early_had_the_epochs_it_reported() -> None:
    log = a_log(epochs=90)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    report(log, 30, epochs_done=3, workers=1, epoch_s=10.0)
    log.add(JobCompleted(job_id="a"), at=30)
    assert profile_of(log).epochs == 3


def test_job_that_was_canceled_would_have_gone_on() -> None:
    log = a_log(epochs=90)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    report(log, 30, epochs_done=3, workers=1, epoch_s=10.0)
    log.add(JobCanceled(job_id="a"), at=31)
    assert profile_of(log).epochs == 90


def test_job_that_never_reported_is_as_long_as_it_ran() -> None:
    log = a_log(epochs=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=10)
    log.add(JobCompleted(job_id="a"), at=60)
    profile = profile_of(log)
    assert profile.epochs == 1
    assert profile.epoch_s(0, (2,)) == pytest.approx(50.0)
    assert profile.costs == Costs(start_s=99.0, resize_s=99.0, migrate_s=99.0)


def test_job_that_never_ran_has_some_length() -> None:
    assert 0 < profile_of(a_log(epochs=0)).epoch_s(0, (1,)) < float("inf")


def test_profile_when_the_maximum_was_raised_answers_up_to_there() -> None:
    log = a_resized_job()
    log.events.insert(1, Log().add(JobChanged(job_id="a", max_replicas=16), at=0))
    assert profile_of(log).epoch_s(0, (8, 8)) > 0


# ---- replay

TRUTH = SpeedupProfile(
    epochs=5, work_s=500.0, speedup=speedup_law(0.0, 0.0, 4), costs=Costs(start_s=10.0, resize_s=20.0)
)


def rehearsed(log: Log, now: float) -> tuple[int, float]:
    """Return (epochs finished, fraction of the next one) of job a."""
    replay = JobReplay(lambda _: TRUTH)
    for event in log.events:
        replay.apply(event)
    (training,) = replay.trainings({"a": a_spec("a", max_replicas=4)}, now)
    return training.epoch, training.fraction


def test_running_job_is_as_far_into_its_epoch_as_its_workers_could_get() -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    assert rehearsed(log, 5) == (0, 0.0)
    assert rehearsed(log, 60) == pytest.approx((0, 0.5))
    report(log, 110, epochs_done=1, workers=1, epoch_s=None)
    assert rehearsed(log, 135) == pytest.approx((1, 0.25))


def test_resized_job_keeps_its_fraction_and_stands_still_for_the_cost() -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=60)
    assert rehearsed(log, 75) == pytest.approx((0, 0.5))
    assert rehearsed(log, 90) == pytest.approx((0, 0.7))


def test_workers_that_outlive_their_job_are_returned() -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=0)
    log.add(JobCompleted(job_id="a"), at=50)
    replay = JobReplay(lambda _: TRUTH)
    for event in log.events:
        replay.apply(event)
    assert replay.outlived_workers() == {"a": (0, 1)}
    replay.apply(log.add(WorkerExited(job_id="a", workers=(0, 1), cause="finished"), at=51))
    assert replay.outlived_workers() == {}

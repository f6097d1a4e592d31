"""What became of a job, counted by hand."""

from tests.builders import Log, a_spec
from voda.domain.reasons.nodes import Said
from voda.events.types import (
    ExitCause,
    JobCanceled,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobSubmitted,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.history import FinishedJob, History


def submitted(log: Log, at: float = 0, job_id: str = "a", **fields: int) -> None:
    log.add(JobSubmitted(spec=a_spec(job_id, max_replicas=4, **fields)), at=at)


def started(log: Log, at: float, workers: dict[int, str]) -> None:
    log.add(WorkerStarted(job_id="a", workers=workers), at=at)


def exited(log: Log, at: float, workers: tuple[int, ...], cause: ExitCause = "stopped") -> None:
    log.add(WorkerExited(job_id="a", workers=workers, cause=cause), at=at)


def completed(log: Log, at: float) -> None:
    log.add(JobCompleted(job_id="a"), at=at)


def history_of(log: Log) -> History:
    history = History()
    for event in log.events:
        history.apply(event)
    return history


def the_job(log: Log) -> FinishedJob:
    (job,) = history_of(log).finished
    return job


def test_job_that_waits_and_runs_splits_its_jct_into_queueing_and_running() -> None:
    log = Log()
    submitted(log, at=100, gpus_per_replica=2)
    started(log, 130, {0: "n1", 1: "n1"})
    completed(log, 200)
    exited(log, 200, (0, 1), "finished")
    job = the_job(log)
    assert (job.jct_s, job.queueing_s, job.running_s) == (100, 30, 70)
    assert (job.first_started_at, job.finished_at, job.outcome) == (130, 200, "completed")
    assert job.gpu_s == 2 * 2 * 70
    assert (job.starts, job.resizes, job.migrations, job.restarts) == (1, 0, 0, 0)


def test_preempted_job_waits_again_and_pays_a_restart() -> None:
    log = Log()
    submitted(log)
    started(log, 10, {0: "n1"})
    exited(log, 20, (0,))
    started(log, 50, {0: "n2"})
    completed(log, 60)
    job = the_job(log)
    assert (job.queueing_s, job.running_s) == (40, 20)
    assert (job.starts, job.restarts, job.migrations) == (2, 1, 0)


def test_growing_and_shrinking_are_resizes_and_restarts() -> None:
    log = Log()
    submitted(log)
    started(log, 0, {0: "n1"})
    started(log, 10, {1: "n1", 2: "n1"})
    exited(log, 30, (2,))
    completed(log, 40)
    job = the_job(log)
    assert (job.starts, job.resizes, job.restarts) == (1, 2, 2)
    assert job.gpu_s == 10 + 3 * 20 + 2 * 10


def test_migration_of_all_workers_at_once_is_one_migration_and_no_start() -> None:
    log = Log()
    submitted(log)
    started(log, 0, {0: "n1", 1: "n1"})
    exited(log, 10, (0, 1), "migrated")
    started(log, 10, {0: "n2", 1: "n2"})
    completed(log, 20)
    job = the_job(log)
    assert (job.starts, job.migrations, job.workers_moved, job.restarts, job.resizes) == (1, 1, 2, 1, 0)
    assert job.queueing_s == 0
    assert not job.was_spanning


def test_migration_that_takes_time_counts_the_gap_as_queueing_and_stays_one_migration() -> None:
    log = Log()
    submitted(log)
    started(log, 0, {0: "n1"})
    exited(log, 10, (0,), "migrated")
    started(log, 15, {0: "n2"})
    completed(log, 20)
    job = the_job(log)
    assert (job.starts, job.migrations, job.restarts, job.queueing_s) == (1, 1, 1, 5)


def test_resize_that_moves_workers_too_costs_one_restart() -> None:
    log = Log()
    submitted(log)
    started(log, 0, {0: "n1"})
    exited(log, 10, (0,))
    started(log, 10, {0: "n2", 1: "n2"})
    completed(log, 20)
    job = the_job(log)
    assert (job.starts, job.resizes, job.migrations, job.workers_moved, job.restarts) == (1, 1, 1, 1, 1)


def test_job_on_two_nodes_was_spanning() -> None:
    log = Log()
    submitted(log)
    started(log, 0, {0: "n1", 1: "n2"})
    exited(log, 10, (1,))
    completed(log, 20)
    assert the_job(log).was_spanning


def test_workers_that_outlive_their_job_are_charged_but_do_not_run() -> None:
    log = Log()
    submitted(log)
    started(log, 0, {0: "n1", 1: "n1"})
    completed(log, 10)
    exited(log, 12, (0,), "finished")
    exited(log, 15, (1,), "finished")
    job = the_job(log)
    assert (job.running_s, job.jct_s, job.gpu_s) == (10, 10, 20 + 4 + 3)
    assert job.resizes == 0


def test_workers_that_are_done_before_their_job_is_reported_complete_cost_no_restart() -> None:
    log = Log()
    submitted(log)
    started(log, 0, {0: "n1", 1: "n1"})
    exited(log, 8, (0,), "finished")
    exited(log, 9, (1,), "finished")
    completed(log, 10)
    job = the_job(log)
    assert (job.resizes, job.restarts, job.running_s, job.gpu_s) == (0, 0, 9, 8 + 9)


def test_job_that_never_started_has_waited_all_its_life() -> None:
    log = Log()
    submitted(log)
    log.add(JobCanceled(job_id="a"), at=25)
    job = the_job(log)
    assert (job.outcome, job.first_started_at, job.queueing_s, job.gpu_s) == ("canceled", None, 25, 0)


def test_failed_job_keeps_its_outcome_when_told_to_end_again() -> None:
    log = Log()
    submitted(log)
    log.add(JobFailed(job_id="a", reason=Said(text="out of memory")), at=5)
    completed(log, 9)
    assert (the_job(log).outcome, the_job(log).finished_at) == ("failed", 5)


def test_changed_wishes_are_those_of_the_record() -> None:
    log = Log()
    submitted(log)
    log.add(JobChanged(job_id="a", max_replicas=8, requested_replicas=2), at=1)
    completed(log, 2)
    assert (the_job(log).requested, the_job(log).max_replicas) == (2, 8)


def test_live_jobs_are_those_that_have_not_ended() -> None:
    log = Log()
    submitted(log, at=3, job_id="b")
    submitted(log, at=4)
    started(log, 5, {0: "n1"})
    completed(log, 6)
    assert history_of(log).live == {"b": 3}


def test_facts_of_unknown_jobs_do_no_harm() -> None:
    log = Log()
    started(log, 1, {0: "n1"})
    exited(log, 2, (0,))
    completed(log, 3)
    assert not history_of(log).finished

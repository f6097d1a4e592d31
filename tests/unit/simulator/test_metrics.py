"""A run in figures, by hand."""

import pytest

from tests.builders import Log, a_node, a_spec
from voda.events.types import JobCanceled, JobCompleted, JobSubmitted, NodeJoined, WorkerExited, WorkerStarted
from voda.projections.history import History
from voda.projections.timeline import Timeline
from voda.simulator.metrics import Execution, RunResult, measure


def measured(log: Log, decisions_s: tuple[float, ...] = ()) -> RunResult:
    history, timeline = History(), Timeline()
    for event in log.events:
        history.apply(event)
        timeline.apply(event)
    execution = Execution(workload="w", policy="p", placer="steady", decisions_s=decisions_s, wall_s=2.5)
    return measure(history, timeline, execution, lambda _job_id, gpus: 100 / gpus)


def three_jobs() -> Log:
    """Four GPUs from 0 on; `a` and `b` complete, `c` is canceled after it held a GPU."""
    log = Log()
    log.add(NodeJoined(node=a_node("n1", gpus=2)), at=0)
    log.add(NodeJoined(node=a_node("n2", gpus=2)), at=0)
    for job_id in "ab":
        log.add(JobSubmitted(spec=a_spec(job_id, max_replicas=2)), at=1000)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n2"}), at=1010)
    log.add(WorkerExited(job_id="a", workers=(1,), cause="migrated"), at=1050)
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=1050)
    log.add(JobSubmitted(spec=a_spec("c")), at=1100)
    log.add(JobCompleted(job_id="a"), at=1100)
    log.add(WorkerExited(job_id="a", workers=(0, 1), cause="finished"), at=1100)
    log.add(WorkerStarted(job_id="b", workers={0: "n1"}), at=1100)
    log.add(WorkerStarted(job_id="c", workers={0: "n2"}), at=1150)
    log.add(WorkerExited(job_id="c", workers=(0,)), at=1200)
    log.add(JobCanceled(job_id="c"), at=1200)
    log.add(JobCompleted(job_id="b"), at=1300)
    log.add(WorkerExited(job_id="b", workers=(0,), cause="finished"), at=1310)
    return log


def test_figures_of_a_run_are_those_counted_by_hand() -> None:
    result = measured(three_jobs(), decisions_s=(0.001, 0.002, 0.003))
    assert result.jobs == 2
    assert (result.avg_jct_s, result.p50_jct_s) == (200, 200)
    assert (result.p90_jct_s, result.p99_jct_s) == pytest.approx((280, 298))
    assert result.makespan_s == 300
    assert result.avg_queueing_s == (10 + 100) / 2
    assert (result.restarts_per_job, result.migrations_per_job, result.spanning_jobs) == (0.5, 0.5, 1)
    assert result.decision_p95_s == pytest.approx(0.0029)


def test_gpu_time_counts_canceled_jobs_and_workers_that_outlive_theirs() -> None:
    result = measured(three_jobs())
    assert result.gpu_hours == pytest.approx((2 * 90 + 200 + 50 + 10) / 3600)
    # Until the last end, on four GPUs: the 10 s after it count as GPU-hours alone.
    assert result.utilisation == pytest.approx((2 * 90 + 200 + 50) / (4 * 300))


def test_fairness_is_over_the_completed_jobs() -> None:
    result = measured(three_jobs())
    # a shares with b: 2 of 4 GPUs, 50 s alone; b with a, then c, then nobody: 4 / (500 / 300) GPUs, at most 2.
    assert result.worst_rho == pytest.approx(300 / 50)
    assert result.unfair_share == 1.0


def test_run_without_jobs_has_figures_of_zero() -> None:
    result = measured(Log())
    assert (result.jobs, result.avg_jct_s, result.p99_jct_s, result.makespan_s, result.gpu_hours) == (0, 0, 0, 0, 0)
    assert (result.utilisation, result.unfair_share, result.worst_rho, result.decision_p95_s) == (0, 0, 0, 0)


def test_run_whose_jobs_never_start_has_figures_of_zero() -> None:
    log = Log()
    log.add(NodeJoined(node=a_node("n1")), at=0)
    log.add(JobSubmitted(spec=a_spec("a")), at=5)
    assert measured(log).makespan_s == 0

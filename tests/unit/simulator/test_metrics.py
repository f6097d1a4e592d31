"""A run in figures, by hand."""

import pytest

from tests.builders import Log, a_node, a_spec
from voda.events.types import JobCanceled, JobCompleted, JobSubmitted, NodeJoined, WorkerExited, WorkerStarted
from voda.projections.history import FinishedJob, History
from voda.projections.timeline import Timeline
from voda.simulator.metrics import Execution, IdealTimes, RunResult, fair_shares, measure, packed, rhos
from voda.simulator.workload import Arrival, Costs, Workload


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


def folded(log: Log) -> tuple[list[FinishedJob], Timeline]:
    history, timeline = History(), Timeline()
    for event in log.events:
        history.apply(event)
        timeline.apply(event)
    return list(history.finished), timeline


def one_after_the_other(**wishes: int) -> Log:
    """Two jobs share four GPUs: `a` has them from 0 to 100, `b` from 100 to 200; both come at 0."""
    log = Log()
    log.add(NodeJoined(node=a_node("n1")), at=0)
    for job_id in "ab":
        log.add(JobSubmitted(spec=a_spec(job_id, **{"max_replicas": 4, **wishes})), at=0)
    for job_id, at in (("a", 0), ("b", 100)):
        log.add(WorkerStarted(job_id=job_id, workers=dict.fromkeys(range(4), "n1")), at=at)
        log.add(JobCompleted(job_id=job_id), at=at + 100)
        log.add(WorkerExited(job_id=job_id, workers=(0, 1, 2, 3), cause="finished"), at=at + 100)
    return log


def linear(_job_id: str, gpus: float) -> float:
    return 400 / gpus


def test_share_is_capacity_by_the_mean_number_of_live_jobs_of_the_jobs_life() -> None:
    jobs, timeline = folded(one_after_the_other())
    # b lives with a for half of its life: 1.5 jobs on average, 4 / 1.5 GPUs each.
    assert fair_shares(jobs, timeline.steps()).tolist() == pytest.approx([2.0, 4 / 1.5])


def test_rho_is_jct_by_the_time_alone_on_the_share() -> None:
    jobs, timeline = folded(one_after_the_other())
    assert rhos(jobs, timeline.steps(), linear).tolist() == pytest.approx([100 / 200, 200 / 150])


def test_share_above_the_maximum_is_of_no_use() -> None:
    jobs, timeline = folded(one_after_the_other(max_replicas=2))
    assert rhos(jobs, timeline.steps(), linear).tolist() == pytest.approx([100 / 200, 200 / 200])


def test_share_below_the_minimum_is_the_minimum_for_part_of_the_time() -> None:
    jobs, timeline = folded(one_after_the_other(min_replicas=4))
    # Alone on 4 GPUs b needs 100 s; it has a right to them for 2/3 of the time.
    assert rhos(jobs, timeline.steps(), linear).tolist() == pytest.approx([100 / 200, 200 / 150])


def test_share_counts_gpus_not_replicas() -> None:
    asked: list[float] = []

    def ideal_s(_job_id: str, gpus: float) -> float:
        asked.append(gpus)
        return 1.0

    jobs, timeline = folded(one_after_the_other(gpus_per_replica=2, max_replicas=2))
    rhos(jobs, timeline.steps(), ideal_s)
    assert asked == pytest.approx([2.0, 4 / 1.5])


def test_job_that_ends_the_instant_it_comes_is_treated_fairly() -> None:
    log = Log()
    log.add(NodeJoined(node=a_node("n1")), at=0)
    log.add(JobSubmitted(spec=a_spec("a")), at=5)
    log.add(JobCompleted(job_id="a"), at=5)
    jobs, timeline = folded(log)
    assert rhos(jobs, timeline.steps(), linear).tolist() == [0.0]


def test_no_jobs_have_no_rhos() -> None:
    assert len(rhos([], Timeline().steps(), linear)) == 0


class SteadyProfile:
    """Two epochs of 100 s on one worker, linear, twice as slow over nodes."""

    epochs = 2
    costs = Costs(start_s=10)

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        return 100 / sum(per_node) * len(per_node)


def times(gpus_per_replica: int = 1) -> IdealTimes:
    spec = a_spec("a", max_replicas=8, gpus_per_replica=gpus_per_replica)
    arrival = Arrival(spec=spec, submitted_s=0, profile=SteadyProfile())
    nodes = (a_node("n1", gpus=2), a_node("n2", gpus=4))
    return IdealTimes(Workload(name="w", source="", arrivals=(arrival,), nodes=nodes))


def test_packed_when_one_node_is_not_enough_fills_the_largest_first() -> None:
    assert packed(5, 1, (4, 2)) == (4, 1)
    assert packed(3, 2, (4, 4)) == (2, 1)
    assert packed(3, 3, (4, 2)) == (1,)


def test_ideal_time_when_on_whole_replicas_is_the_profiles() -> None:
    assert times()("a", 4) == 10 + 2 * 25
    assert times()("a", 5) == pytest.approx(10 + 2 * 40)
    assert times(gpus_per_replica=2)("a", 4) == 10 + 2 * 50


def test_ideal_time_when_between_sizes_interpolates_the_speed() -> None:
    assert times()("a", 1.5) == pytest.approx(1 / ((1 / 210 + 1 / 110) / 2))
    assert times()("a", 0.5) == pytest.approx(2 * 210)

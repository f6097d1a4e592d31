"""Finish-time fairness, by hand."""

import pytest

from tests.builders import Log, a_node, a_spec
from voda.events.types import JobCompleted, JobSubmitted, NodeJoined, WorkerExited, WorkerStarted
from voda.projections.history import FinishedJob, History
from voda.projections.timeline import Timeline
from voda.simulator.metrics import fair_shares, rhos


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

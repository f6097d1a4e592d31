"""Who had which GPUs when, by hand."""

import numpy as np
import pytest

from tests.builders import Log, a_node, a_spec
from voda.domain.gpus import Gpus
from voda.domain.node import Node
from voda.events.types import JobCompleted, JobSubmitted, NodeChanged, NodeJoined, NodeLeft, WorkerExited, WorkerStarted
from voda.projections.timeline import Segment, Timeline, integral_until


def timeline_of(log: Log) -> Timeline:
    timeline = Timeline()
    for event in log.events:
        timeline.apply(event)
    return timeline


def two_jobs() -> Log:
    """`a` runs on two replicas of two GPUs, grows onto n2 and ends; `b` waits for it."""
    log = Log()
    log.add(NodeJoined(node=a_node("n1")), at=0)
    log.add(NodeJoined(node=a_node("n2", gpus=2)), at=0)
    log.add(JobSubmitted(spec=a_spec("a", gpus_per_replica=2, max_replicas=3)), at=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=1)
    log.add(JobSubmitted(spec=a_spec("b")), at=2)
    log.add(WorkerStarted(job_id="a", workers={2: "n2"}), at=4)
    log.add(JobCompleted(job_id="a"), at=6)
    log.add(WorkerExited(job_id="a", workers=(0, 1, 2), cause="finished"), at=7)
    log.add(WorkerStarted(job_id="b", workers={0: "n1"}), at=7)
    log.add(JobSubmitted(spec=a_spec("c")), at=9)
    return log


def test_segments_tell_who_held_how_many_gpus_of_a_node_and_open_ones_reach_to_the_end() -> None:
    assert list(timeline_of(two_jobs()).segments()) == [
        Segment("a", "n1", 4, 1, 7),
        Segment("a", "n2", 2, 4, 7),
        Segment("b", "n1", 1, 7, 9),
    ]


def test_steps_count_queue_running_gpus_and_capacity_once_per_instant() -> None:
    steps = timeline_of(two_jobs()).steps()
    assert steps.at_s.tolist() == [0, 1, 2, 4, 6, 7, 9]
    assert steps.queued.tolist() == [1, 0, 1, 1, 1, 0, 1]
    assert steps.running.tolist() == [0, 1, 1, 1, 0, 1, 1]
    assert steps.gpus_in_use.tolist() == [0, 4, 4, 6, 6, 1, 1]
    assert set(steps.capacity.tolist()) == {6}


def test_job_that_loses_all_workers_is_queued_again() -> None:
    log = Log()
    log.add(NodeJoined(node=a_node("n1")), at=0)
    for job_id in "ab":
        log.add(JobSubmitted(spec=a_spec(job_id)), at=0)
    for job_id in "ab":
        log.add(WorkerStarted(job_id=job_id, workers={0: "n1"}), at=1)
    log.add(WorkerExited(job_id="a", workers=(0,), cause="stopped"), at=2)
    steps = timeline_of(log).steps()
    assert (steps.running.tolist(), steps.queued.tolist()) == ([0, 2, 1], [2, 0, 1])


def test_instant_at_which_nothing_changes_is_no_step() -> None:
    log = two_jobs()
    log.add(NodeChanged(node=a_node("n1")), at=12)
    log.add(JobCompleted(job_id="unknown"), at=13)
    assert timeline_of(log).steps().at_s[-1] == 9
    assert timeline_of(log).ends_at == 13


def test_resize_closes_the_segment_of_its_node_alone() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", max_replicas=4)), at=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n2"}), at=0)
    log.add(WorkerStarted(job_id="a", workers={2: "n2"}), at=5)
    log.add(WorkerExited(job_id="a", workers=(0,), cause="failed"), at=8)
    assert list(timeline_of(log).segments()) == [
        Segment("a", "n2", 1, 0, 5),
        Segment("a", "n1", 1, 0, 8),
        Segment("a", "n2", 2, 5, 8),
    ]


def test_worker_that_appears_elsewhere_without_having_left_moves() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a")), at=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n2"}), at=3)
    log.add(WorkerExited(job_id="a", workers=(0,)), at=4)
    assert list(timeline_of(log).segments()) == [Segment("a", "n1", 1, 0, 3), Segment("a", "n2", 1, 3, 4)]


def test_capacity_follows_nodes_that_fail_return_and_leave() -> None:
    log = Log()
    log.add(NodeJoined(node=a_node("n1", foreign_gpus=1)), at=0)
    log.add(NodeJoined(node=a_node("n2", is_schedulable=False)), at=1)
    log.add(NodeChanged(node=Node(name="n1", gpus=Gpus(4), is_ready=False)), at=2)
    log.add(NodeLeft(name="n2"), at=3)
    log.add(NodeChanged(node=a_node("n1")), at=4)
    timeline = timeline_of(log)
    assert timeline.steps().capacity.tolist() == [3, 7, 4, 0, 4]
    assert timeline.nodes == {"n1": 4, "n2": 4}


def test_capacity_counts_no_gpu_that_other_programs_hold() -> None:
    log = Log()
    log.add(NodeJoined(node=a_node("n1", gpus=4, foreign_gpus=Gpus(4))), at=0)
    log.add(NodeJoined(node=a_node("n2", gpus=4, foreign_gpus=Gpus(1))), at=1)
    assert timeline_of(log).steps().capacity.tolist() == [0, 3]
    assert timeline_of(log).nodes == {"n1": 0, "n2": 3}


def test_clock_set_back_makes_no_negative_span() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a")), at=10)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=10)
    log.add(WorkerExited(job_id="a", workers=(0,)), at=5)
    assert list(timeline_of(log).segments()) == []
    assert timeline_of(log).ends_at == 10


def test_empty_timeline_has_no_steps_and_no_segments() -> None:
    assert len(Timeline().steps().at_s) == 0
    assert list(Timeline().segments()) == []


def test_node_whose_other_programs_hold_more_than_it_has_takes_no_capacity_of_others() -> None:
    log = Log()
    log.add(NodeJoined(node=a_node("n1", gpus=4)), at=0)
    log.add(NodeJoined(node=a_node("n2", gpus=2, foreign_gpus=Gpus(3))), at=1)
    timeline = timeline_of(log)
    assert timeline.steps().capacity[-1] == 4
    assert timeline.nodes == {"n1": 4, "n2": 0}


@pytest.mark.parametrize(
    ("instants", "integrals"),
    [([5.0], [5]), ([2.0, 15.0], [2, 20]), ([-3.0, 0.0, 20.0], [0, 0, 30]), ([30.0, 25.0], [60, 45])],
)
def test_integral_of_a_step_function_is_right_before_within_and_beyond_its_steps(
    instants: list[float], integrals: list[float]
) -> None:
    at_s, values = np.array([0.0, 10.0, 20.0]), np.array([1.0, 2.0, 3.0])
    assert integral_until(at_s, values, np.array(instants)).tolist() == integrals


@pytest.mark.parametrize("steps", range(2, 20))
def test_integral_of_a_step_function_is_right_up_to_within_its_last_step_but_one(steps: int) -> None:
    at_s, values = np.linspace(0.0, 10.0 * (steps - 1), steps), np.linspace(1.0, steps, steps)
    half_of_last = 5.0 * values[-2]
    assert integral_until(at_s, values, np.array([at_s[-1] - 5.0])) == 10.0 * values[:-1].sum() - half_of_last

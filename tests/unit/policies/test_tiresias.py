"""Tiresias: the order of its queues, and that a job changes its queue at the very instant announced."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from voda.domain.gpus import GpuRequest
from voda.domain.job import Job
from voda.domain.reasons.outcomes import Demoted, Promoted
from voda.domain.settings import Settings
from voda.domain.state import ClusterState
from voda.policies.tiresias import Tiresias

BEGIN = 1_609_459_200.0


def test_tiresias_when_jobs_compete_goes_by_queue_then_first_start_then_submission() -> None:
    jobs = [
        a_job("low", submitted_at=0, queue_level=1, first_started_at=1),
        a_job("unstarted", submitted_at=1),
        a_job("second", submitted_at=2, first_started_at=9),
        a_job("first", submitted_at=3, first_started_at=8),
    ]

    def served(gpus: int) -> set[str]:
        answer = Tiresias().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=gpus)]), 0.0)
        return {job_id for job_id, count in answer.replicas.items() if count}

    assert [served(1), served(2), served(3)] == [
        {"first"},
        {"first", "second"},
        {"first", "second", "unstarted"},
    ]


def running(**fields: Any) -> Job:
    return a_job("a", workers={0: "n1", 1: "n1"}, max_replicas=2, counted_at=BEGIN, **fields)


def test_running_job_when_it_was_served_more_than_the_limit_is_demoted() -> None:
    view = a_state(jobs=[running(served_since_start_gpu_s=600.0)])
    assert Tiresias().requeue(view, BEGIN + 1500.0) == {}
    due_at = Tiresias().requeue_due_at(view, BEGIN)
    assert due_at == BEGIN + 1500.000001
    assert Tiresias().requeue(view, due_at) == {"a": (1, Demoted(served_gpu_s=3_600, limit_gpu_s=3_600))}


def test_halted_job_when_it_waited_long_enough_is_promoted() -> None:
    job = a_job("a", queue_level=1, last_halted_at=BEGIN, last_run_s=100.0)
    view = a_state(jobs=[job])
    assert Tiresias().requeue_due_at(view, BEGIN) == BEGIN + 800.0
    assert Tiresias().requeue(view, BEGIN + 799.9) == {}
    assert Tiresias().requeue(view, BEGIN + 800.0) == {"a": (0, Promoted(waited_s=800, times=8.0, last_run_s=100))}


def test_job_when_it_never_ran_or_is_being_canceled_stays_in_its_queue() -> None:
    jobs = [
        a_job("new"),
        a_job("odd", queue_level=1),
        replace(running(is_canceling=True), served_since_start_gpu_s=1e9),
    ]
    view = a_state(jobs=jobs)
    assert Tiresias().requeue(view, BEGIN + 1e6) == {}
    assert Tiresias().requeue_due_at(view, BEGIN) == math.inf


def test_next_move_when_a_job_waits_in_the_upper_queue_is_that_of_another() -> None:
    upper = a_job("upper", last_halted_at=BEGIN, last_run_s=1.0)
    lower = a_job("lower", queue_level=1, last_halted_at=BEGIN, last_run_s=100.0)
    demoted = a_job("demoted", workers={0: "n1"}, queue_level=1, counted_at=BEGIN, served_since_start_gpu_s=3_500.0)
    assert Tiresias().requeue_due_at(a_state(jobs=[upper, lower, demoted]), BEGIN) == BEGIN + 800.0
    assert Tiresias().requeue_due_at(a_state(jobs=[upper, demoted]), BEGIN) == math.inf


seconds = st.floats(0, 1e7) | st.floats(0, 10)


@st.composite
def queues(draw: st.DrawFn) -> ClusterState:
    """Return jobs in all states, about to move or not, with settings of all sizes."""
    jobs = []
    for number in range(draw(st.integers(1, 3))):
        workers = dict.fromkeys(range(draw(st.integers(0, 5))), "n1")
        jobs.append(
            a_job(
                f"j{number}",
                workers=workers,
                max_replicas=8,
                gpus_per_replica=draw(st.integers(1, 3)),
                counted_at=BEGIN + draw(seconds),
                served_since_start_gpu_s=draw(seconds),
                last_halted_at=draw(st.none() | seconds.map(lambda s: BEGIN + s)),
                last_run_s=draw(seconds),
                queue_level=draw(st.integers(0, 1)),
            )
        )
    parameters = {"demote_gpu_s": draw(seconds), "promote_knob": draw(st.floats(0, 20))}
    return a_state(jobs=jobs, settings=Settings(parameters={"tiresias": parameters}))


@given(queues(), seconds)
def test_next_move_when_announced_happens_then_and_not_a_tick_before(view: ClusterState, after_s: float) -> None:
    now = round(BEGIN + after_s, 6)
    due_at = Tiresias().requeue_due_at(view, now)
    assert due_at > now
    if due_at == math.inf:
        assert Tiresias().requeue(view, now + 1e9) == {}
    else:
        assert due_at == round(due_at, 6)
        assert Tiresias().requeue(view, due_at)
        before = round(due_at - 2e-6, 6)
        assert before <= now or not Tiresias().requeue(view, before)


@given(queues())
def test_queues_when_every_announced_move_is_made_come_to_rest(view: ClusterState) -> None:
    now, moves = BEGIN, 0
    while (due_at := Tiresias().requeue_due_at(view, now)) < math.inf:
        now = due_at
        moved = Tiresias().requeue(view, now)
        jobs = {
            job_id: replace(job, queue_level=moved[job_id][0]) if job_id in moved else job
            for job_id, job in view.jobs.items()
        }
        view = replace(view, jobs=jobs)
        moves += 1
    # Nobody starts or halts meanwhile, so each job moves at most once.
    assert moves <= len(view.jobs)


def test_queue_of_a_job_that_has_a_part_of_a_gpu_never_changes_by_its_service() -> None:
    job = a_job("nb", share=GpuRequest(milli=250), gpus_per_replica=0, workers={0: "n1"}, counted_at=BEGIN)
    view = a_state(jobs=[job])
    assert Tiresias().requeue_due_at(view, BEGIN) == math.inf
    assert not Tiresias().requeue(view, BEGIN + 1e6)

"""What history and timeline promise on any log whatever, in whatever order its facts come."""

from collections import defaultdict

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.builders import Log, a_node, a_spec
from voda.events.envelope import Event
from voda.events.types import (
    AnyFact,
    JobCanceled,
    JobCompleted,
    JobSubmitted,
    NodeChanged,
    NodeJoined,
    NodeLeft,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.history import History
from voda.projections.timeline import Timeline

_JOBS = st.sampled_from("abc")
_NODES = st.sampled_from(("n1", "n2", "n3"))
_INDEX = st.integers(0, 3)
_FACTS: st.SearchStrategy[AnyFact] = st.one_of(
    st.builds(JobSubmitted, spec=_JOBS.map(lambda job_id: a_spec(job_id, gpus_per_replica=2, max_replicas=4))),
    st.builds(WorkerStarted, job_id=_JOBS, workers=st.dictionaries(_INDEX, _NODES, min_size=1)),
    st.builds(
        WorkerExited,
        job_id=_JOBS,
        workers=st.lists(_INDEX, min_size=1, unique=True).map(tuple),
        cause=st.sampled_from(("stopped", "migrated", "finished", "failed")),
    ),
    st.builds(JobCompleted, job_id=_JOBS),
    st.builds(JobCanceled, job_id=_JOBS),
    st.builds(NodeJoined, node=_NODES.map(a_node)),
    st.builds(NodeChanged, node=_NODES.map(lambda name: a_node(name, is_ready=False))),
    st.builds(NodeLeft, name=_NODES),
)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Facts in any order, some at one instant."""
    log, at = Log(), 0
    for fact in draw(st.lists(_FACTS, min_size=1, max_size=40)):
        at += draw(st.integers(0, 3))
        log.add(fact, at=at)
    return log.events


def folded(events: list[Event]) -> tuple[History, Timeline]:
    history, timeline = History(), Timeline()
    for event in events:
        history.apply(event)
        timeline.apply(event)
    return history, timeline


@given(logs())
def test_gpu_time_of_segments_is_the_attained_service_of_the_jobs(events: list[Event]) -> None:
    # Ending every job closes its account, so that history and timeline can be compared.
    end = Log()
    end.events = list(events)
    for job_id in "abc":
        end.add(JobCompleted(job_id=job_id), at=events[-1].recorded_at + 1)
        end.add(WorkerExited(job_id=job_id, workers=(0, 1, 2, 3)), at=events[-1].recorded_at + 2)
    history, timeline = folded(end.events)
    # An id can be submitted again once its job has ended; the history keeps the last record alone.
    if sum(isinstance(event.data, JobSubmitted) for event in events) > len(history.finished):
        return
    held: dict[str, float] = defaultdict(float)
    for segment in timeline.segments():
        held[segment.job_id] += segment.gpus * (segment.to_s - segment.from_s)
    assert {job.job_id: job.gpu_s for job in history.finished if job.gpu_s} == pytest.approx(dict(held))


@given(logs())
def test_steps_and_records_are_never_negative_and_add_up(events: list[Event]) -> None:
    history, timeline = folded(events)
    steps = timeline.steps()
    assert all((column >= 0).all() for column in steps[1:])
    assert (steps.at_s[1:] > steps.at_s[:-1]).all()
    if len(steps.at_s):
        assert steps.queued[-1] + steps.running[-1] == len(history.live)
    for job in history.finished:
        assert job.queueing_s + job.running_s == pytest.approx(job.jct_s)
        assert min(job.queueing_s, job.running_s, job.gpu_s, job.restarts) >= 0
        assert job.restarts <= max(0, job.starts - 1) + job.resizes + job.migrations

"""Who holds GPUs, and why who held some does no more."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.trimmed import a_node_object, a_pod
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.objects import NodeObject, Pod
from voda.cluster.kubernetes.state.job_pods import Exit, exit_cause, gpu_nodes, worker_facts
from voda.domain.reasons.nodes import Said
from voda.events.types import JobCompleted, JobFailed, WorkerExited, WorkerStarted

HERE = a_node_object("n1")
GONE_AT = "2026-01-01T00:00:00Z"
RUNNING = a_pod("w-0", node="n1", phase="Running")


def an_end(phase: str, *, code: int | None = None, deleted: bool = False, **status: Any) -> Pod:
    """Return a worker that was on n1 and has ended."""
    if code is not None:
        status["containerStatuses"] = [{"name": "worker", "state": {"terminated": {"exitCode": code}}}]
    leaving = {"deleted_at": GONE_AT} if deleted else {}
    return a_pod("w-0", node="n1", phase=phase, status=status, **leaving)


def a_disruption(reason: str, status: str = "True") -> dict[str, Any]:
    return {"conditions": [{"type": "DisruptionTarget", "status": status, "reason": reason}]}


def a_worker(name: str, **fields: Any) -> Pod:
    return a_pod(f"j-{name}", labels={well_known.OPERATOR_JOB_NAME: "j"}, **fields)


def test_held_of_a_jobs_pods_are_the_bound_ones_that_are_not_over() -> None:
    pods = [
        a_worker("worker-10", node="n2", phase="Running"),
        a_worker("worker-2", node="n1", phase="Running", deleted_at=GONE_AT),
        a_worker("worker-1", node="n1", phase="Pending"),
        a_worker("worker-0", phase="Pending"),
        a_worker("worker-3", node="n1", phase="Failed"),
        a_worker("worker-4", node="n1", phase="Succeeded"),
        a_worker("worker-5", node="n1", phase="Unknown"),
        a_worker("launcher", node="n1", phase="Running"),
    ]
    assert list(gpu_nodes(pods).items()) == [(1, "n1"), (2, "n1"), (5, "n1"), (10, "n2")]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (an_end("Succeeded", code=0), ("finished", 0)),
        (an_end("Failed", code=3), ("failed", 3)),
        (an_end("Failed", code=137), ("failed", 137)),
        (an_end("Failed", reason="DeadlineExceeded"), ("failed", None)),
        (an_end("Failed", reason="Evicted", code=137, **a_disruption("TerminationByKubelet")), ("evicted", None)),
        (an_end("Failed", reason="Evicted", code=137), ("failed", None)),
        (an_end("Failed", reason="Evicted"), ("failed", None)),
        (an_end("Failed", reason="Preempting"), ("evicted", None)),
        (an_end("Failed", reason="Terminated"), ("evicted", None)),
        (an_end("Failed", reason="OutOfnvidia.com/gpu"), ("evicted", None)),
        (an_end("Failed", code=143, deleted=True, **a_disruption("EvictionByEvictionAPI")), ("evicted", None)),
        (an_end("Failed", code=2, **a_disruption("PreemptionByScheduler", "False")), ("failed", 2)),
        (an_end("Failed", reason="NodeLost"), ("node_lost", None)),
        (an_end("Failed", deleted=True, **a_disruption("DeletionByPodGC")), ("node_lost", None)),
        (an_end("Failed", code=1, deleted=True), ("failed", 1)),
        (an_end("Failed", code=143, deleted=True), ("evicted", None)),
        (an_end("Succeeded", code=0, deleted=True), ("evicted", None)),
        (None, ("evicted", None)),
    ],
)
def test_cause_of_a_worker_that_nobody_told_to_go_is_what_ended_it(now: Pod | None, expected: Exit) -> None:
    assert exit_cause(RUNNING, now, node=HERE, wanted="n1") == expected


@pytest.mark.parametrize("now", [None, an_end("Failed", code=137, deleted=True), an_end("Succeeded", deleted=True)])
@pytest.mark.parametrize(("wanted", "expected"), [("n2", "migrated"), (None, "stopped")])
def test_cause_of_a_worker_that_was_told_to_go_is_that_whatever_its_code(
    now: Pod | None, wanted: str | None, expected: str
) -> None:
    assert exit_cause(RUNNING, now, node=HERE, wanted=wanted) == (expected, None)


@pytest.mark.parametrize("wanted", ["n1", "n2", None])
@pytest.mark.parametrize("node", [None, a_node_object("n1", ready="Unknown")])
def test_cause_of_a_worker_whose_node_does_not_answer_is_the_node(wanted: str | None, node: NodeObject | None) -> None:
    assert exit_cause(RUNNING, None, node=node, wanted=wanted) == ("node_lost", None)


@pytest.mark.parametrize(("ready", "expected"), [("True", "evicted"), ("Unknown", "node_lost")])
def test_cause_of_a_worker_that_a_taint_drove_out_depends_on_its_node(ready: str, expected: str) -> None:
    driven_out = an_end("Running", deleted=True, **a_disruption("DeletionByTaintManager"))
    node = a_node_object("n1", ready=ready)
    assert exit_cause(driven_out, None, node=node, wanted="n1") == (expected, None)


def test_cause_of_a_worker_that_was_cleared_away_after_its_jobs_end_is_that_end() -> None:
    completed, failed = JobCompleted(job_id="j"), JobFailed(job_id="j", reason=Said(text="exit code 1"))
    assert exit_cause(RUNNING, None, node=HERE, wanted="n1", ended=completed) == ("finished", None)
    assert exit_cause(RUNNING, None, node=None, wanted=None, ended=failed) == ("failed", None)


def test_cause_of_a_worker_whose_name_has_a_successor_is_told_by_the_worker() -> None:
    successor = an_end("Failed", code=9)
    other = type(RUNNING.metadata)(name="w-0", namespace="default", uid="another")
    successor = type(successor)(metadata=other, spec=successor.spec, status=successor.status)
    assert exit_cause(RUNNING, successor, node=HERE, wanted="n2") == ("migrated", None)


def test_told_of_exits_and_starts_is_one_fact_for_each_cause_exits_first() -> None:
    before = {0: "n1", 1: "n1", 2: "n2", 3: "n2", 4: "n3"}
    now = {0: "n1", 1: "n4", 5: "n4"}
    exits: dict[int, Exit] = {2: ("failed", 1), 3: ("failed", 1), 4: ("evicted", None)}
    assert worker_facts("j", before, now, exits) == [
        WorkerExited(job_id="j", workers=(1,), cause="migrated"),
        WorkerExited(job_id="j", workers=(2, 3), cause="failed", exit_code=1),
        WorkerExited(job_id="j", workers=(4,), cause="evicted"),
        WorkerStarted(job_id="j", workers={1: "n4", 5: "n4"}),
    ]


def test_told_of_no_change_is_nothing() -> None:
    assert worker_facts("j", {0: "n1"}, {0: "n1"}, {0: ("failed", 1)}) == []


places = st.dictionaries(st.integers(0, 5), st.sampled_from(["n1", "n2"]))


@given(places, places)
def test_told_facts_lead_from_what_was_to_what_is(before: dict[int, str], now: dict[int, str]) -> None:
    there = dict(before)
    for fact in worker_facts("j", before, now, {}):
        match fact:
            case WorkerExited(workers=gone):
                there = {index: node for index, node in there.items() if index not in gone}
            case WorkerStarted(workers=come):
                assert there.keys().isdisjoint(come)
                there |= come
    assert there == now

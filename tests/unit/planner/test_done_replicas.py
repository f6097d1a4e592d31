"""Replicas that succeeded for good take no GPUs any more, and others get them."""

from collections.abc import Mapping, Sequence

import pytest

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from voda.controller.due_facts import has_freed_gpus
from voda.domain.job import Job
from voda.domain.plan import Plan
from voda.domain.state import ClusterState
from voda.events.types import WorkerExited
from voda.placement import PLACERS
from voda.policies import POLICIES


def planned(view: ClusterState) -> Plan:
    return decide(view, POLICIES.choose("elastic-fifo"), PLACERS.choose("steady"), now=100.0, cause="tick")


def a_view(*jobs: Job, nodes: Mapping[str, int], placement: Mapping[str, Sequence[str]]) -> ClusterState:
    known = [a_node(name, gpus=gpus) for name, gpus in nodes.items()]
    return a_state(jobs=jobs, nodes=known, placement={job_id: tuple(at) for job_id, at in placement.items()})


def test_gpus_of_replicas_that_are_done_go_to_jobs_that_wait() -> None:
    tail = a_job("tail", min_replicas=4, max_replicas=4, workers={2: "n1", 3: "n1"}, done=(0, 1), done_of=4, kind="Job")
    waiting = a_job("next", min_replicas=2, max_replicas=4, submitted_at=5.0)
    plan = planned(a_view(tail, waiting, nodes={"n1": 4}, placement={"tail": ["n1"] * 4}))
    assert plan.placement == {"tail": ("n1",) * 4, "next": ("n1", "n1")}


def test_job_keeps_its_size_while_a_replica_is_done() -> None:
    tail = a_job("tail", min_replicas=1, max_replicas=8, workers={1: "n1"}, done=(0,), done_of=2, kind="Job")
    first = a_job("first", min_replicas=1, max_replicas=1, priority=5, submitted_at=5.0)
    plan = planned(a_view(tail, first, nodes={"n1": 8}, placement={"tail": ["n1"] * 2}))
    assert plan.placement == {"tail": ("n1", "n1"), "first": ("n1",)}


def test_replicas_that_are_not_done_move_off_a_node_that_is_gone_under_their_indices() -> None:
    tail = a_job("tail", min_replicas=3, max_replicas=3, workers={2: "n2"}, done=(1,), done_of=3, kind="Job")
    plan = planned(a_view(tail, nodes={"n2": 2}, placement={"tail": ["n1", "n1", "n2"]}))
    assert plan.placement == {"tail": ("n2", "n2", "n2")}


def test_job_of_which_some_replicas_are_done_waits_as_a_whole_where_the_others_find_no_room() -> None:
    tail = a_job("tail", min_replicas=3, max_replicas=3, done=(0,), done_of=3, kind="Job")
    assert planned(a_view(tail, nodes={"n1": 1}, placement={"tail": ["n1"] * 3})).placement == {}


@pytest.mark.parametrize("free", [1, 2, 3, 4])
def test_preempted_job_of_which_a_replica_is_done_starts_with_the_size_it_had(free: int) -> None:
    tail = a_job("tail", min_replicas=1, max_replicas=4, done=(0,), done_of=4, kind="Job")
    plan = planned(a_view(tail, nodes={"n1": free}, placement={}))
    assert plan.placement == ({} if free < 3 else {"tail": ("n1",) * 4})


def test_job_whose_replicas_are_to_run_again_keeps_its_size_and_needs_gpus_for_all() -> None:
    tail = a_job("tail", min_replicas=1, max_replicas=4, done=(), done_of=4, kind="Job")
    assert planned(a_view(tail, nodes={"n1": 3}, placement={})).placement == {}
    assert planned(a_view(tail, nodes={"n1": 8}, placement={})).placement == {"tail": ("n1",) * 4}


def test_plan_is_due_once_replicas_are_done_whose_job_goes_on() -> None:
    jobs = {"tail": a_job("tail", workers={1: "n1"}, done=(0,)), "over": a_job("over", done=(0,))}
    exits = {job_id: WorkerExited(job_id=job_id, workers=(0,), cause="finished") for job_id in jobs}
    assert {job_id: has_freed_gpus(fact, jobs) for job_id, fact in exits.items()} == {"tail": True, "over": False}
    assert not has_freed_gpus(WorkerExited(job_id="tail", workers=(1,), cause="failed"), jobs)

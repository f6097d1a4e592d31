"""Held jobs: those that wait for others, and tasks of an array beyond its bound."""

from typing import Any

import pytest

from tests.builders import a_job, a_node, a_state
from voda.domain.dependency import Dependency
from voda.domain.job import Job
from voda.domain.job_array import ArrayTask
from voda.domain.state import ClusterState
from voda.placement import PLACERS
from voda.planner.decide import decide
from voda.planner.eligibility import eligible_view, held_jobs
from voda.policies import POLICIES


def a_task(index: int, *, at_once: int = 2, name: str = "sweep", **fields: Any) -> Job:
    array = ArrayTask(array_id=f"{name}-0", name=name, index=index, indices="0-9", at_once=at_once)
    return a_job(f"{name}-{index}", array=array, **fields)


def after(job_id: str, **fields: Any) -> Dependency:
    return Dependency(job_id=job_id, **fields)


def held(*jobs: Job, **fields: Any) -> set[str]:
    return set(held_jobs(a_state(jobs=jobs, nodes=[a_node()], **fields)))


def test_view_without_held_jobs_is_the_view_itself() -> None:
    view = a_state(jobs=[a_job("a"), a_task(0, at_once=0)], nodes=[a_node()])
    assert eligible_view(view) == (view, {})


def test_job_is_held_while_it_waits_for_another_and_says_for_which() -> None:
    waits_for = (after("a"), after("sweep-0", array="sweep"), after("b"), after("c"))
    view = a_state(jobs=[a_job("a", workers={0: "n1"}), a_job("z", waits_for=waits_for)], nodes=[a_node()])
    assert held_jobs(view) == {"z": "waits: after a (Running), array sweep, b and 1 more"}


def test_job_whose_dependency_cannot_be_met_says_why_until_it_is_canceled() -> None:
    job = a_job("z", waits_for=(after("a"),), unsatisfiable="a failed")
    assert held_jobs(a_state(jobs=[job], nodes=[a_node()])) == {"z": "waits in vain: a failed"}


def test_job_that_is_being_canceled_is_left_to_the_policy_to_leave_out() -> None:
    assert held(a_job("z", waits_for=(after("a"),), is_canceling=True)) == set()


def test_array_has_its_lowest_tasks_at_work_whatever_the_order_of_the_view() -> None:
    assert held(*[a_task(index) for index in (3, 0, 2, 1)]) == {"sweep-2", "sweep-3"}


def test_arrays_are_bounded_each_by_itself() -> None:
    tasks = [a_task(index) for index in range(3)]
    others = [a_task(index, name="other", at_once=1) for index in range(3)]
    assert held(*tasks, *others) == {"sweep-2", "other-1", "other-2"}


def test_task_at_work_keeps_its_place_when_a_lower_one_is_held_no_more() -> None:
    tasks = [a_task(0), a_task(1, workers={0: "n1"}), a_task(2, workers={0: "n1"})]
    assert held(*tasks) == {"sweep-0"}


def test_task_in_the_plan_has_its_place_before_its_workers_start() -> None:
    assert held(*[a_task(index) for index in range(4)], placement={"sweep-2": ("n1",), "sweep-3": ("n1",)}) == {
        "sweep-0",
        "sweep-1",
    }


@pytest.mark.parametrize("stopping", [{"is_canceling": True}, {"waits_for": (after("a"),)}, {"halt_reason": "halted"}])
def test_task_that_is_being_stopped_gives_its_place_away_once_its_workers_are_gone(stopping: dict[str, Any]) -> None:
    others = [a_task(1, workers={0: "n1"}), a_task(2), a_task(3)]
    assert {"sweep-2", "sweep-3"} <= held(a_task(0, workers={0: "n1"}, **stopping), *others)
    assert "sweep-2" not in held(a_task(0, **stopping), *others)


def test_array_when_more_tasks_are_being_stopped_than_its_bound_allows_begins_no_other() -> None:
    stopping = [a_task(index, at_once=1, workers={0: "n1"}, halt_reason="halted") for index in range(2)]
    assert held(*stopping, *[a_task(index, at_once=1) for index in (2, 3)]) == {f"sweep-{index}" for index in range(4)}


def test_task_that_ended_gives_its_place_away_once_its_workers_are_gone() -> None:
    view = a_state(jobs=[a_task(1, workers={0: "n1"}), a_task(2)], nodes=[a_node()])
    left = ClusterState(
        pool=view.pool,
        position=view.position,
        jobs=view.jobs,
        nodes=view.nodes,
        plan=view.plan,
        estimates={},
        settings=view.settings,
        outlived={"sweep-0": a_task(0, workers={0: "n1"})},
    )
    assert (set(held_jobs(view)), set(held_jobs(left))) == (set(), {"sweep-2"})


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("placer", sorted(PLACERS))
def test_no_policy_gives_a_held_job_workers(policy: str, placer: str) -> None:
    jobs = [a_task(index) for index in range(4)] + [a_job("z", waits_for=(after("sweep-0", array="sweep"),))]
    view = a_state(jobs=jobs, nodes=[a_node(gpus=8)])
    plan = decide(view, POLICIES.choose(policy), PLACERS.choose(placer), 10.0, cause="test")
    assert set(plan.placement) == {"sweep-0", "sweep-1"}
    assert plan.reasons["sweep-3"] == "waits: array sweep has at most 2 tasks at work at once"
    assert plan.reasons["z"] == "waits: after array sweep"

"""Held jobs: those that wait for others, and tasks of an array beyond its bound."""

from typing import Any

import pytest

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from tests.reasons import said, sentences
from voda.domain.dependency import Dependency
from voda.domain.job import Job
from voda.domain.job_array import ArrayTask
from voda.domain.reasons.holds import NextTry
from voda.domain.reasons.outcomes import Waits
from voda.domain.reasons.requests import NotCompleted, Requested
from voda.domain.state import ClusterState, Estimate
from voda.placement import PLACERS
from voda.planner.eligibility import eligible_view, held_jobs, next_retry_at
from voda.policies import POLICIES

NOW = 100.0


def a_task(index: int, *, at_once: int = 2, name: str = "sweep", **fields: Any) -> Job:
    array = ArrayTask(array_id=f"{name}-0", name=name, index=index, indices="0-9", at_once=at_once)
    return a_job(f"{name}-{index}", array=array, **fields)


def after(job_id: str, **fields: Any) -> Dependency:
    return Dependency(job_id=job_id, **fields)


def held(*jobs: Job, **fields: Any) -> set[str]:
    return set(held_jobs(a_state(jobs=jobs, nodes=[a_node()], **fields), NOW))


def test_view_without_held_jobs_is_the_view_itself() -> None:
    view = a_state(jobs=[a_job("a"), a_task(0, at_once=0)], nodes=[a_node()])
    assert eligible_view(view, NOW) == (view, {})


def test_job_is_held_while_it_waits_for_another_and_says_for_which() -> None:
    waits_for = (after("a"), after("sweep-0", array="sweep"), after("b"), after("c"))
    view = a_state(jobs=[a_job("a", workers={0: "n1"}), a_job("z", waits_for=waits_for)], nodes=[a_node()])
    assert sentences(held_jobs(view, NOW)) == {"z": "waits: after a (Running), array sweep, b and 1 more"}


def test_job_whose_dependency_cannot_be_met_says_why_until_it_is_canceled() -> None:
    job = a_job("z", waits_for=(after("a"),), unsatisfiable=NotCompleted(job="a"))
    assert sentences(held_jobs(a_state(jobs=[job], nodes=[a_node()]), NOW)) == {"z": "waits in vain: a failed"}


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


@pytest.mark.parametrize("stopping", [{"is_canceling": True}, {"waits_for": (after("a"),)}, {"halt": Requested()}])
def test_task_that_is_being_stopped_gives_its_place_away_once_its_workers_are_gone(stopping: dict[str, Any]) -> None:
    others = [a_task(1, workers={0: "n1"}), a_task(2), a_task(3)]
    assert {"sweep-2", "sweep-3"} <= held(a_task(0, workers={0: "n1"}, **stopping), *others)
    assert "sweep-2" not in held(a_task(0, **stopping), *others)


def test_array_when_more_tasks_are_being_stopped_than_its_bound_allows_begins_no_other() -> None:
    stopping = [a_task(index, at_once=1, workers={0: "n1"}, halt=Requested()) for index in range(2)]
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
    assert (set(held_jobs(view, NOW)), set(held_jobs(left, NOW))) == (set(), {"sweep-2"})


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("placer", sorted(PLACERS))
def test_no_policy_gives_a_held_job_workers(policy: str, placer: str) -> None:
    jobs = [a_task(index) for index in range(4)] + [a_job("z", waits_for=(after("sweep-0", array="sweep"),))]
    view = a_state(jobs=jobs, nodes=[a_node(gpus=8)])
    plan = decide(view, POLICIES.choose(policy), PLACERS.choose(placer), 10.0, cause="test")
    assert set(plan.placement) == {"sweep-0", "sweep-1"}
    assert said(plan.reasons["sweep-3"]) == "waits: array sweep has at most 2 tasks at work at once"
    assert said(plan.reasons["z"]) == "waits: after array sweep"


def test_job_in_backoff_is_held_until_its_next_try_unless_it_has_workers() -> None:
    waits, works = a_job("a", retry_at=NOW + 8), a_job("b", retry_at=NOW + 8, workers={0: "n1"})
    view = a_state(jobs=[waits, works], nodes=[a_node()])
    assert held_jobs(view, NOW) == {"a": Waits(why=(NextTry(),))}
    assert next_retry_at(view, NOW) == NOW + 8
    assert held_jobs(view, NOW + 8) == {}


def test_job_whose_program_failed_takes_no_gpu_back_at_its_next_try() -> None:
    failed = a_job("a", submitted_at=1.0, retry_at=NOW)
    other = a_job("b", submitted_at=50.0, workers={0: "n1"})
    view = a_state(jobs=[failed, other], nodes=[a_node(gpus=1)], placement={"b": ("n1",)})
    plan = decide(view, POLICIES["elastic-fifo"], PLACERS["steady"], NOW, cause="tick")
    assert plan.placement == {"b": ("n1",)}


def test_gpus_of_a_job_in_backoff_go_to_a_waiting_job() -> None:
    failed, other = a_job("a", submitted_at=1.0, retry_at=NOW + 8), a_job("b", submitted_at=50.0)
    view = a_state(jobs=[failed, other], nodes=[a_node(gpus=1)], placement={"a": ("n1",)})
    plan = decide(view, POLICIES["elastic-fifo"], PLACERS["steady"], NOW, cause="tick")
    assert plan.placement == {"b": ("n1",)}


@pytest.mark.parametrize(("in_s", "size"), [(8.0, 1), (1_000.0, 2)])
def test_running_job_grows_by_gpus_of_a_backoff_only_if_that_lasts(in_s: float, size: int) -> None:
    failed = a_job("a", submitted_at=1.0, retry_at=NOW + in_s)
    grower = a_job("b", submitted_at=50.0, max_replicas=2, workers={0: "n1"})
    view = a_state(
        jobs=[failed, grower],
        nodes=[a_node(gpus=2)],
        placement={"a": ("n1",), "b": ("n1",)},
        estimates={"b": Estimate(speedup=(0.0, 1.0, 2.0), resize_cost_s=60.0)},
    )
    plan = decide(view, POLICIES["elastic-fifo"], PLACERS["steady"], NOW, cause="tick")
    assert {job_id: len(nodes) for job_id, nodes in plan.placement.items()} == {"b": size}

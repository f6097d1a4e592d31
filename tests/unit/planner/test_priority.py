"""Jobs of higher priority go first: how many they get, where, and what the others are told."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import a_job, a_node, a_state
from tests.views import with_priorities
from voda.domain.job import Job
from voda.domain.plan import Plan
from voda.domain.state import ClusterState, Estimate, linear_speedup
from voda.placement import PLACERS
from voda.planner.decide import decide
from voda.planner.priority import without_priorities
from voda.policies import POLICIES


def decided(view: ClusterState, policy: str = "elastic-fifo", placer: str = "steady") -> Plan:
    return decide(view, POLICIES[policy], PLACERS[placer], 0.0, cause="tick")


def a_view(*jobs: Job, gpus: int = 4, placement: Mapping[str, tuple[str, ...]] | None = None) -> ClusterState:
    return a_state(jobs=jobs, nodes=[a_node("n1", gpus=gpus)], placement=placement)


def running(job_id: str, nodes: tuple[str, ...], **fields: Any) -> Job:
    return a_job(job_id, workers=dict(enumerate(nodes)), **fields)


def test_job_of_higher_priority_when_it_comes_later_preempts_the_one_that_runs() -> None:
    low = running("low", ("n1",) * 4, min_replicas=4, max_replicas=4)
    high = a_job("high", min_replicas=4, max_replicas=4, priority=1, submitted_at=9.0)
    plan = decided(a_view(low, high, placement={"low": ("n1",) * 4}), "fifo")
    assert plan.replicas == {"high": 4}
    assert plan.reasons["low"] == "preempted: 1 job of higher priority has 4 GPUs; needs 4, 0 free"


def test_elastic_job_of_higher_priority_when_it_can_grow_goes_before_the_minimum_of_a_lower_one() -> None:
    low = a_job("low", min_replicas=2, max_replicas=4)
    high = a_job("high", max_replicas=3, priority=5, submitted_at=9.0)
    plan = decided(a_view(low, high))
    assert plan.replicas == {"high": 3}
    assert plan.reasons["low"] == "waits: 1 job of higher priority has 3 GPUs; needs 2, 1 free"


def test_running_job_when_higher_ones_need_part_of_its_gpus_shrinks() -> None:
    low = running("low", ("n1",) * 4, max_replicas=4)
    plan = decided(
        a_view(low, a_job("a", priority=2), a_job("b", priority=1), placement={"low": ("n1",) * 4}), "elastic-fifo"
    )
    assert plan.replicas == {"a": 1, "b": 1, "low": 2}
    assert plan.reasons["low"].startswith("shrunk 4 -> 2: 2 jobs of higher priority have 2 GPUs; ")
    assert "priority" not in plan.reasons["b"]


def test_gpus_that_a_higher_class_cannot_use_go_to_the_lower_ones() -> None:
    too_large = a_job("too-large", min_replicas=9, max_replicas=9, priority=3)
    plan = decided(a_view(too_large, a_job("small", priority=-1), a_job("none", priority=-2, max_replicas=3)), "fifo")
    assert plan.replicas == {"small": 1, "none": 1}
    assert plan.reasons["too-large"] == "waits: needs 9, 4 free"


def test_growth_of_a_higher_job_when_it_does_not_pay_leaves_the_lower_one_as_it_is() -> None:
    high, low = running("high", ("n1",) * 2, max_replicas=4, priority=1), running("low", ("n1",) * 2, max_replicas=2)
    short = Estimate(speedup=linear_speedup(4), remaining_s=10.0, resize_cost_s=60.0)
    view = a_state(
        jobs=[high, low],
        nodes=[a_node()],
        placement={"high": ("n1",) * 2, "low": ("n1",) * 2},
        estimates={"high": short},
    )
    assert decided(view).replicas == {"high": 2, "low": 2}


def test_priorities_when_all_are_negative_and_equal_change_nothing() -> None:
    jobs = [a_job(name, max_replicas=3, submitted_at=float(at)) for at, name in enumerate("abc")]
    view = a_view(*jobs)
    assert decided(with_priorities(view, [-7] * 3)) == decided(view)


def an_anchored(job_id: str, node: str, **fields: Any) -> Job:
    """Return a job whose only worker, of two GPUs, is not moved without need."""
    return running(job_id, (node,), kind="PyTorchJob", gpus_per_replica=2, **fields)


def test_job_of_higher_priority_when_the_free_gpus_are_scattered_gets_a_node_of_lower_ones() -> None:
    lows = [an_anchored("low-1", "n1"), an_anchored("low-2", "n2", submitted_at=1.0)]
    high = a_job("high", gpus_per_replica=4, priority=1, submitted_at=9.0)
    view = a_state(
        jobs=[*lows, high],
        nodes=[a_node("n1"), a_node("n2")],
        placement={"low-1": ("n1",), "low-2": ("n2",)},
    )
    plan = decided(view)
    assert len(plan.placement["high"]) == 1
    assert set(plan.placement["low-1"] + plan.placement["low-2"]) == {"n1", "n2"} - set(plan.placement["high"])
    assert "high" not in decided(without_priorities(view)).placement


def test_placement_when_everybody_finds_room_moves_nobody_for_a_priority() -> None:
    lows = [running("low-1", ("n1", "n1"), min_replicas=2, max_replicas=2), running("low-2", ("n2",))]
    high = a_job("high", min_replicas=2, max_replicas=2, priority=1, submitted_at=9.0)
    view = a_state(
        jobs=[*lows, high],
        nodes=[a_node("n1"), a_node("n2")],
        placement={"low-1": ("n1", "n1"), "low-2": ("n2",)},
    )
    plan = decided(view, "fifo")
    assert plan.placement["low-1"] == ("n1", "n1")
    assert plan.placement["low-2"] == ("n2",)
    assert len(plan.placement["high"]) == 2


@st.composite
def a_crowd(draw: st.DrawFn) -> ClusterState:
    """Return jobs of several shapes and priorities on a few nodes, some of them running."""
    nodes = [a_node(f"n{index}", gpus=draw(st.integers(1, 8))) for index in range(draw(st.integers(1, 4)))]
    jobs, placement = [], {}
    for index in range(draw(st.integers(1, 7))):
        least = draw(st.integers(1, 3))
        at = draw(st.lists(st.sampled_from([node.name for node in nodes]), max_size=3).map(tuple))
        job = a_job(
            f"j{index}",
            min_replicas=least,
            max_replicas=least + draw(st.integers(0, 3)),
            gpus_per_replica=draw(st.sampled_from([1, 1, 2, 4])),
            priority=draw(st.integers(-1, 1)),
            submitted_at=float(draw(st.integers(0, 3))),
            workers=dict(enumerate(at)),
            kind=draw(st.sampled_from(["MPIJob", "PyTorchJob"])),
        )
        jobs.append(job)
        if at:
            placement[job.spec.job_id] = at
    return a_state(jobs=jobs, nodes=nodes, placement=placement)


@pytest.mark.parametrize("placer", sorted(PLACERS))
@pytest.mark.parametrize("policy", ["fifo", "elastic-fifo", "tiresias", "ffdl"])
@settings(max_examples=60)
@given(view=a_crowd())
def test_highest_class_when_lower_ones_are_there_is_served_as_well_as_alone(
    policy: str, placer: str, view: ClusterState
) -> None:
    highest = max(job.spec.priority for job in view.jobs.values())
    jobs = [job for job in view.jobs.values() if job.spec.priority == highest]
    alone = a_state(jobs=jobs, nodes=view.nodes.values(), placement=view.plan.placement)
    plan = decided(view, policy, placer)
    mine = {job.spec.job_id for job in jobs}
    used: dict[str, int] = {}
    for job_id, nodes in plan.placement.items():
        for node in nodes:
            used[node] = used.get(node, 0) + view.jobs[job_id].spec.gpus_per_replica
    assert all(gpus <= view.nodes[node].usable_gpus for node, gpus in used.items())
    assert plan.reasons.keys() == view.jobs.keys()
    least = sum(decided(alone, policy, placer).replicas.values())
    assert sum(size for job_id, size in plan.replicas.items() if job_id in mine) >= least

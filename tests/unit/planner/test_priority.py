"""Jobs of higher priority go first: how many they get, where, and what the others are told."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from tests.reasons import said
from tests.views import with_priorities
from voda.domain.job import Job
from voda.domain.plan import Placement, Plan
from voda.domain.settings import Settings
from voda.domain.state import ClusterState, Estimate, linear_speedup
from voda.placement import PLACERS
from voda.planner.allocation.priority import place as placed_by_priority
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
    assert (
        said(plan.reasons["low"])
        == "preempted by job high: 1 job of higher priority has 4 GPUs; needs 4 GPUs, none is free"
    )


def test_elastic_job_of_higher_priority_when_it_can_grow_goes_before_the_minimum_of_a_lower_one() -> None:
    low = a_job("low", min_replicas=2, max_replicas=4)
    high = a_job("high", max_replicas=3, priority=5, submitted_at=9.0)
    plan = decided(a_view(low, high))
    assert plan.replicas == {"high": 3}
    assert said(plan.reasons["low"]) == "waits: 1 job of higher priority has 3 GPUs; needs 2 GPUs, 1 is free"


def test_running_job_when_higher_ones_need_part_of_its_gpus_shrinks() -> None:
    low = running("low", ("n1",) * 4, max_replicas=4)
    plan = decided(
        a_view(low, a_job("a", priority=2), a_job("b", priority=1), placement={"low": ("n1",) * 4}), "elastic-fifo"
    )
    assert plan.replicas == {"a": 1, "b": 1, "low": 2}
    assert said(plan.reasons["low"]).startswith("shrunk from 4 to 2 workers: 2 jobs of higher priority have 2 GPUs; ")
    assert said(plan.reasons["b"]) == "starts with 1 worker, it is the only job of priority 1 for 3 GPUs"


def test_gpus_that_a_higher_class_cannot_use_go_to_the_lower_ones() -> None:
    too_large = a_job("too-large", min_replicas=9, max_replicas=9, priority=3)
    plan = decided(a_view(too_large, a_job("small", priority=-1), a_job("none", priority=-2, max_replicas=3)), "fifo")
    assert plan.replicas == {"small": 1, "none": 1}
    assert said(plan.reasons["too-large"]) == "waits: needs 9 GPUs, 4 are free"


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
    # Some nodes have less than is held there: without a grace that is believed at once.
    return a_state(jobs=jobs, nodes=nodes, placement=placement, settings=Settings(node_grace_s=0.0))


def class_gpus(view: ClusterState, plan: Plan) -> dict[int, int]:
    """Return how many GPUs the plan gives to each class, the highest first."""
    return {
        priority: sum(
            len(plan.placement.get(job_id, ())) * job.spec.gpus_per_replica
            for job_id, job in view.jobs.items()
            if job.spec.priority == priority
        )
        for priority in sorted({job.spec.priority for job in view.jobs.values()}, reverse=True)
    }


def assert_no_class_gives_way_to_lower_ones(view: ClusterState, policy: str, placer: str) -> None:
    """Assert that each class has at least the GPUs that it has without those below, or one above it has more."""
    gpus = class_gpus(view, decided(view, policy, placer))
    for priority in [*gpus][:-1]:
        jobs = [job for job in view.jobs.values() if job.spec.priority >= priority]
        alone = replace(view, jobs={job.spec.job_id: job for job in jobs})
        least = class_gpus(alone, decided(alone, policy, placer))
        assert [*gpus.values()][: len(least)] >= [*least.values()]


@pytest.mark.parametrize("placer", sorted(PLACERS))
@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=20)
@given(view=a_crowd())
def test_each_class_when_lower_ones_are_there_is_served_as_well_as_without_them(
    policy: str, placer: str, view: ClusterState
) -> None:
    plan = decided(view, policy, placer)
    used: dict[str, int] = {}
    for job_id, nodes in plan.placement.items():
        for node in nodes:
            used[node] = used.get(node, 0) + view.jobs[job_id].spec.gpus_per_replica
    assert all(gpus <= view.nodes[node].usable_gpus for node, gpus in used.items())
    assert plan.reasons.keys() == view.jobs.keys()
    assert_no_class_gives_way_to_lower_ones(view, policy, placer)


def a_shape(job_id: str, replicas: tuple[int, int], gpus: int, **fields: Any) -> Job:
    """Return a job of so many replicas (least, most) of so many GPUs."""
    least, most = replicas
    return a_job(job_id, min_replicas=least, max_replicas=most, gpus_per_replica=gpus, **fields)


def a_torch_shape(job_id: str, replicas: tuple[int, int], gpus: int, priority: int, *nodes: str) -> Job:
    """Return such a job whose first worker, if it runs, is not moved without need."""
    workers = dict(enumerate(nodes))
    return a_shape(job_id, replicas, gpus, priority=priority, workers=workers, kind="PyTorchJob")


MIDDLE_CLASSES = {
    "fifo-steady": (
        (1, 8, 3, 8),
        [
            a_torch_shape("high", (3, 4), 2, 2),
            a_torch_shape("middle", (3, 6), 4, 1),
            a_torch_shape("low", (1, 2), 1, -1, "n1"),
        ],
        {2: 6, 1: 12, -1: 1},
    ),
    "ffdl-steady": (
        (3, 1, 6, 6),
        [
            a_torch_shape("high-1", (1, 1), 4, 2),
            a_torch_shape("high-2", (3, 3), 2, 2),
            a_torch_shape("middle-1", (1, 4), 4, 1, "n3"),
            a_torch_shape("middle-2", (3, 4), 2, 1, "n3", "n0", "n2"),
            a_torch_shape("low", (2, 2), 1, 0),
        ],
        {2: 10, 1: 4, 0: 2},
    ),
    "srjf-packed": (
        (4, 3, 6, 3),
        [
            a_torch_shape("low-1", (1, 4), 4, 0),
            a_shape("low-2", (2, 4), 4),
            a_shape("low-3", (2, 2), 2, workers={0: "n2", 1: "n2"}),
            a_shape("the-highest", (2, 2), 2, priority=2),
            a_torch_shape("the-middle", (2, 5), 4, 1),
        ],
        {2: 4, 1: 8, 0: 0},
    ),
}
"""By policy and placer: the GPUs of the nodes, the jobs, and the GPUs that each class is to have."""


@pytest.mark.parametrize("case", MIDDLE_CLASSES)
def test_middle_class_when_the_highest_could_take_its_node_is_placed_before_lower_ones(case: str) -> None:
    policy, placer = case.split("-")
    gpus, jobs, expected = MIDDLE_CLASSES[case]
    view = a_state(
        jobs=jobs,
        nodes=[a_node(f"n{index}", gpus=count) for index, count in enumerate(gpus)],
        placement={job.spec.job_id: tuple(job.workers.values()) for job in jobs if job.workers},
    )
    assert class_gpus(view, decided(view, policy, placer)) == expected
    assert_no_class_gives_way_to_lower_ones(view, policy, placer)


def test_placement_when_there_are_many_classes_splits_off_eight_of_them_at_most() -> None:
    jobs = [
        a_job(f"j{priority}", min_replicas=3, max_replicas=3, priority=priority, gpus_per_replica=2)
        for priority in range(40)
    ]
    view = a_state(jobs=jobs, nodes=[a_node(f"n{index}", gpus=3) for index in range(120)])
    steady, calls = PLACERS["steady"], 0

    class Counted:
        name: ClassVar[str] = "counted"
        title: ClassVar[str] = "counted"

        def place(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> Placement:
            nonlocal calls
            calls += 1
            # Nobody gets its last worker, so that each class is short.
            placed = steady.place(view, replicas, now)
            return {job_id: nodes[:-1] for job_id, nodes in placed.items()}

    placed_by_priority(view, {job.spec.job_id: 3 for job in jobs}, Counted(), 0.0)
    assert calls == 1 + 2 * 8

"""Growths must pay, nobody starves for it, and a plan and the fact that records it are each other's inverse."""

from collections.abc import Mapping
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from tests.reasons import said, sentences, worded
from voda.domain.gpus import Gpus
from voda.domain.plan import Allocation, Placement, Plan
from voda.domain.state import ClusterState, Estimate, linear_speedup
from voda.events.types import PlanAdopted
from voda.placement.steady import Steady
from voda.planner.allocation.resize_cost import without_thrash
from voda.planner.plan_changes import changes
from voda.policies.elastic_fifo import ElasticFifo
from voda.policies.fifo import Fifo
from voda.projections.cluster.pool_changes import adopted

MAX_REPLICAS = 8
COST_S = 60.0


class Dictated:
    """A policy that gives what the test says."""

    name: ClassVar[str] = "dictated"
    title: ClassVar[str] = "what the test says"
    paper: ClassVar[str] = "none"

    def __init__(self, replicas: Mapping[str, int]) -> None:
        self.replicas = replicas

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        replicas = {job_id: size for job_id, size in self.replicas.items() if job_id in view.jobs}
        return Allocation(replicas=replicas, reasons=dict.fromkeys(replicas, worded("as dictated")))


def a_view(
    running: Mapping[str, int],
    *,
    waiting: Mapping[str, int] | None = None,
    remaining_s: Mapping[str, float] | None = None,
    gpus: int = 8,
) -> ClusterState:
    """One node; jobs running at the given sizes, others waiting with the given minimum; submitted by name.

    A job whose seconds on one worker are not given has an unknown remaining time.
    """
    placement = {job_id: ("n1",) * size for job_id, size in running.items()}
    least = {**dict.fromkeys(running, 1), **(waiting or {})}
    jobs = [
        a_job(
            job_id,
            min_replicas=least[job_id],
            max_replicas=MAX_REPLICAS,
            submitted_at=float(index),
            workers=dict(enumerate(placement.get(job_id, ()))),
        )
        for index, job_id in enumerate(sorted(least))
    ]
    left_s = remaining_s or {}
    estimates = {
        job_id: Estimate(
            speedup=linear_speedup(MAX_REPLICAS),
            remaining_s=left_s.get(job_id, float("inf")),
            resize_cost_s=COST_S,
        )
        for job_id in least
    }
    return a_state(jobs=jobs, nodes=[a_node("n1", gpus=gpus)], placement=placement, estimates=estimates)


def settled(view: ClusterState, wanted: Mapping[str, int]) -> Mapping[str, int]:
    return without_thrash(view, wanted, now=0.0)[0]


# ---- no thrash


def test_growth_when_it_saves_less_than_it_costs_then_it_is_left_out_and_the_reason_says_so() -> None:
    plan = decide(a_view({"a": 2}, remaining_s={"a": 160.0}), Dictated({"a": 4}), Steady(), 5.0, cause="tick")
    assert plan.placement == {"a": ("n1", "n1")}
    assert sentences(plan.reasons) == {"a": "kept at 2 workers: growing to 4 would save 40 s and cost 60 s"}


def test_growth_when_it_saves_more_than_it_costs_then_it_is_made() -> None:
    assert settled(a_view({"a": 2}, remaining_s={"a": 400.0}), {"a": 4}) == {"a": 4}


def test_growth_when_the_remaining_time_is_unknown_then_it_is_made() -> None:
    assert settled(a_view({"a": 2}), {"a": 4}) == {"a": 4}


def test_growth_when_a_node_of_the_job_is_lost_then_it_is_not_judged() -> None:
    view = a_view({"a": 2}, remaining_s={"a": 1.0})
    assert settled(replace(view, nodes={"n2": a_node("n2")}), {"a": 4}) == {"a": 4}
    assert settled(replace(view, nodes={"n1": a_node("n1", is_ready=False)}), {"a": 4}) == {"a": 4}


@pytest.mark.parametrize("workers", [{}, {0: "n1"}])
def test_growth_when_the_job_has_not_its_minimum_then_it_is_not_judged(workers: dict[int, str]) -> None:
    view = a_view({"a": 2}, remaining_s={"a": 1.0})
    below = a_job("a", min_replicas=2, max_replicas=MAX_REPLICAS, workers=workers)
    assert settled(replace(view, jobs={"a": below}), {"a": 4}) == {"a": 4}


def test_shrink_when_the_growth_it_was_for_is_left_out_then_it_is_undone() -> None:
    view = a_view({"a": 5, "b": 3}, remaining_s={"b": 1.0})
    replicas, reasons = without_thrash(view, {"a": 4, "b": 4}, now=0.0)
    assert replicas == {"a": 5, "b": 3}
    assert said(reasons["a"]) == "kept at 5 workers: shrinking to 4 would free GPUs that no other job needs now"


def test_shrink_when_it_makes_room_for_a_start_then_it_stands() -> None:
    view = a_view({"a": 5, "b": 3}, waiting={"c": 1}, remaining_s={"b": 1.0})
    assert settled(view, {"a": 3, "b": 4, "c": 1}) == {"a": 4, "b": 3, "c": 1}
    assert settled(view, {"a": 4, "b": 3, "c": 1}) == {"a": 4, "b": 3, "c": 1}


def test_shrink_when_the_job_is_no_slower_at_the_smaller_size_then_it_stands() -> None:
    view = a_view({"a": 5, "b": 3}, remaining_s={"b": 1.0})
    flat = Estimate(speedup=(0.0, 1.0, 2.0, 3.0, *[4.0] * 5), resize_cost_s=COST_S)
    assert settled(replace(view, estimates={**view.estimates, "a": flat}), {"a": 4, "b": 4}) == {"a": 4, "b": 3}


def test_shrink_when_the_speed_at_the_former_size_is_unknown_then_it_is_undone() -> None:
    view = a_view({"a": 5, "b": 3}, remaining_s={"b": 1.0})
    short = Estimate(speedup=linear_speedup(4), resize_cost_s=COST_S)
    assert settled(replace(view, estimates={**view.estimates, "a": short}), {"a": 4, "b": 4}) == {"a": 5, "b": 3}


def test_shrinks_when_not_all_can_be_undone_then_whole_ones_go_before_parts() -> None:
    view = a_view({"a": 5, "b": 2, "c": 1}, remaining_s={"c": 1.0}, waiting={"d": 2})
    assert settled(view, {"a": 2, "b": 1, "c": 3, "d": 2}) == {"a": 3, "b": 2, "c": 1, "d": 2}
    view = a_view({"a": 2, "b": 5, "c": 1}, remaining_s={"c": 1.0}, waiting={"d": 2})
    assert settled(view, {"a": 1, "b": 2, "c": 3, "d": 2}) == {"a": 2, "b": 3, "c": 1, "d": 2}


def test_shrink_when_replicas_hold_several_gpus_then_as_many_are_undone_as_the_freed_ones_make() -> None:
    view = a_view({"a": 3, "b": 2}, waiting={"c": 2}, remaining_s={"b": 1.0})
    pairs = replace(view.jobs["a"], spec=replace(view.jobs["a"].spec, gpus_per_replica=Gpus(2)))
    assert settled(replace(view, jobs={**view.jobs, "a": pairs}), {"a": 1, "b": 4, "c": 2}) == {"a": 2, "b": 2, "c": 2}


def test_preemption_when_the_growth_it_was_for_is_left_out_then_it_is_undone() -> None:
    view = a_view({"a": 4, "b": 4}, remaining_s={"b": 1.0})
    replicas, reasons = without_thrash(view, {"a": 0, "b": 8}, now=0.0)
    assert replicas == {"a": 4, "b": 4}
    assert said(reasons["a"]) == "kept at 4 workers: to grow other jobs by these GPUs would not pay"


def test_preemption_when_undone_takes_its_gpus_once_and_leaves_the_rest_to_shrunk_jobs() -> None:
    view = a_view({"a": 2, "b": 2, "c": 5}, remaining_s={"b": 1.0}, gpus=9)
    replicas, reasons = without_thrash(view, {"a": 0, "b": 8, "c": 1}, now=0.0)
    assert replicas == {"a": 2, "b": 2, "c": 5}
    assert said(reasons["a"]) == "kept at 2 workers: to grow other jobs by these GPUs would not pay"


def test_preemption_when_it_makes_room_for_a_start_then_it_stands() -> None:
    view = a_view({"a": 4, "b": 4}, waiting={"c": 4}, remaining_s={"b": 1.0})
    assert settled(view, {"a": 0, "b": 4, "c": 4}) == {"a": 0, "b": 4, "c": 4}
    assert settled(replace(view, nodes={"n1": a_node("n1", gpus=9)}), {"a": 0, "b": 5, "c": 4}) == {
        "a": 1,
        "b": 4,
        "c": 4,
    }


def test_waiting_job_when_a_growth_in_its_place_is_left_out_then_it_starts() -> None:
    view = a_view({"a": 2}, waiting={"b": 3, "c": 2}, remaining_s={"a": 1.0}, gpus=4)
    replicas, reasons = without_thrash(view, {"a": 4, "b": 0, "c": 0}, now=0.0)
    assert replicas == {"a": 2, "b": 0, "c": 2}
    assert said(reasons["c"]) == "starts with 2 workers: to grow other jobs by these GPUs would not pay"


@st.composite
def a_decision(draw: st.DrawFn) -> tuple[ClusterState, Mapping[str, int]]:
    gpus = 16

    def shares(names: str) -> dict[str, int]:
        left, sizes = gpus, {}
        for name in draw(st.permutations(names)):
            sizes[name] = draw(st.integers(0, min(left, MAX_REPLICAS)))
            left -= sizes[name]
        return sizes

    running = {name: size for name, size in shares("abcde").items() if size}
    waiting = {name: 1 for name in "abcdefg" if name not in running}
    left_s = {name: draw(st.sampled_from([1.0, 200.0, 1e6])) for name in "abcdefg" if draw(st.booleans())}
    return a_view(running, waiting=waiting, remaining_s=left_s, gpus=gpus), shares("abcdefg")


@given(decision=a_decision())
def test_thrash_when_prevented_then_nobody_starves_and_nothing_is_overdrawn(
    decision: tuple[ClusterState, Mapping[str, int]],
) -> None:
    view, wanted = decision
    replicas, reasons = without_thrash(view, wanted, now=0.0)
    assert sum(replicas.values()) <= sum(wanted.values()) <= view.capacity_gpus
    given_back = sum(wanted.values()) - sum(replicas.values())
    for job_id, size in replicas.items():
        before = len(view.plan.placement.get(job_id, ()))
        if size != wanted[job_id]:
            least = view.jobs[job_id].spec.min_replicas
            assert min(before, wanted[job_id]) <= size <= max(before, wanted[job_id], least)
            assert before > 0 or wanted[job_id] == 0
            assert size > 0
            assert job_id in reasons
        if size == 0:
            assert given_back < view.jobs[job_id].spec.min_replicas


# ---- the plan


def test_decide_when_the_placer_cannot_place_all_then_the_reason_says_so() -> None:
    jobs = [a_job("a", max_replicas=4, gpus_per_replica=3), a_job("b", gpus_per_replica=4)]
    nodes = [a_node("n1"), a_node("n2", gpus=3)]
    plan = decide(a_state(jobs=jobs, nodes=nodes), Dictated({"a": 2, "b": 1}), Steady(), 0.0, cause="tick")
    assert plan.placement == {"a": ("n1", "n2")}
    assert said(plan.reasons["b"]) == "waits: the free GPUs are too scattered for 1 worker of 4 GPUs"


class Counting(Dictated):
    """Counts how often it is asked."""

    asked = 0

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        self.asked += 1
        return super().allocate(view, now)


class Shunning(Steady):
    """A placer that finds no room for the first of the jobs."""

    def place(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> Placement:
        return super().place(view, dict(sorted(replicas.items())[1:]), now)


def test_decide_when_all_find_room_then_the_policy_is_asked_once() -> None:
    policy = Counting({"a": 1, "b": 2})
    decide(a_view({}, waiting={"a": 1, "b": 2}), policy, Steady(), 0.0, cause="tick")
    assert policy.asked == 1


def test_decide_when_one_job_after_the_other_finds_no_room_then_the_policy_is_asked_four_times() -> None:
    sizes = dict.fromkeys("abcdef", 1)
    jobs = [a_job(job_id, gpus_per_replica=9 - place) for place, job_id in enumerate(sizes)]
    policy = Counting(sizes)
    plan = decide(a_state(jobs=jobs, nodes=[a_node("n1", gpus=64)]), policy, Shunning(), 0.0, cause="tick")
    assert policy.asked == 4
    assert sorted(plan.placement) == ["e", "f"]
    scattered = {job_id for job_id, why in plan.reasons.items() if "too scattered" in said(why)}
    assert scattered == set("abcd")


def test_decide_when_the_free_gpus_are_too_scattered_for_a_job_then_later_small_ones_use_them() -> None:
    # Two nodes of 4, a worker of 3 on each; 1 + 1 GPUs are free, and a worker of 2 fits nowhere.
    running = [a_job(job_id, gpus_per_replica=3, workers={0: node}) for job_id, node in (("a", "n1"), ("b", "n2"))]
    waiting = [
        a_job("large", gpus_per_replica=2, submitted_at=1.0),
        a_job("large-too", gpus_per_replica=2, submitted_at=2.0),
        a_job("small", submitted_at=3.0),
    ]
    view = a_state(
        jobs=[*running, *waiting], nodes=[a_node("n1"), a_node("n2")], placement={"a": ("n1",), "b": ("n2",)}
    )
    plan = decide(view, ElasticFifo(), Steady(), 5.0, cause="tick")
    assert plan.placement == {"a": ("n1",), "b": ("n2",), "small": ("n1",)}
    scattered = "waits: the free GPUs are too scattered for 1 worker of 2 GPUs"
    assert {said(plan.reasons["large"]), said(plan.reasons["large-too"])} == {scattered}


def test_decide_when_room_for_an_earlier_large_job_can_be_made_then_later_small_ones_give_way() -> None:
    running = [a_job(f"s{number}", submitted_at=9.0 + number, workers={0: "n1"}) for number in range(4)]
    jobs = [a_job("large", gpus_per_replica=2, submitted_at=1.0), *running]
    placement = {job.spec.job_id: ("n1",) for job in running}
    plan = decide(a_state(jobs=jobs, nodes=[a_node("n1")], placement=placement), Fifo(), Steady(), 20.0, cause="tick")
    assert sorted(plan.placement) == ["large", "s0", "s1"]


def test_decide_when_no_node_could_ever_hold_a_worker_then_the_job_waits_and_keeps_nothing_from_others() -> None:
    jobs = [a_job("huge", gpus_per_replica=8), a_job("small", submitted_at=1.0, max_replicas=8)]
    view = a_state(jobs=jobs, nodes=[a_node("n1"), a_node("n2")])
    plan = decide(view, ElasticFifo(), Steady(), 5.0, cause="tick")
    assert len(plan.placement["small"]) == 8
    assert said(plan.reasons["huge"]) == "waits: needs room for 1 worker of 8 GPUs, and the nodes have room for 0"


# ---- nodes that refuse jobs


def test_decide_when_every_node_refuses_a_job_then_it_waits_with_the_most_telling_reason() -> None:
    refusals = {"n1": "2 CPUs free, 4 needed", "n2": "a taint"}
    view = a_state(
        jobs=[a_job("a", refusals=refusals), a_job("b", submitted_at=1.0, max_replicas=12)],
        nodes=[a_node("n1", gpus=8), a_node("n2")],
        placement={"a": ("n1",)},
    )
    plan = decide(view, ElasticFifo(), Steady(), 5.0, cause="worker.refused")
    assert len(plan.placement["b"]) == 12
    assert said(plan.reasons["a"]) == "waits: no node can take it: n1: 2 CPUs free, 4 needed; 1 more refuses it"


def test_decide_when_the_nodes_that_take_a_job_are_too_small_then_the_reason_says_so() -> None:
    job = a_job("a", min_replicas=6, max_replicas=6, refusals={"n1": "a taint"})
    view = a_state(jobs=[job], nodes=[a_node("n1"), a_node("n2")])
    plan = decide(view, ElasticFifo(), Steady(), 5.0, cause="tick")
    assert (
        said(plan.reasons["a"])
        == "waits: needs room for 6 workers of 1 GPU, and the nodes that take it have room for 4 (n1: a taint)"
    )


def test_decide_when_nodes_refuse_more_of_a_job_then_others_get_the_gpus_and_the_reason_says_why() -> None:
    jobs = [
        a_job("a", max_replicas=8, refusals={"n2": "a taint"}, workers={0: "n1"}),
        a_job("b", max_replicas=8, submitted_at=1.0),
    ]
    view = a_state(jobs=jobs, nodes=[a_node("n1"), a_node("n2")], placement={"a": ("n1",)})
    plan = decide(view, Dictated({"a": 7, "b": 1}), Steady(), 5.0, cause="tick")
    assert plan.placement["a"] == ("n1",) * 4
    assert (
        said(plan.reasons["a"])
        == "runs with 4 workers: the nodes that take it have no GPUs free for 7 workers of 1 GPU (n2: a taint)"
    )
    shared = decide(view, ElasticFifo(), Steady(), 5.0, cause="tick")
    assert {job_id: len(nodes) for job_id, nodes in shared.placement.items()} == {"a": 4, "b": 4}


def test_decide_when_nodes_refuse_part_of_a_share_then_the_policy_hands_it_to_others() -> None:
    jobs = [a_job("a", max_replicas=8, refusals={"n2": "a taint"}), a_job("b", max_replicas=8, submitted_at=1.0)]
    view = a_state(jobs=jobs, nodes=[a_node("n1", gpus=2), a_node("n2", gpus=6)])
    plan = decide(view, ElasticFifo(), Steady(), 5.0, cause="tick")
    assert plan.placement == {"a": ("n1",) * 2, "b": ("n2",) * 6}
    assert said(plan.reasons["a"]).startswith(
        "runs with 2 workers: the nodes that take it have no GPUs free for 4 workers"
    )


def test_decide_when_a_refused_job_finds_no_room_then_others_of_its_shape_are_not_held_back() -> None:
    full = a_job("full", workers={0: "n1"}, refusals={"n2": "a taint"})
    jobs = [full, a_job("a", refusals={"n2": "a taint"}, submitted_at=0.5), a_job("b", submitted_at=1.0)]
    nodes = [a_node("n1", gpus=1), a_node("n2", gpus=1)]
    plan = decide(a_state(jobs=jobs, nodes=nodes, placement={"full": ("n1",)}), ElasticFifo(), Steady(), 5.0, cause="x")
    assert plan.placement == {"full": ("n1",), "b": ("n2",)}
    assert (
        said(plan.reasons["a"]) == "waits: the nodes that take it have no GPUs free for 1 worker of 1 GPU (n2: a taint)"
    )


def test_decide_when_done_then_the_plan_tells_where_it_comes_from() -> None:
    plan = decide(a_view({}, waiting={"a": 1}), Dictated({"a": 1}), Steady(), 7.0, cause="job.submitted")
    assert plan == Plan(
        pool="default",
        number=2,
        based_on=10,
        policy="dictated",
        placer="steady",
        decided_at=7.0,
        cause="job.submitted",
        placement={"a": ("n1",)},
        reasons={"a": worded("as dictated")},
    )


# ---- the difference between plans

JOB_IDS = st.sampled_from("abcdef")
PLACEMENTS = st.dictionaries(JOB_IDS, st.lists(st.sampled_from(["n1", "n2"]), min_size=1, max_size=3).map(tuple))


def a_plan(placement: Placement, number: int = 1, told: str = "abcdef") -> Plan:
    return Plan(
        pool="p",
        number=number,
        placement=placement,
        reasons={job_id: worded(f"{job_id} in plan {number}") for job_id in told},
    )


@given(old=PLACEMENTS, new=PLACEMENTS, undecided=st.frozensets(JOB_IDS))
def test_adopted_when_given_the_changes_then_the_new_plan_is_in_force(
    old: Placement, new: Placement, undecided: frozenset[str]
) -> None:
    before, after = a_plan(old), a_plan(new, number=2)
    fact = changes(before, after, undecided)
    if fact is None:
        assert old == new
        assert not undecided
        return
    in_force = adopted(before, fact, 0.0)
    assert in_force.placement == new
    told = {job_id for job_id in "abcdef" if old.get(job_id) != new.get(job_id)} | undecided
    assert in_force.reasons == {**before.reasons, **{job_id: after.reasons[job_id] for job_id in told}}
    assert replace(in_force, reasons=after.reasons) == after


def test_changes_when_a_job_is_considered_for_the_first_time_then_its_reason_is_recorded() -> None:
    fact = changes(a_plan({}), a_plan({}, number=2), {"a"})
    assert fact == PlanAdopted(
        pool="p", number=2, based_on=0, policy="", placer="", cause="", reasons={"a": worded("a in plan 2")}
    )


def test_adopted_when_a_released_job_has_ended_then_its_reason_goes_with_it() -> None:
    before = a_plan({"a": ("n1",)})
    fact = changes(before, a_plan({}, number=2, told="b"), set())
    assert fact is not None
    assert "a" not in adopted(before, fact, 0.0).reasons

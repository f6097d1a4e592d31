"""What nodes that refuse a job, and a worker that anchors it, mean for placers."""

from collections.abc import Mapping

import pytest

from tests.builders import a_job, a_node, a_state
from voda.domain.job import Job
from voda.domain.node import Node
from voda.domain.plan import Placement
from voda.domain.state import Estimate, linear_speedup
from voda.events.text.nodes import refused_text
from voda.placement import PLACERS, Placer
from voda.placement.packed import Packed
from voda.placement.steady import Steady
from voda.planner.feasibility import largest_refusal, room_for

FULL = "2 CPUs free, 4 needed"
ALL = pytest.mark.parametrize("placer", PLACERS.values(), ids=PLACERS)


def placed(
    placement: Placement, *jobs: Job, nodes: tuple[Node, ...] = (), replicas: Mapping[str, int], placer: Placer
) -> Placement:
    """Place on two nodes of four GPUs, or on those given."""
    return placer.place(
        a_state(jobs=jobs, nodes=nodes or (a_node("n1"), a_node("n2")), placement=placement), replicas, 0.0
    )


def torch(job_id: str = "t", **fields: object) -> Job:
    return a_job(job_id, **{"kind": "PyTorchJob", "max_replicas": 8, **fields})


def at(*nodes: str) -> dict[int, str]:
    return dict(enumerate(nodes))


# ---- refusals


@ALL
def test_placers_when_a_node_refuses_a_job_then_it_goes_elsewhere_and_others_come(placer: Placer) -> None:
    jobs = [a_job("a", max_replicas=8, refusals={"n1": FULL}), a_job("b")]
    answer = placed({}, *jobs, replicas={"a": 4, "b": 1}, placer=placer)
    assert answer == {"a": ("n2",) * 4, "b": ("n1",)}


@ALL
def test_placers_when_every_node_refuses_a_job_then_it_gets_nothing(placer: Placer) -> None:
    job = a_job("a", refusals={"n1": FULL, "n2": FULL})
    assert placed({}, job, replicas={"a": 1}, placer=placer) == {}


def test_steady_when_a_planned_node_refuses_a_worker_that_is_not_there_yet_then_it_is_planned_elsewhere() -> None:
    job = a_job("a", max_replicas=8, refusals={"n2": FULL}, workers={0: "n1"})
    full = a_job("b", workers=at("n1", "n1"))
    in_force: Placement = {"a": ("n1", "n2"), "b": ("n1", "n1")}
    answer = placed(in_force, job, full, replicas={"a": 2, "b": 2}, placer=Steady())
    assert answer["a"] == ("n1", "n1")


def test_steady_when_a_node_refuses_one_worker_more_then_those_at_work_there_stay() -> None:
    job = a_job("a", max_replicas=8, refusals={"n1": FULL}, workers=at("n1", "n1"))
    # No node has room for all three but the one that refuses the third.
    nodes = (a_node("n1"), a_node("n2", gpus=2))
    assert placed({"a": ("n1", "n1")}, job, nodes=nodes, replicas={"a": 3}, placer=Steady()) == {
        "a": ("n1", "n1", "n2")
    }


def test_steady_when_a_worker_on_a_refusing_node_would_get_another_index_then_it_is_planned_elsewhere() -> None:
    # Worker 0 is lost, so worker 1 would become worker 0: a new pod, which n1 refuses.
    job = a_job("a", max_replicas=8, refusals={"n1": FULL}, workers={1: "n1"})
    nodes = (a_node("n1"), a_node("n2", gpus=1))
    assert placed({"a": ("lost", "n1")}, job, nodes=nodes, replicas={"a": 2}, placer=Steady()) == {"a": ("n2", "n1")}
    full = (a_node("n1"), a_node("n3", gpus=1, foreign_gpus=1))
    assert placed({"a": ("lost", "n1")}, job, nodes=full, replicas={"a": 2}, placer=Steady()) == {}


def test_steady_when_a_node_refuses_a_spanning_job_then_it_does_not_come_together_there() -> None:
    job = a_job("a", max_replicas=8, refusals={"n1": FULL}, workers=at("n1", "n2"))
    assert placed({"a": ("n1", "n2")}, job, replicas={"a": 2}, placer=Steady()) == {"a": ("n2", "n2")}


def test_steady_when_room_is_made_for_a_large_worker_then_not_on_a_node_that_refuses_it() -> None:
    large = a_job("large", gpus_per_replica=4, refusals={"n1": FULL})
    small = [a_job(name, workers={0: node}, submitted_at=1.0) for name, node in (("s1", "n1"), ("s2", "n2"))]
    answer = placed(
        {"s1": ("n1",), "s2": ("n2",)}, large, *small, replicas={"large": 1, "s1": 1, "s2": 1}, placer=Steady()
    )
    assert answer == {"s1": ("n1",), "s2": ("n1",), "large": ("n2",)}


def test_packed_when_copies_are_mapped_then_no_copy_comes_to_a_node_that_refuses_one_of_its_jobs() -> None:
    in_force: Placement = {"a": ("n1",) * 3}
    job = a_job("a", max_replicas=8, refusals={"n1": FULL})
    assert placed(in_force, job, replicas={"a": 3}, placer=Packed()) == {"a": ("n2",) * 3}


@ALL
def test_placers_when_workers_are_at_work_on_a_node_that_refuses_their_job_then_they_stay(placer: Placer) -> None:
    in_force: Placement = {"a": ("n1",) * 3, "b": ("n2",)}
    jobs = [a_job("a", max_replicas=3, refusals={"n1": FULL}, workers=at("n1", "n1", "n1")), a_job("b", max_replicas=4)]
    assert placed(in_force, *jobs, replicas={"a": 3, "b": 4}, placer=placer) == {"a": ("n1",) * 3, "b": ("n2",) * 4}


def test_room_when_nodes_refuse_a_job_then_it_is_that_of_the_others_and_of_workers_at_work() -> None:
    view = a_state(nodes=[a_node("n1"), a_node("n2"), a_node("n3", is_ready=False)])
    job = a_job("a", refusals={"n1": FULL, "n3": FULL, "gone": FULL}, workers={0: "n1"})
    assert room_for(view, job) == 4 + 1


def test_refusal_that_is_told_is_that_of_the_node_with_most_gpus() -> None:
    view = a_state(nodes=[a_node("n1", gpus=2), a_node("n2", gpus=8), a_node("n3", gpus=8)])
    job = a_job("a", refusals={"n1": "a taint", "n3": "a selector", "n2": FULL})
    assert refused_text(largest_refusal(view, job)) == f"n2: {FULL}; 2 more refuse it"


# ---- nodes that take a number


@ALL
def test_placers_when_a_node_takes_a_number_then_so_many_are_there_and_others_elsewhere(placer: Placer) -> None:
    job = a_job("a", max_replicas=8, refusals={"n1": FULL}, fits={"n1": 3})
    answer = placed({}, job, nodes=(a_node("n1"), a_node("n2", gpus=2)), replicas={"a": 8}, placer=placer)
    assert sorted(answer["a"]) == ["n1"] * 3 + ["n2"] * 2


@ALL
@pytest.mark.parametrize("at_work", [{}, {1: "n1", 2: "n1", 3: "n1"}])
def test_placers_when_a_node_takes_a_number_then_its_lowest_indices_are_there_whichever_it_refused(
    placer: Placer, at_work: Mapping[int, str]
) -> None:
    job = a_job("a", max_replicas=4, refusals={"n1": FULL}, fits={"n1": 3}, workers=at_work)
    answer = placed({"a": ("n1",) * 4}, job, nodes=(a_node("n1"),), replicas={"a": 4}, placer=placer)
    assert answer == {"a": ("n1",) * 3}


def test_steady_when_a_node_takes_all_but_some_then_those_at_work_do_not_go_where_all_might_fit() -> None:
    at_work = dict.fromkeys((0, 2, 3), "n1")
    job = a_job("a", max_replicas=4, refusals={"n1": FULL}, fits={"n1": 3}, workers=at_work)
    answer = placed({"a": ("n1",) * 4}, job, replicas={"a": 4}, placer=Steady())
    assert answer == {"a": ("n1", "n2", "n1", "n1")}
    spread = a_job("a", max_replicas=4, refusals={"n1": FULL}, fits={"n1": 3}, workers=at(*answer["a"]))
    assert placed(answer, spread, replicas={"a": 4}, placer=Steady()) == answer


def test_steady_when_two_nodes_refuse_some_then_gaps_are_filled_by_the_highest_indices_alone() -> None:
    nodes = (a_node("n1", gpus=8), a_node("n2", gpus=8))
    refused = (3, 5, 9, 12)
    at_work = {index: "n1" if index < 8 else "n2" for index in range(16) if index not in refused}
    job = a_job("a", max_replicas=16, refusals={"n1": FULL, "n2": FULL}, fits={"n1": 6, "n2": 6}, workers=at_work)
    in_force: Placement = {"a": ("n1",) * 8 + ("n2",) * 8}
    answer = placed(in_force, job, nodes=nodes, replicas={"a": 16}, placer=Steady())["a"]
    assert len(answer) == 12
    assert {index: node for index, node in enumerate(answer) if at_work.get(index) != node} == dict.fromkeys(
        (3, 5, 9), "n2"
    )


def test_room_when_a_node_takes_a_number_then_it_is_that_or_what_is_at_work() -> None:
    view = a_state(nodes=[a_node("n1"), a_node("n2")])
    job = a_job("a", refusals={"n1": FULL, "n2": FULL}, fits={"n1": 3, "n2": 0}, workers={0: "n2"})
    assert room_for(view, job) == 3 + 1
    assert refused_text(largest_refusal(view, job)) == f"n1 takes 3 of its workers: {FULL}; 1 more refuses it"


# ---- the anchor of a PyTorchJob


def test_steady_when_a_pytorchjob_outgrows_its_node_then_worker_0_stays() -> None:
    jobs = [torch(workers={0: "n1"}), a_job("b", workers=at("n1", "n1", "n1"))]
    in_force: Placement = {"t": ("n1",), "b": ("n1",) * 3}
    assert placed(in_force, *jobs, replicas={"t": 2, "b": 3}, placer=Steady())["t"] == ("n1", "n2")


def test_steady_when_a_pytorchjob_spans_then_it_comes_together_where_worker_0_is_or_not_at_all() -> None:
    in_force: Placement = {"t": ("n1", "n2", "n2")}
    spread = torch(workers=at("n1", "n2", "n2"))
    assert placed(in_force, spread, replicas={"t": 3}, placer=Steady()) == {"t": ("n1",) * 3}
    full = a_job("b", workers=at("n1", "n1"))
    answer = placed({**in_force, "b": ("n1", "n1")}, spread, full, replicas={"t": 3, "b": 2}, placer=Steady())
    assert answer["t"] == ("n1", "n2", "n2")


def test_steady_when_a_pytorchjob_is_not_at_work_yet_then_all_of_it_moves_for_nothing() -> None:
    in_force: Placement = {"t": ("n1", "n2", "n2"), "b": ("n1", "n1")}
    full = a_job("b", workers=at("n1", "n1"))
    assert placed(in_force, torch(), full, replicas={"t": 3, "b": 2}, placer=Steady())["t"] == ("n2",) * 3


def test_steady_when_the_node_of_worker_0_is_lost_then_it_moves() -> None:
    job = torch(workers=at("lost", "n1"))
    assert placed({"t": ("lost", "n1")}, job, replicas={"t": 2}, placer=Steady()) == {"t": ("n1", "n1")}


def test_steady_when_a_node_shrinks_then_the_anchor_gives_way_after_others_of_its_size() -> None:
    jobs = [torch(workers={0: "n1"}), a_job("b", max_replicas=8, workers=at("n1", "n1", "n1"))]
    nodes = (a_node("n1", foreign_gpus=3), a_node("n2"))
    answer = placed({"t": ("n1",), "b": ("n1",) * 3}, *jobs, nodes=nodes, replicas={"t": 1, "b": 3}, placer=Steady())
    assert answer == {"t": ("n1",), "b": ("n2",) * 3}


def test_steady_when_only_an_anchor_is_in_the_way_of_a_large_worker_then_the_large_one_waits() -> None:
    jobs = [a_job("large", gpus_per_replica=4), torch(workers={0: "n1"}), a_job("s", workers={0: "n2"})]
    in_force: Placement = {"t": ("n1",), "s": ("n2",)}
    sizes = {"large": 1, "t": 1, "s": 1}
    assert placed(in_force, *jobs, replicas=sizes, placer=Steady()) == {
        "t": ("n1",),
        "s": ("n1",),
        "large": ("n2",),
    }
    both = [jobs[0], jobs[1], torch("s", workers={0: "n2"})]
    assert placed(in_force, *both, replicas=sizes, placer=Steady()) == in_force


def test_packed_when_a_copy_can_be_mapped_either_way_then_worker_0_of_a_pytorchjob_stays() -> None:
    # Two copies of two GPUs; without the anchor the three of `b` that stay would decide.
    nodes = (a_node("n1", gpus=4), a_node("n2", gpus=4))
    jobs = [torch(workers=at("n1", "n1")), a_job("b", max_replicas=8, workers=at("n2", "n2", "n2"))]
    in_force: Placement = {"t": ("n1", "n1"), "b": ("n2",) * 3}
    assert placed(in_force, *jobs, nodes=nodes, replicas={"t": 2, "b": 3}, placer=Packed())["t"] == ("n1", "n1")


def test_steady_when_coming_together_would_not_pay_without_moving_worker_0_then_nothing_moves() -> None:
    state = a_state(
        jobs=[torch(workers=at("n1", "n2"))],
        nodes=[a_node("n1", gpus=1), a_node("n2")],
        placement={"t": ("n1", "n2")},
        estimates={"t": Estimate(speedup=linear_speedup(8), remaining_s=1e9, span_penalty=0.5, resize_cost_s=1.0)},
    )
    assert Steady().place(state, {"t": 2}, 0.0) == {"t": ("n1", "n2")}

"""What is special about `steady`: who stays, who moves, and when coming together pays."""

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_job, a_node, a_state
from voda.domain.plan import Placement
from voda.domain.state import Estimate, linear_speedup
from voda.placement.steady import Steady

TWO_NODES = [a_node("n1"), a_node("n2")]


def placed(
    placement: Placement,
    replicas: dict[str, int],
    *,
    nodes: int = 2,
    estimates: dict[str, Estimate] | None = None,
) -> Placement:
    """Place jobs of one worker up to eight on nodes of four GPUs; those in force are observed running."""
    jobs = [a_job(job_id, max_replicas=8, workers=dict(enumerate(placement.get(job_id, ())))) for job_id in replicas]
    state = a_state(
        jobs=jobs,
        nodes=[a_node(f"n{index}") for index in range(1, nodes + 1)],
        placement=placement,
        estimates=estimates or {},
    )
    return Steady().place(state, replicas, 0.0)


def an_estimate(*, remaining_s: float, span_penalty: float = 0.1, resize_cost_s: float = 60.0) -> Estimate:
    return Estimate(
        speedup=linear_speedup(8), remaining_s=remaining_s, span_penalty=span_penalty, resize_cost_s=resize_cost_s
    )


def test_steady_when_a_job_shrinks_then_the_highest_indices_go() -> None:
    assert placed({"a": ("n2", "n1", "n1")}, {"a": 1}) == {"a": ("n2",)}


def test_steady_when_a_job_grows_then_it_grows_on_its_own_node() -> None:
    assert placed({"a": ("n2",), "b": ("n1",)}, {"a": 3, "b": 1}) == {"a": ("n2",) * 3, "b": ("n1",)}


def test_steady_when_a_job_starts_then_it_gets_the_node_with_least_sufficient_room() -> None:
    in_force: Placement = {"b": ("n2", "n2")}
    assert placed(in_force, {"a": 2, "b": 2})["a"] == ("n2", "n2")
    assert placed(in_force, {"a": 3, "b": 2})["a"] == ("n1",) * 3


def test_steady_when_its_node_is_full_then_a_growing_job_moves_whole_to_one_with_room() -> None:
    assert placed({"a": ("n1",), "b": ("n1",) * 3}, {"a": 2, "b": 3})["a"] == ("n2", "n2")


def test_steady_when_no_node_has_room_then_a_growing_job_spans_and_its_workers_stay() -> None:
    in_force: Placement = {"a": ("n1", "n1"), "b": ("n1", "n1"), "c": ("n2",)}
    assert placed(in_force, {"a": 4, "b": 2, "c": 1})["a"] == ("n1", "n1", "n2", "n2")


def test_steady_when_a_job_is_larger_than_any_node_then_it_takes_whole_nodes_first() -> None:
    assert placed({"b": ("n1",)}, {"a": 6, "b": 1}, nodes=3)["a"] == ("n2",) * 4 + ("n1",) * 2


def test_steady_when_a_node_is_lost_then_only_its_workers_move() -> None:
    in_force: Placement = {"a": ("n9", "n1"), "b": ("n2",)}
    assert placed(in_force, {"a": 2, "b": 1}) == {"a": ("n1", "n1"), "b": ("n2",)}


def test_steady_when_a_node_shrinks_then_the_job_with_least_there_gives_way() -> None:
    jobs = [a_job("a", max_replicas=8), a_job("b")]
    nodes = [a_node("n1", foreign_gpus=1), a_node("n2")]
    state = a_state(jobs=jobs, nodes=nodes, placement={"a": ("n1",) * 3, "b": ("n1",)})
    assert Steady().place(state, {"a": 3, "b": 1}, 0.0) == {"a": ("n1",) * 3, "b": ("n2",)}


def test_steady_when_the_time_saved_exceeds_the_move_then_a_spanning_job_comes_together() -> None:
    spanning: Placement = {"a": ("n1", "n2")}
    # Two workers left 2000 s / 2 = 1000 s, of which a tenth is saved; one worker moves for 60 s.
    assert placed(spanning, {"a": 2}, estimates={"a": an_estimate(remaining_s=2000)}) == {"a": ("n1", "n1")}
    assert placed(spanning, {"a": 2}, estimates={"a": an_estimate(remaining_s=1000)}) == spanning


def test_steady_when_all_workers_would_move_then_the_launcher_counts_as_well() -> None:
    in_force: Placement = {"a": ("n1", "n2"), "b": ("n1",) * 3, "c": ("n2",) * 3}
    sizes = {"a": 2, "b": 3, "c": 3}
    assert placed(in_force, sizes, nodes=3, estimates={"a": an_estimate(remaining_s=2000)}) == in_force
    assert placed(in_force, sizes, nodes=3, estimates={"a": an_estimate(remaining_s=3000)})["a"] == ("n3", "n3")


def test_steady_when_spanning_costs_nothing_then_nobody_moves_for_it() -> None:
    spanning: Placement = {"a": ("n1", "n2")}
    free_of_cost = an_estimate(remaining_s=float("inf"), span_penalty=0.0, resize_cost_s=0.0)
    assert placed(spanning, {"a": 2}, estimates={"a": free_of_cost}) == spanning


def test_steady_when_one_move_makes_room_for_another_then_both_are_made() -> None:
    in_force: Placement = {"a": ("n1", "n1", "n2", "n2"), "b": ("n2", "n2", "n1", "n1")}
    assert placed(in_force, {"a": 4, "b": 4}, nodes=3) == {"a": ("n3",) * 4, "b": ("n1",) * 4}


def test_steady_when_a_large_worker_fits_nowhere_then_smaller_ones_make_room_for_it() -> None:
    jobs = [a_job("small1"), a_job("small2", submitted_at=1.0), a_job("large", gpus_per_replica=4)]
    in_force: Placement = {"small1": ("n1",), "small2": ("n2",)}
    state = a_state(jobs=jobs, nodes=TWO_NODES, placement=in_force)
    answer = Steady().place(state, {"small1": 1, "small2": 1, "large": 1}, 0.0)
    assert answer == {"small1": ("n2",), "small2": ("n2",), "large": ("n1",)}


def test_steady_when_making_room_would_cost_another_job_a_worker_then_the_large_one_waits() -> None:
    jobs = [a_job("wide", max_replicas=5), a_job("large", gpus_per_replica=4)]
    in_force: Placement = {"wide": ("n1", "n1", "n1", "n2", "n2")}
    state = a_state(jobs=jobs, nodes=TWO_NODES, placement=in_force)
    assert Steady().place(state, {"wide": 5, "large": 1}, 0.0) == in_force


def test_steady_when_workers_of_the_same_size_are_in_the_way_then_they_stay() -> None:
    jobs = [a_job("first", gpus_per_replica=3), a_job("second", gpus_per_replica=3)]
    state = a_state(jobs=jobs, nodes=[a_node("n1", gpus=5)], placement={"first": ("n1",)})
    assert Steady().place(state, {"first": 1, "second": 1}, 0.0) == {"first": ("n1",)}


@given(sizes=st.lists(st.integers(1, 4), max_size=8))
def test_steady_when_nothing_changed_then_nothing_moves(sizes: list[int]) -> None:
    """Each job on a node of its own: no goal but steadiness, and packing would move almost all of them."""
    in_force: Placement = {f"j{index}": (f"n{index + 1}",) * size for index, size in enumerate(sizes)}
    replicas = {job_id: len(nodes) for job_id, nodes in in_force.items()}
    assert placed(in_force, replicas, nodes=8) == in_force

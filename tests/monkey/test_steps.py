"""What the random user does comes from the seed alone, and makes sense."""

import random
from itertools import islice

from tests.monkey.faults import FaultyHands
from tests.monkey.steps import _ACTS, ENDS, KINDS, MOST_JOBS, PARTS, SEEDS, Model, Step, draw, node_names, steps


def test_a_seed_gives_the_same_steps_again_and_another_seed_others() -> None:
    assert list(islice(steps(7), 300)) == list(islice(steps(7), 300))
    assert list(islice(steps(7), 300)) != list(islice(steps(8), 300))


def test_every_act_is_drawn_in_time_and_somebody_can_do_it() -> None:
    drawn = {step.act for step in islice(steps(1), 1_000)}
    assert drawn == {act for _, act, _ in _ACTS}
    assert ENDS.keys() <= drawn
    assert all(callable(getattr(FaultyHands, act)) for act in drawn)


def test_the_seeds_of_every_commit_have_every_kind_act_and_part() -> None:
    drawn = [step for seed in SEEDS for step in islice(steps(seed), 60)]
    assert {act for _, act, _ in _ACTS} == {step.act for step in drawn}
    assert set(PARTS) == {step.target for step in drawn if step.act == "restart"}
    assert {step.shape.kind for step in drawn if step.shape} == set(KINDS)


def test_steps_are_about_what_is_there() -> None:
    jobs, cordoned, lost, removed = set[str](), set[str](), set[str](), set[str]()
    for step in islice(steps(3), 2_000):
        assert step.target not in removed or step.act == "add_node"
        match step.act:
            case "submit":
                assert step.target not in jobs
                jobs.add(step.target)
            case "finish" | "delete_job":
                jobs.remove(step.target)
            case "cordon" | "drain":
                assert step.target not in cordoned
                cordoned.add(step.target)
            case "uncordon":
                cordoned.remove(step.target)
            case "lose_node":
                lost.add(step.target)
            case "restore_node":
                lost.remove(step.target)
            case "remove_node":
                removed.add(step.target)
                lost.discard(step.target)
                cordoned.discard(step.target)
            case "add_node":
                removed.remove(step.target)
        assert len(jobs) <= MOST_JOBS
        assert len(lost) <= (len(node_names()) - len(removed)) // 2 or step.act != "lose_node"
        assert len(removed) <= 2


def test_of_a_cluster_where_nothing_else_can_be_drawn_something_is() -> None:
    model = Model(jobs=[f"job-{index}" for index in range(MOST_JOBS)], removed=set(node_names()))
    drawn = {draw(random.Random(seed), model).act for seed in range(200)}
    assert "submit" not in drawn
    assert {"add_node", "kill_voda", "restart", "finish"} <= drawn


def test_a_step_says_in_one_line_what_it_is() -> None:
    assert str(Step("evict", "job-3", 2)) == "evict job-3 2"

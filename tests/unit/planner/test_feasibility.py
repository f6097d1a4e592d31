"""Which jobs a decision leaves out for want of room, in one round."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from tests.reasons import said, sentences
from voda.placement import PLACERS
from voda.planner.feasibility import shortfall
from voda.policies import POLICIES

ROOMLESS: Mapping[str, Any] = {"gpus_per_replica": 2, "min_replicas": 2, "max_replicas": 4, "priority": 1}


@pytest.mark.parametrize(
    ("changes", "is_left_out"),
    [
        ({}, True),
        ({"gpus_per_replica": 3}, True),
        ({"gpus_per_replica": 1}, False),
        ({"min_replicas": 3}, True),
        ({"min_replicas": 1}, False),
        ({"priority": 0}, True),
        ({"priority": 2}, False),
        ({"is_canceling": True}, False),
    ],
)
def test_waiting_job_is_left_out_with_one_that_finds_no_room_where_it_is_no_easier_to_place(
    changes: Mapping[str, Any], is_left_out: bool
) -> None:
    jobs = [a_job("roomless", **ROOMLESS), a_job("other", **{**ROOMLESS, **changes})]
    view = a_state(jobs=jobs, nodes=[a_node(f"n{number}", gpus=1) for number in range(8)])
    short = shortfall(view, {"roomless": 2, "other": 0}, {})
    assert sentences(short.reasons) == {"roomless": "waits: the free GPUs are too scattered for 2 workers of 2 GPUs"}
    assert short.left_out.keys() == ({"roomless", "other"} if is_left_out else {"roomless"})


def test_job_that_is_placed_or_in_force_is_not_left_out_with_one_that_finds_no_room() -> None:
    jobs = [a_job(job_id, **ROOMLESS) for job_id in ("roomless", "placed", "in-force")]
    nodes = [a_node(f"n{number}", gpus=2) for number in range(3)]
    view = a_state(jobs=jobs, nodes=nodes, placement={"in-force": ("n2",)})
    short = shortfall(view, {"roomless": 2, "placed": 2}, {"placed": ("n0", "n1")})
    assert short.left_out.keys() == {"roomless"}


def test_gpus_that_are_too_scattered_for_one_job_go_to_another() -> None:
    jobs = [
        a_job("wide", gpus_per_replica=2, max_replicas=4, priority=1),
        a_job("small", max_replicas=4, submitted_at=5.0),
        a_job("last", max_replicas=4, submitted_at=6.0),
    ]
    view = a_state(jobs=jobs, nodes=[a_node("n1", gpus=3), a_node("n2", gpus=1), a_node("n3", gpus=2)])
    policy, placer = POLICIES.choose("elastic-fifo"), PLACERS.choose("steady")
    plan = decide(view, policy, placer, 10.0, cause="tick")
    assert {job_id: len(nodes) for job_id, nodes in plan.placement.items()} == {"wide": 2, "small": 1, "last": 1}
    assert said(plan.reasons["wide"]) == "runs with 2 workers: the free GPUs are too scattered for 3 workers of 2 GPUs"


def test_job_that_nodes_refuse_leaves_out_no_other() -> None:
    jobs = [a_job("refused", refusals={"n0": "no room for 64 CPUs"}, **ROOMLESS), a_job("other", **ROOMLESS)]
    view = a_state(jobs=jobs, nodes=[a_node("n0", gpus=8)])
    assert shortfall(view, {"refused": 2, "other": 0}, {}).left_out.keys() == {"refused"}

"""Jobs that few nodes take get their minimum, and then their share, where others shrink or move for them."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from voda.domain.job import Job
from voda.domain.node import Node, PodNeeds
from voda.domain.plan import Placement
from voda.placement import PLACERS
from voda.policies import POLICIES

WHY = "label does not match"
ALL = pytest.mark.parametrize("placer", PLACERS)
NODES = (a_node("n1", gpus=8), a_node("n2", gpus=8))


def planned(
    *jobs: Job, placer: str, policy: str = "elastic-fifo", nodes: tuple[Node, ...] = NODES
) -> Mapping[str, tuple[str, ...]]:
    in_force: Placement = {job.spec.job_id: tuple(job.workers.values()) for job in jobs if job.workers}
    view = a_state(jobs=jobs, nodes=nodes, placement=in_force)
    return decide(view, POLICIES.choose(policy), PLACERS.choose(placer), 100.0, cause="tick").placement


def at_work(job_id: str, *nodes: str, **fields: Any) -> Job:
    return a_job(job_id, workers=dict(enumerate(nodes)), **fields)


def only_on_n1(job_id: str, **fields: Any) -> Job:
    return a_job(job_id, **{"submitted_at": 5.0, "max_replicas": 8, "refusals": {"n2": WHY}, **fields})


@ALL
@pytest.mark.parametrize("policy", ["elastic-fifo", "elastic-srjf", "ffdl", "afs-l"])
def test_job_when_only_one_node_takes_it_and_another_job_has_all_then_that_shrinks_there(
    policy: str, placer: str
) -> None:
    wide = at_work("wide", *["n1"] * 8, *["n2"] * 8, max_replicas=16, requested_replicas=16)
    placement = planned(wide, only_on_n1("narrow"), policy=policy, placer=placer)
    assert set(placement["narrow"]) == {"n1"}
    assert placement["wide"].count("n2") == 8
    assert len(placement["narrow"]) + len(placement["wide"]) == 16


@ALL
def test_jobs_when_they_are_confined_to_one_node_then_they_share_it_and_others_have_the_rest(placer: str) -> None:
    wide = at_work("wide", *["n1"] * 8, *["n2"] * 8, max_replicas=16)
    placement = planned(wide, only_on_n1("b"), only_on_n1("c", submitted_at=6.0), placer=placer)
    assert {job_id: len(nodes) for job_id, nodes in placement.items()} == {"wide": 8, "b": 4, "c": 4}


@ALL
def test_job_of_fixed_size_when_it_is_in_the_way_then_it_moves_where_there_is_room_and_else_stays(placer: str) -> None:
    rigid = at_work("rigid", *["n1"] * 8, min_replicas=8, max_replicas=8)
    narrow = only_on_n1("narrow", min_replicas=4)
    assert planned(rigid, narrow, placer=placer) == {"rigid": ("n2",) * 8, "narrow": ("n1",) * 8}
    other = at_work("other", *["n2"] * 8, min_replicas=8, max_replicas=8)
    assert planned(rigid, other, narrow, placer=placer) == {"rigid": ("n1",) * 8, "other": ("n2",) * 8}


@ALL
def test_job_of_higher_priority_when_it_can_use_all_then_it_leaves_nothing(placer: str) -> None:
    high = at_work("high", *["n1"] * 8, *["n2"] * 8, max_replicas=16, priority=5)
    assert planned(high, only_on_n1("narrow"), placer=placer) == {"high": ("n1",) * 8 + ("n2",) * 8}


@ALL
def test_job_of_lower_priority_when_it_is_where_another_can_go_alone_then_it_goes_elsewhere_or_ends(
    placer: str,
) -> None:
    low = at_work("low", *["n1"] * 4, min_replicas=4, max_replicas=4)
    full = at_work("full", *["n2"] * 8, min_replicas=8, max_replicas=8)
    narrow = only_on_n1("narrow", min_replicas=8, priority=5)
    assert planned(low, narrow, placer=placer) == {"low": ("n2",) * 4, "narrow": ("n1",) * 8}
    assert planned(low, full, narrow, placer=placer) == {"full": ("n2",) * 8, "narrow": ("n1",) * 8}


@ALL
def test_jobs_when_their_policy_gives_each_what_it_requests_then_none_shrinks_for_another(placer: str) -> None:
    wide = at_work("wide", *["n1"] * 8, *["n2"] * 4, max_replicas=16, requested_replicas=12)
    full = planned(wide, only_on_n1("narrow", max_replicas=1), policy="fifo", placer=placer)
    assert {job_id: len(nodes) for job_id, nodes in full.items()} == {"wide": 12, "narrow": 1}
    assert full["narrow"] == ("n1",)


@ALL
def test_job_when_others_use_up_the_cpus_of_a_node_beyond_their_minimum_then_they_leave_some(placer: str) -> None:
    nodes = (a_node("n1", gpus=8, room={"cpu": 64_000}),)
    hungry = at_work("hungry", *["n1"] * 6, max_replicas=6, needs=PodNeeds(requests={"cpu": 10_000}))
    other = a_job("other", needs=PodNeeds(requests={"cpu": 20_000}))
    placement = planned(hungry, other, nodes=nodes, placer=placer)
    assert placement == {"hungry": ("n1",) * 4, "other": ("n1",)}


@ALL
def test_jobs_when_one_stands_in_the_way_of_another_that_stands_in_the_way_then_both_move(placer: str) -> None:
    nodes = tuple(a_node(name, gpus=2) for name in ("n1", "n2", "n3"))
    a = at_work("a", "n1", "n1", min_replicas=2, max_replicas=2, refusals={"n3": WHY})
    b = at_work("b", "n2", "n2", min_replicas=2, max_replicas=2)
    narrow = only_on_n1("c", min_replicas=2, max_replicas=2, refusals={"n2": WHY, "n3": WHY})
    assert planned(a, b, narrow, nodes=nodes, placer=placer) == {
        "a": ("n2", "n2"),
        "b": ("n3", "n3"),
        "c": ("n1", "n1"),
    }

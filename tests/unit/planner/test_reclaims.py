"""Who is overdue: only a worker that the plan has no more, where a guaranteed one waits for its node."""

import math
from collections.abc import Mapping

from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from voda.domain.job import Job
from voda.domain.settings import Settings
from voda.domain.state import ClusterState
from voda.planner.eligibility import next_deadline_at, overdue_workers

NODES = tuple(a_node(name) for name in ("n1", "n2", "n3"))
ENDS_AT = 160.0
"""Of workers that are to leave since 100, with a grace of 60."""


def a_reclaim(
    *jobs: Job, placement: Mapping[str, tuple[str, ...]], guaranteed: Mapping[str, int], late: Mapping[str, int]
) -> ClusterState:
    """Return a pool in which the last `late` workers of jobs are to leave."""
    view = a_state(jobs=jobs, nodes=NODES, placement=placement, settings=Settings(reclaim_grace_s=60.0))
    quotas = {job_id: ("node",) * count for job_id, count in guaranteed.items()}
    reclaimed_at = {
        job_id: dict.fromkeys(sorted(view.jobs[job_id].workers)[-count:], 100.0) for job_id, count in late.items()
    }
    return replace(view, plan=replace(view.plan, guaranteed=quotas), reclaimed_at=reclaimed_at)


def a_borrower(**fields: object) -> Job:
    return a_job("lent", max_replicas=4, workers={0: "n1", 1: "n1", 2: "n2", 3: "n2"}, **fields)


def a_lent_node(borrower: Job, gang: Job, *, guaranteed: int = 1) -> ClusterState:
    """Return a pool in which `lent` is to leave n2, where the plan has `gang`."""
    placement = {"lent": ("n1", "n1"), "gang": ("n2",)}
    return a_reclaim(borrower, gang, placement=placement, guaranteed={"gang": guaranteed}, late={"lent": 2})


def test_worker_when_a_guarantee_waits_for_its_node_is_overdue_once_the_grace_is_over() -> None:
    view = a_lent_node(a_borrower(), a_job("gang"))
    assert (next_deadline_at(view, 100.0), next_deadline_at(view, ENDS_AT)) == (ENDS_AT, math.inf)
    assert overdue_workers(view, ENDS_AT - 0.1) == {}
    assert overdue_workers(view, ENDS_AT) == {"lent": 2}


def test_worker_when_no_guarantee_waits_for_its_node_has_time() -> None:
    there = a_lent_node(a_borrower(), a_job("gang", workers={0: "n2"}))
    done = a_lent_node(a_borrower(), a_job("gang", done=(0,)))
    canceled = a_lent_node(a_borrower(), a_job("gang", is_canceling=True))
    idle = a_lent_node(a_borrower(), a_job("gang"), guaranteed=0)
    assert [overdue_workers(view, ENDS_AT) for view in (there, done, canceled, idle)] == [{}] * 4
    elsewhere = a_lent_node(a_borrower(), a_job("gang"))
    elsewhere = replace(elsewhere, plan=replace(elsewhere.plan, placement={"lent": ("n1",), "gang": ("n3",)}))
    assert overdue_workers(elsewhere, ENDS_AT) == {}


def test_job_when_it_is_being_canceled_is_not_overdue() -> None:
    view = a_lent_node(a_borrower(is_canceling=True), a_job("gang"))
    assert (overdue_workers(view, ENDS_AT), next_deadline_at(view, 100.0)) == ({}, math.inf)


def test_grace_when_another_leader_takes_over_begins_anew() -> None:
    view = replace(a_lent_node(a_borrower(), a_job("gang")), led_at=150.0)
    assert (next_deadline_at(view, ENDS_AT), overdue_workers(view, 209.9)) == (210.0, {})
    assert overdue_workers(view, 210.0) == {"lent": 2}


def test_worker_when_it_is_in_the_way_of_one_that_has_to_move_is_overdue_and_the_other_is_not() -> None:
    """The gang waits for n1, where `moving` is; that waits for n2, which `lent` does not leave."""
    moving = a_job("moving", workers={0: "n1"})
    placement = {"gang": ("n1",), "moving": ("n2",), "lent": ("n3",)}
    lent = a_job("lent", max_replicas=2, workers={0: "n3", 1: "n2"})
    view = a_reclaim(lent, moving, a_job("gang"), placement=placement, guaranteed={"gang": 1}, late={"lent": 1})
    assert overdue_workers(view, ENDS_AT) == {"lent": 1}
    unneeded = replace(view, plan=replace(view.plan, placement={**placement, "gang": ("n3",)}))
    assert overdue_workers(unneeded, ENDS_AT) == {}

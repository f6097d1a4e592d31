"""Jobs that are not restartable: once begun they keep their workers whatever comes, and never begin a second time."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from tests.reasons import said
from tests.unit.planner.virtual_clusters.pools import (
    a_pool,
    guaranteed,
    reached,
    replanned,
    size,
    submitted,
)
from voda.domain.job import Job
from voda.domain.plan import Plan
from voda.domain.reasons.requests import Requested
from voda.domain.settings import Settings
from voda.domain.state import ClusterState
from voda.placement import PLACERS
from voda.policies import POLICIES

EAGER = Settings(heeds_resize_cost=False)
KEEPS = "keeps 2 workers: it is not restartable, so that nothing stops it but its owner"
CELLS = {"vision": {"node": 2}, "speech": {"node": 2}}
FOUR = tuple(a_node(f"n{index}") for index in range(1, 5))


def once(**fields: object) -> Job:
    """Return a job of two workers that has begun and is not restartable."""
    common = {"min_replicas": 1, "max_replicas": 4, "is_restartable": False, "first_started_at": 1.0}
    return a_job("once", **{**common, "workers": {0: "n1", 1: "n1"}, **fields})


def a_view(*others: Job, job: Job | None = None, nodes: int = 1, **fields: object) -> ClusterState:
    view = a_state(
        jobs=[job or once(), *others],
        nodes=[a_node(f"n{index}", **(fields if index == 1 else {})) for index in range(1, nodes + 1)],
        placement={"once": ("n1", "n1")},
        settings=EAGER,
    )
    return view


def planned(view: ClusterState, policy: str = "elastic-fifo", placer: str = "steady") -> Plan:
    return decide(view, POLICIES.choose(policy), PLACERS.choose(placer), 10.0, cause="tick")


@pytest.mark.parametrize("placer", ["steady", "packed"])
@pytest.mark.parametrize("policy", [*POLICIES])
def test_job_that_has_begun_keeps_its_workers_whatever_comes(policy: str, placer: str) -> None:
    rival = a_job("rival", priority=100, min_replicas=4, max_replicas=4)
    plan = planned(a_view(rival), policy, placer)
    assert plan.placement == {"once": ("n1", "n1")}
    assert said(plan.reasons["once"]) == KEEPS


@pytest.mark.parametrize("policy", [*POLICIES])
def test_others_share_what_it_leaves_and_it_grows_into_nothing(policy: str) -> None:
    plan = planned(a_view(a_job("other", min_replicas=1, max_replicas=2, requested_replicas=2), nodes=2), policy)
    assert (plan.placement["once"], len(plan.placement["other"])) == (("n1", "n1"), 2)


@pytest.mark.parametrize(
    "fields",
    [{"is_schedulable": False}, {"is_draining": True}, {"is_ready": False}, {"gpus": 1}],
    ids=lambda fields: next(iter(fields)),
)
def test_job_that_has_begun_stays_on_its_node_whatever_becomes_of_it(fields: dict[str, Any]) -> None:
    plan = planned(a_view(a_job("other"), nodes=2, **fields))
    assert plan.placement == {"once": ("n1", "n1"), "other": ("n2",)}


@pytest.mark.parametrize("policy", [*POLICIES])
def test_job_begins_with_what_it_requests_and_no_idle_surplus(policy: str) -> None:
    job = once(first_started_at=None, workers={}, max_replicas=1_000, requested_replicas=3)
    plan = planned(replace(a_view(job=job, nodes=8), plan=Plan(pool="default", number=1, based_on=9)), policy)
    assert len(plan.placement["once"]) == 3
    # It has no smaller size to begin with.
    small = planned(replace(a_view(job=job, gpus=2), plan=Plan(pool="default", number=1, based_on=9)), policy)
    assert small.placement == {}


def test_jobs_of_one_user_beyond_what_the_pool_lets_them_have_wait_and_say_so() -> None:
    common = {"is_restartable": False, "user": "ann", "max_replicas": 8}
    coming = (
        a_job("later", **common, submitted_at=2.0),
        a_job("first", **common, submitted_at=1.0, requested_replicas=2),
        a_job("of-another", **{**common, "user": "bob"}, requested_replicas=4),
        a_job("restartable", user="ann", max_replicas=1),
        a_job("large", **common, priority=9, requested_replicas=5),
    )
    view = a_view(*coming, job=once(user="ann"), nodes=8)
    bounded = planned(replace(view, settings=replace(EAGER, most_user_fixed_gpus=4)))
    assert {name: len(nodes) for name, nodes in bounded.placement.items()} == {
        "once": 2,
        "first": 2,
        "of-another": 4,
        "restartable": 1,
    }
    rule = "waits: its user's jobs that are not restartable may have 4 GPUs together: others have"
    assert said(bounded.reasons["later"]) == f"{rule} 4, or go first, and it needs 1"
    assert said(bounded.reasons["large"]) == f"{rule} 2, or go first, and it needs 5"
    assert len(planned(view).placement) == 6


def test_job_that_has_not_begun_is_stopped_as_any_other() -> None:
    rival = a_job("rival", priority=100, min_replicas=4, max_replicas=4)
    plan = planned(a_view(rival, job=once(first_started_at=None, workers={})))
    assert plan.placement == {"rival": ("n1",) * 4}


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        ({"loss": "evicted", "workers": {0: "n1"}}, "evicted"),
        ({"interruption": "node_lost", "workers": {}}, "node lost"),
        ({"interruption": "preempted", "workers": {}}, "preempted"),
    ],
)
def test_job_that_has_lost_a_worker_gets_none_any_more(lost: dict[str, object], why: str) -> None:
    plan = planned(a_view(job=once(**lost)))
    assert plan.placement == {}
    assert said(plan.reasons["once"]) == f"waits: it is not restartable, and has lost its workers ({why})"


def test_job_whose_replicas_finish_one_by_one_keeps_the_others() -> None:
    job = once(kind="Job", workers={1: "n1"}, done=(0,), done_of=2)
    plan = planned(a_view(a_job("other", max_replicas=4), job=job))
    assert plan.placement["once"] == ("n1", "n1")
    assert len(plan.placement["other"]) == 3


def test_job_that_is_canceled_leaves() -> None:
    assert planned(a_view(job=once(is_canceling=True))).placement == {}


def test_job_whose_halt_came_first_does_not_begin() -> None:
    job = once(first_started_at=None, workers={}, halt=Requested())
    assert planned(a_view(job=job)).placement == {}


# ---- in pools with virtual clusters


def begun(state: ClusterState) -> ClusterState:
    """Return the state once the plan is carried out and the program of `once` has begun."""
    state = reached(state)
    return replace(state, jobs={**state.jobs, "once": replace(state.jobs["once"], first_started_at=1.0)})


def test_job_begins_within_a_guarantee_alone() -> None:
    state = submitted(
        a_pool(CELLS, nodes=FOUR), "once", "vision", max_replicas=16, requested_replicas=8, is_restartable=False
    )
    state = replanned(state)
    assert (size(state, "once"), guaranteed(state, "once")) == (8, 8)
    state = submitted(state, "lent", "vision", priority=-1, is_restartable=False)
    assert size(replanned(state), "lent") == 0


def test_guaranteed_job_that_has_begun_gives_way_to_no_priority_and_no_drain() -> None:
    state = submitted(
        a_pool(CELLS, nodes=FOUR), "once", "vision", max_replicas=8, requested_replicas=8, is_restartable=False
    )
    before = begun(replanned(state))
    state = submitted(before, "rival", "vision", priority=100, min_replicas=4, max_replicas=8)
    state = submitted(state, "other", "speech", min_replicas=8, max_replicas=8)
    node = before.plan.placement["once"][0]
    state = replace(state, nodes={**state.nodes, node: replace(state.nodes[node], is_draining=True)})
    after = replanned(state)
    for part in ("placement", "guaranteed", "devices"):
        assert getattr(after.plan, part)["once"] == getattr(before.plan, part)["once"]
    assert (size(after, "rival"), size(after, "other")) == (0, 8)
    assert replanned(reached(after)).plan.placement == after.plan.placement

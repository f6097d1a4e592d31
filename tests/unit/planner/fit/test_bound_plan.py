"""Where jobs are bound to nodes, by labels or by a scarce resource, the policy's order holds as in any other pool."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from voda.domain.job import Job
from voda.domain.node import Node, PodNeeds
from voda.domain.plan import Plan
from voda.domain.reasons.policies import UserTurns
from voda.domain.settings import Settings
from voda.domain.state import ClusterState, Estimate, UserService, linear_speedup
from voda.placement import PLACERS
from voda.policies import POLICIES, gives_as_requested, weighs_restarts

DAY_S = 86_400
NOW = 100_000.0
NONE = PodNeeds()
LABELED = PodNeeds(selector={"a": "1"})
CPUS = PodNeeds(requests={"cpu": 8_000})
ONE = [a_node("n1", gpus=8)]
BOUND = {
    "labels": (LABELED, [a_node("n1", gpus=8, labels={"a": "1"}), a_node("n2", gpus=8)]),
    "a scarce resource": (CPUS, [a_node("n1", gpus=16, room={"cpu": 64_000, "pods": 110_000})]),
}
PREEMPTS = [name for name in POLICIES if name not in {"fifo", "elastic-fifo", "ffdl"}]

Cluster = tuple[PodNeeds, list[Node]]


@pytest.fixture(params=BOUND)
def bound(request: pytest.FixtureRequest) -> Cluster:
    """Return what workers need, and nodes that take 8 of them."""
    return BOUND[request.param]


def planned(view: ClusterState, policy: str, placer: str) -> Plan:
    return decide(view, POLICIES[policy], PLACERS[placer], NOW, cause="test")


def sizes(plan: Plan) -> Mapping[str, int]:
    return {job_id: len(nodes) for job_id, nodes in plan.placement.items()}


def a_view(cluster: Cluster, jobs: list[Job], **fields: Any) -> ClusterState:
    needs, nodes = cluster
    jobs = [replace(job, spec=replace(job.spec, needs=needs)) for job in jobs]
    placement = {job.spec.job_id: tuple(job.workers.values()) for job in jobs if job.workers}
    return a_state(jobs=jobs, nodes=nodes, placement=placement, **fields)


def two_users(cluster: Cluster, least: int) -> ClusterState:
    """Return the job of a user that has had all GPUs for long, and one of another that waits."""
    size: dict[str, int] = {"min_replicas": least, "max_replicas": 8, "requested_replicas": 8}
    ann = a_job("ann", user="ann", workers=dict.fromkeys(range(8), "n1"), **size)
    bob = a_job("bob", user="bob", submitted_at=5.0, **size)
    view = a_view(cluster, [ann, bob], settings=Settings(fair_share="users"))
    return replace(view, service={"ann": UserService(gpu_s=8.0 * 20 * DAY_S, at=NOW)})


@pytest.mark.parametrize("placer", PLACERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_user_who_waits_when_another_has_had_the_nodes_for_long_then_has_them_next(
    policy: str, placer: str, bound: Cluster
) -> None:
    plan = planned(two_users(bound, least=8), policy, placer)
    assert sizes(plan) == {"bob": 8} == sizes(planned(two_users((NONE, ONE), least=8), policy, placer))
    assert isinstance(plan.reasons["ann"].why[0], UserTurns)


@pytest.mark.parametrize("placer", PLACERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_user_who_waits_when_another_has_had_the_nodes_for_two_jobs_then_has_them_next_for_one(
    policy: str, placer: str, bound: Cluster
) -> None:
    half: dict[str, int] = {"min_replicas": 4, "max_replicas": 4, "requested_replicas": 4}
    jobs = [a_job(name, user="ann", workers=dict.fromkeys(range(4), "n1"), **half) for name in ("ann-1", "ann-2")]
    jobs.append(a_job("bob", user="bob", submitted_at=5.0, min_replicas=8, max_replicas=8, requested_replicas=8))
    for cluster in (bound, (NONE, ONE)):
        view = a_view(cluster, jobs, settings=Settings(fair_share="users"))
        view = replace(view, service={"ann": UserService(gpu_s=8.0 * 20 * DAY_S, at=NOW)})
        assert sizes(planned(view, policy, placer)) == {"bob": 8}


@pytest.mark.parametrize("placer", PLACERS)
@pytest.mark.parametrize("policy", [name for name, each in POLICIES.items() if not weighs_restarts(each)])
def test_users_when_their_jobs_are_elastic_then_they_share_the_nodes(policy: str, placer: str, bound: Cluster) -> None:
    plan = planned(two_users(bound, least=1), policy, placer)
    expected = {"bob": 8} if gives_as_requested(POLICIES[policy]) else {"ann": 1, "bob": 7}
    assert sizes(plan) == expected == sizes(planned(two_users((NONE, ONE), least=1), policy, placer))


@pytest.mark.parametrize("placer", PLACERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_short_job_when_a_long_one_has_the_nodes_then_the_policy_says_who_has_them(
    policy: str, placer: str, bound: Cluster
) -> None:
    size: dict[str, int] = {"min_replicas": 8, "max_replicas": 8, "requested_replicas": 8}
    long = a_job("long", workers=dict.fromkeys(range(8), "n1"), queue_level=3, **size)
    jobs = [long, a_job("short", submitted_at=5.0, **size)]
    left_s = {"long": 8e6, "short": 800.0}
    estimates = {name: Estimate(speedup=linear_speedup(8), remaining_s=left) for name, left in left_s.items()}
    expected = {"short": 8} if policy in PREEMPTS else {"long": 8}
    for cluster in (bound, (NONE, ONE)):
        assert sizes(planned(a_view(cluster, jobs, estimates=estimates), policy, placer)) == expected


@pytest.mark.parametrize("placer", PLACERS)
@pytest.mark.parametrize("policy", [name for name in POLICIES if not gives_as_requested(POLICIES[name])])
def test_elastic_jobs_when_one_has_nearly_all_then_they_share_as_the_policy_says(
    policy: str, placer: str, bound: Cluster
) -> None:
    size: dict[str, int] = {"min_replicas": 1, "max_replicas": 8, "requested_replicas": 4}
    much = a_job("much", workers=dict.fromkeys(range(7), "n1"), **size)
    little = a_job("little", workers={0: "n1"}, submitted_at=1.0, **size)
    plain = planned(a_view((NONE, ONE), [much, little]), policy, placer)
    assert sizes(planned(a_view(bound, [much, little]), policy, placer)) == sizes(plain)
    assert policy == "ffdl" or sizes(plain)["little"] >= 3

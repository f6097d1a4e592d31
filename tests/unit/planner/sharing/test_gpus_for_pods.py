"""Pods that wait for GPUs which jobs can spare: elastic jobs shrink for them, and never below what they need."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.domain.job import Job
from voda.domain.plan import Plan
from voda.domain.shares import PendingRequest, PodShares, SharingNode
from voda.domain.state import ClusterState
from voda.placement import PLACERS
from voda.planner.candidates import Placed
from voda.planner.feasibility import feasible_view
from voda.planner.registries import spare_for_pods
from voda.planner.sharing.gpus_for_pods import SpareGpus, serve_requests
from voda.policies import POLICIES

GPU = GpuDevice(memory_mib=16_000, name="gpu.example.com/n1/gpu")
HALF = GpuRequest(milli=500, memory_mib=4_000)
TWO = GpuRequest(devices=Gpus(2))


def running(job_id: str, *, workers: int, least: int = 1, node: str = "n1") -> Job:
    return a_job(job_id, workers=dict.fromkeys(range(workers), node), min_replicas=least, max_replicas=8)


def a_request(*containers: GpuRequest, at: float = 50.0) -> PendingRequest:
    return PendingRequest(
        pod="ml/nb",
        containers={f"c{number}": each for number, each in enumerate(containers)},
        requested_at=at,
    )


def a_pool(
    *jobs: Job,
    requests: Mapping[str, PendingRequest],
    gpus: int = 4,
    shared: Mapping[str, tuple[int, GpuRequest]] | None = None,
    **node: Any,
) -> ClusterState:
    """Return a node of GPUs; `shared` is pod -> the GPU of which it has some."""
    pods = {
        uid: PodShares(pod=uid, containers={"c": ContainerGpus(gpus=(gpu,), request=request)}, assigned_at=0.0)
        for uid, (gpu, request) in (shared or {}).items()
    }
    account = SharingNode(devices=(GPU,) * gpus, pods=pods, requests=dict(requests))
    there = a_node("n1", gpus=gpus, devices=account.devices, foreign_gpus=account.used_gpus(), **node)
    placement = {job.spec.job_id: tuple(job.workers.values()) for job in jobs if job.workers}
    return replace(a_state(jobs=jobs, nodes=[there], placement=placement), shares={"n1": account})


def spared(state: ClusterState) -> int:
    """Return how many whole GPUs jobs can spare for requests."""
    possible, _ = feasible_view(state)
    return sum(each.gpus for each in SpareGpus(possible).served.values())


def planned(state: ClusterState) -> Plan:
    return decide(state, POLICIES["elastic-fifo"], PLACERS["steady"], 100.0, cause="test")


def sizes(plan: Plan) -> Mapping[str, int]:
    return {job_id: len(nodes) for job_id, nodes in plan.placement.items()}


def test_elastic_job_gives_one_gpu_up_for_two_pods_that_share_it() -> None:
    requests = {"u1": a_request(HALF), "u2": a_request(HALF)}
    assert sizes(planned(a_pool(running("train", workers=4), requests=requests))) == {"train": 3}


def test_pod_that_has_room_beside_others_takes_no_gpu_from_a_job() -> None:
    state = a_pool(running("train", workers=3), requests={"u1": a_request(HALF)}, shared={"u0": (0, HALF)})
    assert sizes(planned(state)) == {"train": 3}


def test_pod_of_several_containers_and_whole_gpus_gets_as_many() -> None:
    state = a_pool(running("train", workers=4), requests={"u1": a_request(TWO, HALF)})
    assert sizes(planned(state)) == {"train": 1}


def test_job_keeps_its_minimum_and_the_request_changes_nothing() -> None:
    state = a_pool(running("train", workers=4, least=4), requests={"u1": a_request(HALF)})
    assert spared(state) == 0
    assert sizes(planned(state)) == {"train": 4}


def test_job_that_waited_before_the_pod_comes_first_and_one_after_it_does_not() -> None:
    def waiting(at: float) -> Job:
        return a_job("late", min_replicas=3, max_replicas=3, submitted_at=at)

    train = running("train", workers=4)
    before = a_pool(train, waiting(at=40.0), requests={"u1": a_request(HALF, at=50.0)})
    assert sizes(planned(before)) == {"train": 1, "late": 3}
    after = a_pool(train, waiting(at=60.0), requests={"u1": a_request(HALF, at=50.0)})
    assert sizes(planned(after)) == {"train": 3}


def test_gang_that_is_about_to_start_or_has_lost_a_worker_keeps_its_gpus() -> None:
    for there in ({}, {0: "n1"}, {1: "n1"}):
        gang = a_job("gang", workers=there, min_replicas=2, max_replicas=2, submitted_at=90.0)
        state = a_pool(gang, requests={"u1": a_request(HALF)}, gpus=2)
        state = replace(state, plan=replace(state.plan, placement={"gang": ("n1", "n1")}))
        assert spared(state) == 0
        assert sizes(planned(state)) == {"gang": 2}


def test_elastic_job_whose_first_worker_comes_back_keeps_one() -> None:
    train = a_job("train", workers={1: "n1"}, min_replicas=1, max_replicas=2)
    state = a_pool(train, requests={"u1": a_request(HALF), "u2": a_request(TWO)}, gpus=2)
    state = replace(state, plan=replace(state.plan, placement={"train": ("n1", "n1")}))
    assert spared(state) == 1


def test_job_that_no_node_can_hold_keeps_no_gpu_from_a_pod() -> None:
    large = a_job("large", gpus_per_replica=Gpus(9), min_replicas=1, submitted_at=1.0)
    state = a_pool(running("train", workers=4), large, requests={"u1": a_request(HALF)})
    assert sizes(planned(state)) == {"train": 3}


def test_request_of_gpus_that_nobody_claims_any_more_changes_nothing() -> None:
    state = a_pool(running("train", workers=4), requests={"u1": a_request(GpuRequest(milli=500))})
    left = SharingNode(requests=state.shares["n1"].requests)
    assert spared(replace(state, shares={"n1": left})) == 0


def test_gpu_that_is_given_up_has_to_be_large_enough_whichever_it_is() -> None:
    state = a_pool(running("train", workers=2), requests={"u1": a_request(GpuRequest(memory_mib=15_000))}, gpus=2)
    devices = (GPU, GpuDevice(memory_mib=8_000, name="gpu.example.com/n1/small"))
    account = replace(state.shares["n1"], devices=devices)
    assert spared(replace(state, shares={"n1": account})) == 0


def test_request_for_a_node_that_takes_nobody_changes_nothing() -> None:
    state = a_pool(running("train", workers=4), requests={"u1": a_request(HALF)}, is_schedulable=False)
    assert spared(state) == 0


def test_node_is_chosen_where_the_fewest_whole_gpus_are_needed_and_most_can_be_spared() -> None:
    one = a_pool(running("a", workers=2), requests={}, shared={"u0": (0, HALF)})
    nodes = {**one.nodes, "n2": a_node("n2", gpus=8, devices=(GPU,) * 8)}
    state = replace(one, nodes=nodes, shares={**one.shares, "n2": SharingNode(devices=(GPU,) * 8)})
    spare = SpareGpus(state)
    assert spare.choose({"c": HALF}, ["n1", "n2"]) == ("n1", 0)
    assert spare.choose({"c": GpuRequest(milli=600)}, ["n1", "n2"]) == ("n2", 1)
    assert spare.choose({"c": GpuRequest(milli=600)}, ["n1"]) == ("n1", 1)
    assert spare.choose({"c": GpuRequest(memory_mib=17_000)}, ["n1", "n2"]) is None
    assert spare.take("n1", {"c": HALF}) == 0


REQUESTS = st.lists(
    st.sampled_from([HALF, TWO, GpuRequest(milli=300), GpuRequest(memory_mib=9_000), GpuRequest(milli=900)]),
    min_size=1,
    max_size=3,
)


@given(st.lists(REQUESTS, max_size=6), st.integers(0, 8), st.integers(1, 8))
def test_whatever_is_requested_every_running_job_keeps_its_minimum(
    asked: list[list[GpuRequest]], workers: int, least: int
) -> None:
    jobs = [running("train", workers=workers, least=min(workers, least))] if workers else []
    requests = {f"u{number}": a_request(*each) for number, each in enumerate(asked)}
    state = a_pool(*jobs, requests=requests, gpus=8)
    left = state.nodes["n1"].usable_gpus - spared(state)
    assert 0 <= left <= 8
    assert left >= (min(workers, least) if workers else 0)
    assert sizes(planned(state)).get("train", 0) >= (min(workers, least) if workers else 0)


def two_tiers(requests: Mapping[str, PendingRequest]) -> ClusterState:
    """Return eight GPUs: `lo` can spare two of its three, and `hi`, of a higher priority, four of its five."""
    lo = a_job("lo", workers=dict.fromkeys(range(3), "n1"), min_replicas=1, max_replicas=3)
    hi = a_job("hi", workers=dict.fromkeys(range(5), "n1"), min_replicas=1, max_replicas=5, priority=1)
    return a_pool(lo, hi, requests=requests, gpus=8)


def test_requests_for_which_a_job_would_lose_its_place_are_not_served_but_the_oldest_alone_where_none_would() -> None:
    three, one = (a_request(GpuRequest(devices=Gpus(count)), at=60.0) for count in (3, 1))
    assert sizes(planned(two_tiers({"big": three}))) == {"lo": 3, "hi": 5}
    assert sizes(planned(two_tiers({"first": a_request(HALF, at=50.0), "big": three}))) == {"lo": 2, "hi": 5}
    assert sizes(planned(two_tiers({"first": a_request(HALF, at=50.0), "second": one}))) == {"lo": 1, "hi": 5}
    assert sizes(planned(two_tiers({"big": three, "last": a_request(HALF, at=70.0)}))) == {"lo": 3, "hi": 5}


def test_request_that_cannot_be_served_costs_one_decision_more() -> None:
    state = two_tiers({"big": a_request(GpuRequest(devices=Gpus(3)))})
    undisturbed, views = Placed(placement=state.plan.placement, reasons={}), list[ClusterState]()

    def place(view: ClusterState) -> Placed:
        views.append(view)
        return Placed(placement={"hi": state.plan.placement["hi"]}, reasons={})

    assert serve_requests(state, undisturbed, place) == undisturbed
    assert len(views) == 1


def test_no_job_starts_on_what_a_large_worker_leaves_beside_a_part() -> None:
    large = a_job(
        "large", workers={0: "n1", 1: "n1"}, min_replicas=1, max_replicas=2, gpus_per_replica=Gpus(2), priority=1
    )
    waits = a_job("waits", min_replicas=1, max_replicas=1, submitted_at=10.0)
    plan = planned(a_pool(large, waits, requests={"u1": a_request(HALF)}))
    assert sizes(plan) == {"large": 1}
    assert "waits" in plan.reasons


def test_policy_that_lets_no_job_shrink_spares_nothing() -> None:
    state = a_pool(running("train", workers=4), requests={"u1": a_request(HALF)})
    assert spare_for_pods(state, 100.0) is not None
    assert spare_for_pods(replace(state, settings=replace(state.settings, policy="fifo")), 100.0) is None


JOBS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(-1, 1), st.integers(0, 80), st.integers(1, 2)),
    min_size=1,
    max_size=6,
)
"""Of each job: the fewest workers, how many more it may have, priority, when it came, GPUs of a worker."""


def a_cluster(drawn: list[tuple[int, int, int, int, int]], policy: str) -> ClusterState:
    """Return two nodes of four GPUs whose jobs run as the policy has them."""
    nodes = {name: a_node(name, gpus=4, devices=(GPU,) * 4) for name in ("n1", "n2")}
    shares = {name: SharingNode(devices=(GPU,) * 4) for name in nodes}
    wanted = [
        a_job(
            f"j{number}",
            min_replicas=least,
            max_replicas=least + more,
            requested_replicas=least + more,
            priority=priority,
            submitted_at=float(at),
            gpus_per_replica=Gpus(gpus),
        )
        for number, (least, more, priority, at, gpus) in enumerate(drawn)
    ]
    state = replace(a_state(jobs=wanted, nodes=list(nodes.values())), shares=shares)
    for _ in range(3):
        placement = decide(state, POLICIES[policy], PLACERS["steady"], 90.0, cause="test").placement
        workers = {job_id: dict(enumerate(nodes)) for job_id, nodes in placement.items()}
        jobs = {job_id: replace(job, workers=workers.get(job_id, {})) for job_id, job in state.jobs.items()}
        state = replace(state, jobs=jobs, plan=replace(state.plan, placement=placement))
    return state


@given(JOBS, REQUESTS, st.sampled_from(sorted(POLICIES)))
def test_no_job_that_runs_loses_its_place_for_a_pod_whatever_the_policy(
    drawn: list[tuple[int, int, int, int, int]], asked: list[GpuRequest], policy: str
) -> None:
    state = a_cluster(drawn, policy)
    without = decide(state, POLICIES[policy], PLACERS["steady"], 100.0, cause="test").placement
    requests = {f"u{number}": a_request(each, at=99.0) for number, each in enumerate(asked)}
    shares = {**state.shares, "n1": replace(state.shares["n1"], requests=requests)}
    asked_of = replace(state, shares=shares)
    placed = decide(asked_of, POLICIES[policy], PLACERS["steady"], 100.0, cause="test").placement
    assert state.plan.placement.keys() & without.keys() <= placed.keys()


def test_request_is_served_as_long_as_its_node_has_what_it_asks_for() -> None:
    requests = {"u1": a_request(HALF, at=50.0), "u2": a_request(TWO, at=60.0)}
    assert SpareGpus(a_pool(running("train", workers=4), requests=requests)).served.keys() == {"u1", "u2"}
    assert SpareGpus(a_pool(running("train", workers=4, least=2), requests=requests)).served.keys() == {"u1"}
    assert not SpareGpus(a_pool(running("train", workers=4), requests=requests, is_schedulable=False)).served

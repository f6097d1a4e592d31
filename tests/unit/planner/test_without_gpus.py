"""Jobs that need no GPU start at once, whatever others have, and no policy knows them."""

from collections import Counter
from time import thread_time

import pytest
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from tests.reasons import said
from voda.domain.gpus import NO_GPUS
from voda.domain.job import Job
from voda.domain.node import PodNeeds
from voda.domain.plan import Plan
from voda.domain.reasons.nodes import LacksRoom, NeedsNoGpu, Refused, Said
from voda.domain.reasons.outcomes import Keeps, Starts, Waits
from voda.domain.reasons.requests import Requested
from voda.domain.state import ClusterState
from voda.placement import PLACERS
from voda.planner.gpuless.workers import MOST_PER_NODE
from voda.planner.registries import spare_for_pods
from voda.policies import POLICIES

NODES = [a_node("n1", gpus=2), a_node("n2", gpus=2)]
FULL = ("n1", "n1", "n2", "n2")


def planned(state: ClusterState, policy: str = "elastic-fifo") -> Plan:
    return decide(state, POLICIES[policy], PLACERS["steady"], 100.0, cause="test")


def no_gpus(name: str, least: int = 1, most: int = 1, **fields: object) -> Job:
    return a_job(name, gpus_per_replica=0, min_replicas=least, max_replicas=most, **fields)


@pytest.mark.parametrize("policy", POLICIES)
def test_job_without_gpus_starts_beside_those_that_have_them_all(policy: str) -> None:
    rigid = a_job("rigid", min_replicas=4, max_replicas=4, workers=dict(enumerate(FULL)))
    state = a_state(jobs=[rigid, no_gpus("prep", submitted_at=5.0)], nodes=NODES, placement={"rigid": FULL})
    plan = planned(state, policy)
    assert plan.placement == {"rigid": FULL, "prep": ("n1",)}
    assert plan.reasons["prep"] == Starts(workers=1, why=(NeedsNoGpu(),))


def test_workers_without_gpus_spread_over_nodes_and_stay_where_they_are() -> None:
    state = a_state(jobs=[no_gpus("a", 1, 9, requested_replicas=3), no_gpus("b", submitted_at=5.0)], nodes=NODES)
    plan = planned(state)
    assert plan.placement == {"a": ("n1", "n2", "n1"), "b": ("n2",)}
    at_work = no_gpus("a", 1, 9, requested_replicas=3, workers={0: "n2", 1: "n2", 2: "n2"})
    again = planned(a_state(jobs=[at_work], nodes=NODES, placement={"a": ("n2", "n2", "n2")}))
    assert again.placement == {"a": ("n2", "n2", "n2")}
    assert again.reasons["a"] == Keeps(workers=3, why=(NeedsNoGpu(),))


def test_job_without_gpus_waits_where_nodes_take_less_than_its_minimum() -> None:
    refusals = {"n1": Said(text="2 CPUs free, 4 needed"), "n2": Said(text="2 CPUs free, 4 needed")}
    state = a_state(jobs=[no_gpus("a", 2, 2, refusals=refusals, fits={"n2": 1})], nodes=NODES)
    plan = planned(state)
    assert plan.placement == {}
    refused = Refused(node="n1", why=refusals["n1"], others=1)
    assert plan.reasons["a"] == Waits(why=(LacksRoom(workers=2, gpus=NO_GPUS, room=1, refused=refused),))
    one = a_state(jobs=[no_gpus("a", refusals=refusals, fits={"n2": 1})], nodes=NODES)
    assert planned(one).placement == {"a": ("n2",)}


def test_new_workers_without_gpus_avoid_nodes_that_are_cordoned() -> None:
    nodes = [a_node("n1", gpus=2, is_schedulable=False), a_node("n2", gpus=2)]
    at_work = no_gpus("a", workers={0: "n1"})
    state = a_state(jobs=[at_work, no_gpus("b", submitted_at=5.0)], nodes=nodes, placement={"a": ("n1",)})
    assert planned(state).placement == {"a": ("n1",), "b": ("n2",)}
    lost = planned(a_state(jobs=[no_gpus("b")], nodes=nodes[:1]))
    assert lost.placement == {}
    assert lost.reasons["b"].why == (LacksRoom(workers=1, gpus=NO_GPUS),)


def test_workers_without_gpus_are_bounded_on_each_node_and_wait_beyond_it() -> None:
    many, late = no_gpus("many", 1, 4096, requested_replicas=4096), no_gpus("late", 2, 2, submitted_at=5.0)
    plan = planned(a_state(jobs=[many, late], nodes=NODES))
    assert Counter(plan.placement["many"]) == {"n1": MOST_PER_NODE, "n2": MOST_PER_NODE}
    assert plan.reasons["late"] == Waits(why=(LacksRoom(workers=2, gpus=NO_GPUS),))
    first = no_gpus("first", priority=5, submitted_at=9.0)
    waiting = no_gpus("waiting", 40, 40)
    plan = planned(a_state(jobs=[waiting, first], nodes=NODES))
    assert plan.placement == {"first": ("n1",)}
    assert plan.reasons["waiting"] == Waits(why=(LacksRoom(workers=40, gpus=NO_GPUS, room=2 * MOST_PER_NODE - 1),))
    at_work = no_gpus("many", 1, 32, requested_replicas=32, workers=dict(enumerate(("n1",) * 32)))
    again = planned(a_state(jobs=[at_work, first], nodes=NODES, placement={"many": ("n1",) * 32}))
    assert again.placement == {"many": ("n1",) * 32, "first": ("n2",)}


def test_jobs_without_gpus_that_are_halted_or_canceled_have_no_workers() -> None:
    jobs = [no_gpus("a", halt=Requested(by="ada")), no_gpus("b", is_canceling=True, workers={0: "n1"})]
    assert planned(a_state(jobs=jobs, nodes=NODES, placement={"b": ("n1",)})).placement == {}


def test_jobs_without_gpus_have_none_to_spare_for_pods() -> None:
    state = a_state(jobs=[no_gpus("a", workers={0: "n1"})], nodes=NODES, placement={"a": ("n1",)})
    assert spare_for_pods(state, 100.0) is not None


def test_workers_without_gpus_get_the_resources_that_workers_with_gpus_leave() -> None:
    nodes = [a_node(name, gpus=2, room={"cpu": 4_000, "pods": 3_000}) for name in ("n1", "n2")]
    three = PodNeeds(requests={"cpu": 3_000})
    rigid = a_job("rigid", needs=three)
    prep = no_gpus("prep", least=1, most=2, requested_replicas=2, needs=three, submitted_at=5.0)
    more = no_gpus("more", needs=PodNeeds(requests={"cpu": 1_000}), submitted_at=6.0)
    plan = planned(a_state(jobs=[rigid, prep, more], nodes=nodes))
    assert plan.placement["rigid"] == ("n1",)
    assert plan.placement["prep"] == ("n2",)
    assert plan.placement["more"] in {("n1",), ("n2",)}
    late = planned(a_state(jobs=[rigid, prep, no_gpus("late", needs=three, submitted_at=6.0)], nodes=nodes))
    assert "late" not in late.placement


def test_workers_without_gpus_at_work_stay_and_what_they_have_is_counted_once() -> None:
    nodes = [a_node("n1", gpus=2, room={"cpu": 4_000, "pods": 9_000})]
    one = PodNeeds(requests={"cpu": 1_000})
    prep = no_gpus("prep", least=1, most=4, requested_replicas=4, needs=one, workers={0: "n1", 1: "n1"})
    plan = planned(a_state(jobs=[prep], nodes=nodes, placement={"prep": ("n1", "n1")}))
    assert plan.placement == {"prep": ("n1",) * 4}


@pytest.mark.parametrize(
    ("first", "gives_way"),
    [
        ({"priority": 1}, True),
        ({"submitted_at": 1.0}, True),
        ({"submitted_at": 9.0}, False),
        ({"priority": -1, "submitted_at": 1.0}, False),
    ],
    ids=["higher priority", "earlier", "later", "lower priority"],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_workers_without_gpus_leave_for_the_minimum_of_a_job_that_goes_before_them(
    first: dict[str, float], gives_way: bool, policy: str
) -> None:
    cpus = PodNeeds(requests={"cpu": 6_000})
    nodes = [a_node("n1", gpus=2, room={"cpu": 8_000}), a_node("n2", gpus=2, room={"cpu": 4_000})]
    prep = no_gpus("prep", needs=cpus, submitted_at=5.0, workers={0: "n1"})
    small = no_gpus("small", needs=PodNeeds(requests={"cpu": 2_000}), submitted_at=6.0, workers={0: "n1"})
    train = a_job("train", needs=cpus, **first)
    state = a_state(jobs=[prep, small, train], nodes=nodes, placement={"prep": ("n1",), "small": ("n1",)})
    plan = planned(state, policy)
    assert plan.placement["small"] == ("n1",)
    assert {job_id for job_id in plan.placement if job_id != "small"} == {"train" if gives_way else "prep"}
    if gives_way:
        assert "a worker asks for 6 CPUs, and others leave 2" in said(plan.reasons["prep"])
    after = replace(state, plan=plan)
    assert planned(after, policy).placement == plan.placement


def test_workers_without_gpus_stay_for_a_job_that_would_not_fit_without_them_either() -> None:
    nodes = [a_node("n1", gpus=2, room={"cpu": 8_000})]
    prep = no_gpus("prep", needs=PodNeeds(requests={"cpu": 6_000}), workers={0: "n1"})
    train = a_job("train", needs=PodNeeds(requests={"cpu": 9_000}), priority=9)
    taken = a_job("taken", min_replicas=2, max_replicas=2, priority=9, workers={0: "n1", 1: "n1"})
    wants = a_job("wants", needs=PodNeeds(requests={"cpu": 6_000}), priority=9, submitted_at=9.0)
    for jobs, placement in (([prep, train], {}), ([prep, taken, wants], {"taken": ("n1", "n1")})):
        state = a_state(jobs=jobs, nodes=nodes, placement={"prep": ("n1",), **placement})
        assert planned(state).placement == {"prep": ("n1",), **placement}


def test_workers_without_gpus_that_leave_leave_nothing_for_jobs_that_come_after_them() -> None:
    nodes = [a_node("n1", gpus=2, room={"cpu": 12_000})]
    prep = no_gpus("prep", needs=PodNeeds(requests={"cpu": 9_000}), workers={0: "n1"}, submitted_at=1.0)
    first, last = (
        a_job(name, needs=PodNeeds(requests={"cpu": 6_000}), submitted_at=at) for name, at in (("a", 0.0), ("z", 9.0))
    )
    plan = planned(a_state(jobs=[prep, first, last], nodes=nodes, placement={"prep": ("n1",)}))
    assert plan.placement == {"a": ("n1",)}
    assert plan.reasons.keys() == {"prep", "a", "z"}


def test_many_jobs_without_gpus_that_wait_cost_a_plan_no_look_at_all_nodes_each() -> None:
    nodes = [a_node(f"n{number:03}", gpus=1, room={"cpu": 4_000}) for number in range(1_000)]
    cpus = PodNeeds(requests={"cpu": 6_000})
    state = a_state(jobs=[no_gpus(f"prep-{number}", needs=cpus) for number in range(3_000)], nodes=nodes)
    began = thread_time()
    plan = planned(state)
    assert thread_time() - began < 1.5
    assert plan.placement == {}
    assert len({said(reason) for reason in plan.reasons.values()}) == 1
    assert "n000: a worker asks for 6 CPUs" in said(plan.reasons["prep-7"])


def test_jobs_without_gpus_of_one_class_wait_for_what_the_last_one_that_started_left() -> None:
    nodes = [a_node("n1", room={"cpu": 8_000})]
    small, large = (PodNeeds(requests={"cpu": cpus}) for cpus in (1_000, 6_000))
    jobs = [
        no_gpus(name, needs=needs, submitted_at=float(at))
        for at, (name, needs) in enumerate([("a", small), ("b", large), ("c", large), ("d", small), ("e", large)])
    ]
    plan = planned(a_state(jobs=jobs, nodes=nodes))
    assert plan.placement == dict.fromkeys(("a", "b", "d"), ("n1",))
    assert "others leave 1" in said(plan.reasons["c"])
    assert "others leave 0" in said(plan.reasons["e"])


def test_many_jobs_that_wait_for_gpus_alone_cost_a_plan_no_look_at_all_jobs_without_gpus_each() -> None:
    cpus = PodNeeds(requests={"cpu": 1_000})
    nodes = [a_node(f"n{number:03}", gpus=1, room={"cpu": 640_000}) for number in range(600)]
    full = [a_job(f"full-{node.name}", needs=cpus, workers={0: node.name}) for node in nodes]
    preps = [no_gpus(f"prep-{node.name}", needs=cpus, submitted_at=9.0, workers={0: node.name}) for node in nodes]
    waiting = [a_job(f"waits-{number}", needs=cpus, submitted_at=5.0) for number in range(6_000)]
    at_work = {job.spec.job_id: tuple(job.workers.values()) for job in (*full, *preps)}
    state = a_state(jobs=[*full, *preps, *waiting], nodes=nodes, placement=at_work)
    began = thread_time()
    plan = planned(state)
    assert thread_time() - began < 1.5
    assert plan.placement == at_work

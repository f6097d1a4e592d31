"""Plans know by labels, taints and resources which nodes take a job's workers, and how many."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from voda.domain.job import Job
from voda.domain.node import Node, PodNeeds, Taint, Toleration
from voda.domain.plan import Plan
from voda.domain.state import ClusterState
from voda.events.text.reasons import reason_text
from voda.placement import PLACERS
from voda.policies import POLICIES

ALL = pytest.mark.parametrize("placer", PLACERS)
VISION = Taint(key="dedicated", value="vision")
TOLERANT = PodNeeds(tolerations=(Toleration(key="dedicated", value="vision", effect="NoSchedule"),))


def planned(view: ClusterState, placer: str = "steady", policy: str = "elastic-fifo") -> Plan:
    return decide(view, POLICIES.choose(policy), PLACERS.choose(placer), 100.0, cause="tick")


def at_work(job_id: str, *nodes: str, **fields: Any) -> Job:
    return a_job(job_id, workers=dict(enumerate(nodes)), **fields)


def in_force(*jobs: Job) -> Mapping[str, tuple[str, ...]]:
    return {job.spec.job_id: tuple(job.workers.values()) for job in jobs if job.workers}


def cpus(number: int) -> dict[str, int]:
    return {"cpu": number * 1000}


def full_nodes(count: int = 4) -> tuple[list[Node], list[Job]]:
    """Return nodes of 64 CPUs, each full with a rigid job of 8 workers."""
    nodes = [a_node(f"node-{at}", gpus=8, room=cpus(64)) for at in range(count)]
    jobs = [at_work(f"low{at}", *[f"node-{at}"] * 8, min_replicas=8, max_replicas=8) for at in range(count)]
    return nodes, jobs


@ALL
@pytest.mark.parametrize("priority", [0, 10])
def test_job_when_no_node_takes_it_then_it_disturbs_nobody_and_is_told_what_it_asks_and_the_most_there_is(
    placer: str, priority: int
) -> None:
    nodes, jobs = full_nodes()
    hungry = a_job("hungry", gpus_per_replica=8, priority=priority, needs=PodNeeds(requests=cpus(200)))
    view = a_state(jobs=[*jobs, hungry], nodes=nodes, placement=in_force(*jobs))
    plan = planned(view, placer)
    assert plan.placement == view.plan.placement
    assert reason_text(plan.reasons["hungry"]) == (
        "waits: no node can take it: node-0: a worker asks for 200 CPUs, and no node has more than 64 for it;"
        " 3 more refuse it"
    )


@ALL
def test_job_when_it_tolerates_the_taint_then_it_runs_and_others_are_told_the_taint(placer: str) -> None:
    nodes = [a_node(f"n{at}", taints=(VISION,)) for at in range(2)]
    plan = planned(a_state(jobs=[a_job("vision", needs=TOLERANT), a_job("other")], nodes=nodes), placer)
    assert plan.placement == {"vision": ("n0",)}
    assert reason_text(plan.reasons["other"]) == (
        "waits: no node can take it: n0: its taint dedicated=vision:NoSchedule is not tolerated; 1 more refuses it"
    )


@ALL
def test_job_when_a_node_becomes_tainted_then_its_workers_stay_unless_the_taint_drives_them_out(placer: str) -> None:
    job = at_work("a", "n1", "n1", min_replicas=2, max_replicas=2)
    for effect, node in (("NoSchedule", "n1"), ("NoExecute", "n2")):
        nodes = [a_node("n1", taints=(Taint(key="ill", effect=effect),)), a_node("n2")]
        view = a_state(jobs=[job], nodes=nodes, placement=in_force(job))
        assert planned(view, placer).placement == {"a": (node, node)}


@ALL
def test_job_when_its_workers_ask_for_much_of_a_resource_then_no_more_come_to_a_node_than_it_has_room_for(
    placer: str,
) -> None:
    nodes = [a_node("n1", gpus=8, room=cpus(64)), a_node("n2", gpus=8, room=cpus(40))]
    job = a_job("a", max_replicas=16, needs=PodNeeds(requests=cpus(20)))
    placement = planned(a_state(jobs=[job], nodes=nodes), placer).placement["a"]
    assert (placement.count("n1"), placement.count("n2")) == (3, 2)


def test_job_when_a_node_refuses_it_by_report_and_by_labels_then_the_less_of_both_counts() -> None:
    nodes = [a_node("n1", labels={"team": "a"}), a_node("n2", labels={"team": "a"}), a_node("n3")]
    needs = PodNeeds(selector={"team": "a"})
    job = a_job("a", max_replicas=12, needs=needs, refusals={"n1": "full", "n3": "full"}, fits={"n1": 1, "n3": 4})
    placement = planned(a_state(jobs=[job], nodes=nodes)).placement["a"]
    assert sorted(placement) == ["n1", *["n2"] * 4]


@ALL
def test_nodes_when_pods_of_others_leave_few_places_then_workers_are_counted_as_pods(placer: str) -> None:
    nodes = [a_node("n1", room={"pods": 2_000})]
    job = a_job("a", max_replicas=4, needs=PodNeeds())
    assert planned(a_state(jobs=[job], nodes=nodes), placer).placement == {"a": ("n1", "n1")}


@ALL
def test_node_when_its_room_is_unknown_then_it_bounds_nothing(placer: str) -> None:
    job = a_job("a", max_replicas=4, needs=PodNeeds(requests=cpus(500)))
    assert planned(a_state(jobs=[job], nodes=[a_node("n1")]), placer).placement == {"a": ("n1",) * 4}


def test_job_without_gpus_when_nodes_do_not_take_it_then_it_waits_and_says_why() -> None:
    nodes = [a_node("n1", gpus=0, room=cpus(4)), a_node("n2", gpus=0, room=cpus(4), taints=(VISION,))]
    job = a_job("a", max_replicas=2, requested_replicas=2, gpus_per_replica=0, needs=PodNeeds(requests=cpus(3)))
    plan = planned(a_state(jobs=[job], nodes=nodes))
    assert plan.placement == {"a": ("n1",)}
    large = replace(job, spec=replace(job.spec, needs=PodNeeds(requests=cpus(5))))
    plan = planned(a_state(jobs=[large], nodes=nodes))
    assert "a worker asks for 5 CPUs, and no node has more than 4" in reason_text(plan.reasons["a"])


def test_jobs_without_gpus_when_others_use_up_a_node_then_they_go_elsewhere_or_wait() -> None:
    nodes = [a_node("n1", gpus=1, room=cpus(8)), a_node("n2", gpus=0, room=cpus(4))]
    with_gpu = a_job("gpu", needs=PodNeeds(requests=cpus(6)))
    small = [a_job(name, gpus_per_replica=0, needs=PodNeeds(requests=cpus(3))) for name in ("a", "b")]
    plan = planned(a_state(jobs=[with_gpu, *small], nodes=nodes))
    assert plan.placement == {"gpu": ("n1",), "a": ("n2",)}


@pytest.mark.parametrize(("held", "least", "told"), [(64, 1, "leave 0"), (60, 1, "leave 4"), (48, 4, "leave 16")])
def test_job_without_gpus_when_workers_with_gpus_have_the_cpus_then_it_is_told_what_they_leave(
    held: int, least: int, told: str
) -> None:
    with_gpu = at_work("gpu", "n1", needs=PodNeeds(requests=cpus(held)))
    needs = PodNeeds(requests=cpus(8))
    small = a_job("a", min_replicas=least, max_replicas=16, requested_replicas=16, gpus_per_replica=0, needs=needs)
    nodes = [a_node("n1", gpus=8, room=cpus(64))]
    plan = planned(a_state(jobs=[with_gpu, small], nodes=nodes, placement=in_force(with_gpu)))
    text = reason_text(plan.reasons["a"])
    assert f"a worker asks for 8 CPUs, and others {told}" in text
    assert ("n1 takes 2 of its workers" in text) == (held == 48)
    assert "takes 8" not in text


def test_workers_without_gpus_when_they_are_at_work_then_those_with_gpus_have_what_they_leave() -> None:
    nodes = [a_node("n1", gpus=4, room=cpus(8))]
    small = at_work("small", "n1", gpus_per_replica=0, needs=PodNeeds(requests=cpus(4)))
    job = a_job("gpu", max_replicas=4, needs=PodNeeds(requests=cpus(2)))
    plan = planned(a_state(jobs=[small, job], nodes=nodes, placement=in_force(small)))
    assert plan.placement == {"gpu": ("n1", "n1"), "small": ("n1",)}

"""Workers stay on nodes that are cordoned, silent, or have fewer GPUs for a while; nothing new comes there."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import Log, a_job, a_node, a_spec, a_state
from tests.decisions import decide
from tests.reasons import said
from voda.domain.job import Job
from voda.domain.plan import Placement
from voda.domain.reasons.requests import Requested
from voda.domain.state import ClusterState, mostly_silent
from voda.events.types import (
    AnyFact,
    JobCompleted,
    JobSubmitted,
    NodeChanged,
    NodeJoined,
    NodeLeft,
    WorkerExited,
    WorkerStarted,
)
from voda.placement import PLACERS
from voda.planner.node_states import grace_ends_at
from voda.policies import POLICIES, weighs_restarts
from voda.projections.live import Live

NOW = 1_000.0
PLACER_NAMES = ("packed", "steady")


def planned(view: ClusterState, now: float = NOW, *, placer: str = "steady", policy: str = "elastic-fifo") -> Placement:
    return decide(view, POLICIES.choose(policy), PLACERS.choose(placer), now, cause="tick").placement


def a_view(silent_since: Mapping[str, float] | None = None, nodes: int = 3, **state: bool) -> ClusterState:
    """Return a job of 2 workers on n1, whose state is given; all nodes have 2 GPUs."""
    jobs = [a_job("a", min_replicas=2, max_replicas=2, workers={0: "n1", 1: "n1"})]
    there = [a_node(f"n{number}", gpus=2) for number in range(1, nodes + 1)]
    silent = silent_since or {}
    marked = [replace(node, is_ready=node.name not in silent) for node in there]
    marked[0] = replace(marked[0], **state)
    view = a_state(jobs=jobs, nodes=marked, placement={"a": ("n1", "n1")})
    return replace(view, silent_since=silent)


@pytest.mark.parametrize("placer", PLACER_NAMES)
def test_workers_on_a_silent_node_stay_until_its_grace_ends(placer: str) -> None:
    view = a_view({"n1": NOW})
    for waited_s in (0.0, 59.9):
        assert planned(view, NOW + waited_s, placer=placer) == {"a": ("n1", "n1")}
    moved = planned(view, NOW + 60.0, placer=placer)["a"]
    assert "n1" not in moved
    assert grace_ends_at(view, NOW) == NOW + 60.0
    assert grace_ends_at(view, NOW + 60.0) == float("inf")


@pytest.mark.parametrize("placer", PLACER_NAMES)
def test_workers_on_a_cordoned_node_stay_and_those_on_a_draining_one_move(placer: str) -> None:
    assert planned(a_view(is_schedulable=False), placer=placer) == {"a": ("n1", "n1")}
    assert "n1" not in planned(a_view(is_draining=True), placer=placer)["a"]
    assert "n1" not in planned(a_view({"n1": NOW}, is_draining=True), placer=placer)["a"]


def test_job_that_waits_is_told_which_nodes_are_drained() -> None:
    drained = a_view(nodes=1, is_draining=True)
    for names, which in ((("n1",), "n1 is"), (("n1", "n2", "n3", "n4", "n5"), "n1, n2, n3 and 2 more are")):
        view = replace(drained, drains=dict.fromkeys(names, Requested(by="ada")))
        plan = decide(view, POLICIES.choose("elastic-fifo"), PLACERS.choose("steady"), NOW, cause="tick")
        assert said(plan.reasons["a"]).endswith(f"; {which} drained")
    roomy = replace(a_view(nodes=2, is_draining=True), drains={"n1": Requested(by="ada")})
    plan = decide(roomy, POLICIES.choose("elastic-fifo"), PLACERS.choose("steady"), NOW, cause="tick")
    assert plan.placement == {"a": ("n2", "n2")}
    assert "drained" not in said(plan.reasons["a"])


def test_workers_on_silent_nodes_stay_however_long_it_lasts_where_most_nodes_are_silent() -> None:
    most = a_view({"n1": 0.0, "n2": 0.0})
    assert planned(most, 86_400.0) == {"a": ("n1", "n1")}
    assert grace_ends_at(most, 1.0) == float("inf")
    half = a_view({"n1": 0.0, "n2": 0.0}, nodes=4)
    assert "n1" not in planned(half, 86_400.0)["a"]


@pytest.mark.parametrize("placer", PLACER_NAMES)
def test_closed_node_takes_no_worker_that_is_new_or_was_only_planned_there(placer: str) -> None:
    view = a_view(is_schedulable=False, nodes=2)
    jobs = {**view.jobs, "b": a_job("b", max_replicas=4, submitted_at=1.0)}
    assert planned(replace(view, jobs=jobs), placer=placer) == {"a": ("n1", "n1"), "b": ("n2", "n2")}
    only_planned = {"a": a_job("a", min_replicas=2, max_replicas=2)}
    assert planned(replace(view, jobs=only_planned), placer=placer) == {"a": ("n2", "n2")}


def test_worker_that_ended_on_a_closed_node_comes_back_on_another_one() -> None:
    view = a_view({"n1": NOW})
    jobs = {"a": a_job("a", min_replicas=2, max_replicas=2, workers={0: "n1"})}
    placed = planned(replace(view, jobs=jobs))["a"]
    assert placed[0] == "n1"
    assert placed[1] != "n1"


@given(st.data())
def test_plan_of_any_pool_keeps_those_at_work_on_closed_nodes_and_puts_nothing_new_there(data: st.DataObject) -> None:
    names = [f"n{number}" for number in range(4)]
    placer = data.draw(st.sampled_from(PLACER_NAMES))
    policy = data.draw(st.sampled_from(["elastic-fifo", "afs-l", "elastic-tiresias", "fifo"]))
    free = dict.fromkeys(names, 4)
    placement: dict[str, tuple[str, ...]] = {}
    jobs = []
    for job_id in "abcd":
        size = data.draw(st.integers(0, 4))
        nodes = []
        for _ in range(size):
            node = data.draw(st.sampled_from(names))
            if free[node]:
                free[node] -= 1
                nodes.append(node)
        at_work = {index: node for index, node in enumerate(nodes) if data.draw(st.booleans())}
        jobs.append(a_job(job_id, max_replicas=data.draw(st.integers(1, 6)), workers=at_work))
        if nodes:
            placement[job_id] = tuple(nodes)
    closed = data.draw(st.sets(st.sampled_from(names), max_size=2))
    pool = [a_node(name, gpus=4, is_schedulable=name not in closed) for name in names]
    view = a_state(jobs=jobs, nodes=pool, placement=placement)
    after = planned(view, placer=placer, policy=policy)
    for job in jobs:
        nodes_now = after.get(job.spec.job_id, ())
        for index, node in enumerate(nodes_now):
            if node in closed:
                assert job.workers.get(index) == node, "new on a closed node"
            elif job.workers.get(index) in closed:
                raise AssertionError(f"{job.spec.job_id} {index} was moved off {job.workers[index]}")


def test_grace_of_nodes_that_are_late_begins_anew_once_most_of_them_answer_again() -> None:
    log, live = Log(), Live()
    for number in range(5):
        live.apply(log.add(NodeJoined(node=a_node(f"n{number}")), at=1.0))
    live.apply(log.add(JobSubmitted(spec=a_spec("a")), at=1.0))
    for number in range(3):
        live.apply(log.add(NodeChanged(node=a_node(f"n{number}", is_ready=False)), at=10.0 + number))
    assert live.state("default").is_mostly_silent
    live.apply(log.add(NodeChanged(node=a_node("n0", gpus=8, is_ready=False)), at=50.0))
    assert dict(live.state("default").silent_since) == {"n0": 10.0, "n1": 11.0, "n2": 12.0}
    live.apply(log.add(NodeChanged(node=a_node("n2")), at=500.0))
    assert dict(live.state("default").silent_since) == {"n0": 500.0, "n1": 500.0}
    live.apply(log.add(NodeLeft(name="n1"), at=501.0))
    live.apply(log.add(NodeChanged(node=a_node("n0", is_ready=False, is_draining=True)), at=502.0))
    assert live.state("default").silent_since == {}


def test_workers_on_a_node_that_is_not_ready_and_never_fell_silent_move_at_once() -> None:
    view = replace(a_view({"n1": 0.0}), silent_since={})
    assert "n1" not in planned(view, 1.0)["a"]


class Told:
    """The state of a log with nodes of 4 GPUs and a job `a`, by default with 2 workers on n0."""

    def __init__(self, nodes: int = 4, workers: Mapping[int, str] | None = None) -> None:
        self.live = Live()
        self._log = Log()
        for number in range(nodes):
            self.after(NodeJoined(node=a_node(f"n{number}")), at=1.0)
        self.after(JobSubmitted(spec=a_spec("a", min_replicas=2, max_replicas=2)), at=1.0)
        if workers := {0: "n0", 1: "n0"} if workers is None else workers:
            self.after(WorkerStarted(job_id="a", workers=workers), at=1.0)

    def after(self, fact: AnyFact, *, at: float) -> Mapping[str, float]:
        """Return since when which nodes are silent, once a fact is recorded."""
        self.live.apply(self._log.add(fact, at=at))
        return self.live.state("default").silent_since

    def after_node(self, name: str, gpus: int, *, at: float, **state: Any) -> Mapping[str, float]:
        return self.after(NodeChanged(node=a_node(name, gpus=gpus, **state)), at=at)


def a_full_pool(data: st.DataObject, nodes: int) -> tuple[list[Job], dict[str, tuple[str, ...]]]:
    """Return jobs at work that fill so many nodes of 4 GPUs, and where they are."""
    places = [f"n{number}" for number in range(nodes) for _ in range(4)]
    jobs: list[Job] = []
    placement: dict[str, tuple[str, ...]] = {}
    while places:
        size = data.draw(st.integers(1, len(places)))
        job_id, at, places = f"j{len(jobs)}", tuple(places[:size]), places[size:]
        placement[job_id] = at
        least = data.draw(st.sampled_from([1, size]))
        workers = dict(enumerate(at))
        jobs.append(a_job(job_id, min_replicas=least, max_replicas=size, requested_replicas=size, workers=workers))
    return jobs, placement


@pytest.mark.parametrize("placer", sorted(PLACERS))
@pytest.mark.parametrize("policy", sorted(name for name, each in POLICIES.items() if not weighs_restarts(each)))
@settings(max_examples=20)
@given(data=st.data())
def test_node_with_fewer_gpus_than_its_workers_hold_keeps_them_for_its_grace_and_as_many_as_it_can_then(
    policy: str, placer: str, data: st.DataObject
) -> None:
    jobs, placement = a_full_pool(data, 3)
    waiting = a_job("waits", max_replicas=12, submitted_at=1.0)
    says = data.draw(st.integers(0, 3))
    pool = [a_node("n0", gpus=says), a_node("n1"), a_node("n2")]
    view = a_state(jobs=[*jobs, waiting], nodes=pool, placement=placement)
    is_short = says < sum(nodes.count("n0") for nodes in placement.values())
    known = replace(view, silent_since={"n0": NOW} if is_short else {})
    for waited_s in (0.0, 59.9):
        assert on("n0", planned(known, NOW + waited_s, placer=placer, policy=policy), jobs) == on("n0", placement, jobs)
    after = planned(known, NOW + 60.0, placer=placer, policy=policy)
    assert sum(nodes.count("n0") for nodes in after.values()) <= says
    ready = replace(view, nodes={**view.nodes, "n0": a_node("n0", gpus=says)}, silent_since={"n0": 0.0})
    assert after == planned(ready, NOW + 60.0, placer=placer, policy=policy)


def on(node: str, placement: Placement, jobs: Sequence[Job]) -> dict[str, set[int]]:
    """Return which workers are planned for a node, by job."""
    there = {each: {index for index, at in enumerate(nodes) if at == node} for each, nodes in placement.items()}
    return {each: indices for each, indices in there.items() if indices}


def test_node_that_has_fewer_gpus_for_good_loses_as_few_workers_as_it_has_too_many() -> None:
    job = a_job("a", max_replicas=4, workers=dict.fromkeys(range(4), "n1"))
    nodes = [a_node("n1", gpus=3), a_node("n2", gpus=1), a_node("n3", gpus=1)]
    others = [a_job(name, workers={0: node}) for name, node in (("b", "n2"), ("c", "n3"))]
    placement = {"a": ("n1",) * 4, "b": ("n2",), "c": ("n3",)}
    view = replace(a_state(jobs=[job, *others], nodes=nodes, placement=placement), silent_since={"n1": NOW})
    assert planned(view, NOW + 59.0) == placement
    assert planned(view, NOW + 60.0) == {**placement, "a": ("n1",) * 3}
    assert grace_ends_at(view, NOW) == NOW + 60.0


@pytest.mark.parametrize("gpus", [0, 1])
def test_workers_stay_however_long_most_nodes_have_fewer_gpus_than_they_hold(gpus: int) -> None:
    jobs = [a_job(name, max_replicas=2, workers={0: name, 1: name}) for name in ("n1", "n2")]
    nodes = [a_node("n1", gpus=gpus), a_node("n2", gpus=gpus), a_node("n3")]
    placement = {"n1": ("n1", "n1"), "n2": ("n2", "n2")}
    view = replace(a_state(jobs=jobs, nodes=nodes, placement=placement), silent_since={"n1": 0.0, "n2": 0.0})
    assert planned(view, 86_400.0) == placement
    assert grace_ends_at(view, 1.0) == float("inf")


def test_node_alone_that_still_has_some_gpus_is_believed_after_its_grace_and_one_without_any_is_not() -> None:
    job = a_job("a", max_replicas=4, workers=dict.fromkeys(range(4), "n1"))
    for gpus, left in ((3, 3), (0, 4)):
        view = a_state(jobs=[job], nodes=[a_node("n1", gpus=gpus)], placement={"a": ("n1",) * 4})
        view = replace(view, silent_since={"n1": NOW})
        assert planned(view, NOW + 1.0)["a"] == ("n1",) * 4
        assert planned(view, NOW + 60.0)["a"] == ("n1",) * left


def test_silence_and_fewer_gpus_are_one_fact_with_one_clock() -> None:
    told = Told()
    assert told.after_node("n0", 0, at=10.0) == {"n0": 10.0}
    assert told.after_node("n0", 0, at=20.0, is_ready=False) == {"n0": 10.0}
    assert told.after_node("n0", 1, at=30.0) == {"n0": 10.0}
    assert told.after_node("n0", 2, at=40.0) == {}
    # Nobody holds what an idle node lacks.
    assert told.after_node("n1", 3, at=50.0) == {}
    assert told.after_node("n1", 0, at=60.0) == {}


def test_idle_nodes_without_gpus_keep_no_lost_node_from_being_given_up() -> None:
    nodes = {name: a_node(name, gpus=gpus) for name, gpus in (("a", 0), ("b", 0), ("c", 4), ("d", 4), ("lost", 4))}
    assert not mostly_silent({"lost"}, nodes)
    # Where all that are at work say none, it is what they share.
    assert mostly_silent({"c", "d", "lost"}, nodes)
    assert mostly_silent({"c"}, {"a": nodes["a"], "c": a_node("c", gpus=0)})
    assert not mostly_silent(set(), {"a": nodes["a"]})


def test_node_whose_gpus_others_take_by_preemption_has_as_many_as_before() -> None:
    told = Told()
    assert told.after_node("n0", 4, at=10.0, foreign_gpus=3) == {}
    assert told.after_node("n0", 4, at=20.0, foreign_gpus=2) == {}
    assert told.after_node("n0", 3, at=30.0, foreign_gpus=2) == {"n0": 30.0}
    assert told.after(WorkerExited(job_id="a", workers=(1,)), at=40.0) == {}


def test_worker_whose_start_is_known_after_its_node_has_no_gpus_is_waited_for_until_it_exits() -> None:
    told = Told(workers={})
    told.after_node("n0", 0, at=10.0)
    assert told.after_node("n0", 1, at=20.0) == {}
    assert told.after(WorkerStarted(job_id="a", workers={0: "n0", 1: "n0"}), at=30.0) == {"n0": 30.0}
    assert told.after(JobCompleted(job_id="a"), at=40.0) == {"n0": 30.0}
    told.live.load(told.live.dump())
    assert told.after(WorkerExited(job_id="a", workers=(0,), cause="finished"), at=50.0) == {}
    assert told.live.cluster.pool("default").held == {"n0": 1}

"""Workers stay on nodes that are cordoned, or silent for a while; nothing new comes there."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import Log, a_job, a_node, a_spec, a_state
from voda.domain.plan import Placement
from voda.domain.state import ClusterState
from voda.events.types import JobSubmitted, NodeChanged, NodeJoined, NodeLeft
from voda.placement import PLACERS
from voda.planner.decide import decide
from voda.planner.node_states import grace_ends_at
from voda.policies import POLICIES
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
    for names, said in ((("n1",), "n1 is"), (("n1", "n2", "n3", "n4", "n5"), "n1, n2, n3 and 2 more are")):
        view = replace(drained, drains=dict.fromkeys(names, "drained by ada"))
        plan = decide(view, POLICIES.choose("elastic-fifo"), PLACERS.choose("steady"), NOW, cause="tick")
        assert plan.reasons["a"].endswith(f"; {said} drained")
    roomy = replace(a_view(nodes=2, is_draining=True), drains={"n1": "drained by ada"})
    plan = decide(roomy, POLICIES.choose("elastic-fifo"), PLACERS.choose("steady"), NOW, cause="tick")
    assert plan.placement == {"a": ("n2", "n2")}
    assert "drained" not in plan.reasons["a"]


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

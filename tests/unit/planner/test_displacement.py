"""Jobs that nodes refuse after others left GPUs for them: nobody does so again until nodes or request have changed."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from tests.builders import Log, a_node, a_spec
from tests.reasons import said
from tests.unit.planner.virtual_clusters.pools import some_cells
from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.node import PodNeeds, Taint
from voda.domain.reasons.nodes import ByScheduler
from voda.domain.reasons.requests import Requested
from voda.domain.reasons.stalls import NoneAtWork
from voda.domain.settings import SettingsPatch
from voda.domain.state import ClusterState
from voda.events.types import (
    AnyFact,
    JobBackedOff,
    JobChanged,
    JobCompleted,
    JobHaltRequested,
    JobResumeRequested,
    JobSubmitted,
    NodeChanged,
    NodeDrainRequested,
    NodeJoined,
    NodeLeft,
    NodeRoomChanged,
    NodeUndrainRequested,
    PlanAdopted,
    SettingsChanged,
    VirtualClustersApplied,
    WorkerExited,
    WorkerRefused,
    WorkerStarted,
)
from voda.planner.registries import Registries, redecide
from voda.projections.live import Live

AVOIDED_S = 300.0
REFUSAL = ByScheduler(worker="picky-0", text="its volume is in another zone")
WHY = (
    "others made room for it in vain (n4: kube-scheduler does not bind worker picky-0: its volume is in another zone),"
    " so it gets free GPUs alone until a node that refused it or what it asks for changes, or another node opens"
)


class World:
    """A pool whose plans are carried out at once, but that its nodes take only so many workers of the job `picky`."""

    def __init__(
        self, *facts: AnyFact, nodes: int = 4, takes: Mapping[str, int] | None = None, **settings: Any
    ) -> None:
        self.log, self.live, self.now, self.registries = Log(), Live(), 0.0, Registries()
        self.takes = takes or {}
        """Node -> workers of `picky` that it takes; the others take none."""
        self.disturbed: Counter[str] = Counter()
        """Job -> plans that stopped, shrank or moved it."""
        patch: SettingsPatch = {"policy": "elastic-fifo", "heeds_resize_cost": False, **settings}
        self.add(SettingsChanged(pool="default", settings=patch))
        self.add(*(NodeJoined(node=a_node(f"n{index}")) for index in range(1, nodes + 1)), *facts)

    def add(self, *facts: AnyFact) -> None:
        for fact in facts:
            self.live.apply(self.log.add(fact, at=self.now))

    @property
    def state(self) -> ClusterState:
        return self.live.state("default")

    def job(self, job_id: str) -> Job:
        return self.state.jobs[job_id]

    def size(self, job_id: str) -> int:
        return len(self.job(job_id).workers)

    def nodes_of(self, job_id: str) -> set[str]:
        return {*self.job(job_id).workers.values()}

    def settle(self) -> None:
        """Decide and carry out until no plan changes anything."""
        for _ in range(20):
            undecided = self.live.cluster.undecided("default")
            if (plan := redecide(self.state, undecided, self.registries, self.now, cause="tick")) is None:
                return
            self._note(plan)
            self.add(plan)
            self._carry_out()
        raise AssertionError("plans never come to an end")

    def wait(self) -> None:
        """Let the time pass after which nodes that refused a job are tried again."""
        self.now += AVOIDED_S
        self.add(*(WorkerRefused(job_id="picky", node=node) for node in self.job("picky").refusals))
        self.settle()

    def _note(self, plan: PlanAdopted) -> None:
        for job_id in (*plan.placed, *plan.released):
            if (job := self.live.cluster.job(job_id)) is None:
                continue
            nodes, workers = plan.placed.get(job_id, ()), job.workers
            stays = all(nodes[index : index + 1] == (node,) for index, node in workers.items())
            self.disturbed[job_id] += not stays

    def _carry_out(self) -> None:
        placement = self.state.plan.placement
        for job_id, job in self.state.jobs.items():
            planned = dict(enumerate(placement.get(job_id, ())))
            if gone := [index for index, node in job.workers.items() if planned.get(index) != node]:
                self.add(WorkerExited(job_id=job_id, workers=tuple(gone)))
        for job_id, nodes in placement.items():
            taken: Counter[str] = Counter()
            refused = set()
            come = {}
            for index, node in enumerate(nodes):
                if job_id == "picky" and taken[node] >= self.takes.get(node, 0):
                    refused.add(node)
                    continue
                taken[node] += 1
                if self.job(job_id).workers.get(index) != node:
                    come[index] = node
            if come:
                self.add(WorkerStarted(job_id=job_id, workers=come))
            # A running job told of those before.
            news = [node for node in sorted(refused) if node not in self.job(job_id).refusals]
            self.add(*(WorkerRefused(job_id=job_id, node=node, reason=REFUSAL, fits=taken[node]) for node in news))


def low(index: int, **fields: Any) -> JobSubmitted:
    """Return a job that fills a node."""
    return JobSubmitted(spec=a_spec(f"low{index}", **{"min_replicas": 4, "max_replicas": 4, **fields}))


def picky(size: int = 4, *, least: int = 0, **fields: Any) -> JobSubmitted:
    spec = a_spec("picky", **{"min_replicas": least or size, "max_replicas": size, "priority": 10, **fields})
    return JobSubmitted(spec=spec)


def a_full_pool(**fields: Any) -> World:
    world = World(*(low(index) for index in range(4)), **fields)
    world.settle()
    assert [world.size(f"low{index}") for index in range(4)] == [4] * 4
    return world


@pytest.fixture
def refused() -> World:
    """Return a pool of four full nodes in which a job of higher priority was refused."""
    world = a_full_pool()
    world.add(picky())
    world.settle()
    return world


@pytest.mark.parametrize("placer", ["steady", "packed"])
@pytest.mark.parametrize("policy", ["fifo", "elastic-fifo", "elastic-tiresias", "ffdl", "afs-l"])
def test_job_that_every_node_refuses_disturbs_one_job_once(policy: str, placer: str) -> None:
    world = a_full_pool(policy=policy, placer=placer)
    world.add(picky())
    world.settle()
    for _ in range(20):
        world.wait()
    assert sum(count > 0 for count in world.disturbed.values()) == 1
    assert [world.size(f"low{index}") for index in range(4)] == [4] * 4
    assert sum(world.disturbed.values()) == 1


def test_reason_says_what_it_waits_for(refused: World) -> None:
    assert said(refused.state.plan.reasons["picky"]).endswith(WHY)


def test_job_that_was_refused_gets_what_is_free_and_nothing_else(refused: World) -> None:
    refused.takes = {f"n{index}": 4 for index in range(1, 5)}
    refused.wait()
    before = refused.disturbed.copy()
    assert refused.size("picky") == 0
    refused.add(WorkerExited(job_id="low3", workers=(0, 1, 2, 3), cause="finished"), JobCompleted(job_id="low3"))
    refused.settle()
    assert (refused.size("picky"), refused.disturbed) == (4, before)


@pytest.mark.parametrize(
    "fact",
    [
        NodeJoined(node=a_node("n9", gpus=1)),
        NodeChanged(node=a_node("n4", labels={"zone": "b"})),
        NodeChanged(node=a_node("n4", gpus=5)),
        NodeLeft(name="n4"),
        NodeUndrainRequested(name="n2"),
        JobChanged(job_id="picky", min_replicas=3),
        JobChanged(job_id="picky", needs=PodNeeds(requests={"cpu": 1_000})),
    ],
    ids=lambda fact: f"{fact.TYPE}",
)
def test_job_that_was_refused_may_displace_others_again_once_nodes_or_its_request_change(
    refused: World, fact: AnyFact
) -> None:
    refused.wait()
    refused.takes = {f"n{index}": 4 for index in range(1, 5)}
    refused.add(fact)
    refused.settle()
    assert refused.size("picky") == 4


@pytest.mark.parametrize(
    "facts",
    [
        [NodeChanged(node=a_node("n2", labels={"zone": "b"}))],
        [NodeChanged(node=a_node("n2", is_ready=False)), NodeChanged(node=a_node("n2"))],
        [NodeChanged(node=a_node("n4", is_ready=False)), NodeChanged(node=a_node("n4"))],
        [NodeChanged(node=a_node("n2", foreign_gpus=1)), NodeChanged(node=a_node("n2"))],
        [NodeChanged(node=a_node("n4", foreign_gpus=1)), NodeChanged(node=a_node("n4"))],
        [NodeChanged(node=a_node("n2", gpus=5))],
        [NodeJoined(node=a_node("n9", gpus=0))],
        [NodeJoined(node=a_node("n9", taints=(Taint(key="dedicated"),)))],
        [JobChanged(job_id="picky", epochs=2), JobChanged(job_id="picky", epochs=3)],
        [JobChanged(job_id="picky", priority=11)],
    ],
    ids=[
        "another's label",
        "another is silent for a moment",
        "it is silent for a moment",
        "pod with a GPU on another came and went",
        "pod with a GPU came and went",
        "another has a GPU more",
        "one without GPUs joins",
        "one joins that refuses it",
        "epochs",
        "priority",
    ],
)
def test_what_cannot_change_the_answer_lets_nobody_leave_again(refused: World, facts: list[AnyFact]) -> None:
    refused.wait()
    before = refused.disturbed.copy()
    assert before.total() == 1
    for fact in facts:
        refused.add(fact)
    refused.wait()
    assert (refused.size("picky"), refused.disturbed) == (0, before)


@pytest.mark.parametrize(
    "facts",
    [
        [JobHaltRequested(job_id="picky", reason=Requested(by="ada")), JobResumeRequested(job_id="picky")],
        [JobChanged(job_id="picky", max_replicas=6, requested_replicas=size) for size in (5, 4)],
        [JobChanged(job_id="picky", min_replicas=size, max_replicas=5) for size in (5, 4)],
        [JobChanged(job_id="picky", min_replicas=size) for size in (3, 4, 3)],
    ],
    ids=["suspended and resumed", "other requests", "more needed, and as many as before", "fewer needed, again"],
)
def test_what_its_user_does_in_turn_lets_others_leave_no_more_than_once(refused: World, facts: list[AnyFact]) -> None:
    for _ in range(4):
        for fact in facts:
            refused.add(fact)
            refused.wait()
    assert (refused.size("picky"), refused.disturbed.total()) == (0, 1 + (facts[0] == facts[-1]))


def test_node_that_answers_after_its_workers_were_given_up_is_a_change(refused: World) -> None:
    refused.wait()
    refused.add(NodeChanged(node=a_node("n2", is_ready=False)))
    refused.now += refused.state.settings.node_grace_s
    refused.settle()
    assert refused.size("picky") == 0
    refused.takes = {f"n{index}": 4 for index in range(1, 5)}
    refused.add(NodeChanged(node=a_node("n2")))
    refused.settle()
    assert refused.size("picky") == 4


def test_room_that_grows_for_one_worker_more_is_a_change_and_other_room_is_none() -> None:
    world = World()
    rooms = {f"n{index}": {"cpu": 16_000, "memory": 1_000} for index in range(1, 5)}
    world.add(*(NodeChanged(node=a_node(name, room=room)) for name, room in rooms.items()))
    world.add(*(low(index) for index in range(4)))
    world.settle()
    world.add(picky(2, needs=PodNeeds(requests={"cpu": 5_000})))
    world.settle()
    node = world.job("picky").displaced_in_vain.node  # type: ignore[union-attr]
    for room in ({"cpu": 19_000, "memory": 1_000}, {"cpu": 16_000, "memory": 9_000}):
        world.add(NodeRoomChanged(name=node, pool="default", room=room))
        assert world.job("picky").displaced_in_vain is not None
    world.add(NodeRoomChanged(name=node, pool="default", room={"cpu": 20_000}))
    assert world.job("picky").displaced_in_vain is None


def test_node_that_refused_it_later_is_a_change_too(refused: World) -> None:
    refused.wait()
    refused.add(WorkerExited(job_id="low2", workers=(0, 1, 2, 3), cause="finished"), JobCompleted(job_id="low2"))
    refused.settle()
    assert refused.job("picky").displaced_in_vain.refused.keys() == {"n3", "n4"}  # type: ignore[union-attr]
    refused.add(NodeChanged(node=a_node("n3", labels={"zone": "b"})))
    assert refused.job("picky").displaced_in_vain is None


def test_node_that_is_uncordoned_is_a_change(refused: World) -> None:
    refused.add(NodeChanged(node=a_node("n4", is_schedulable=False)))
    refused.settle()
    refused.wait()
    refused.takes = {f"n{index}": 4 for index in range(1, 5)}
    refused.add(NodeChanged(node=a_node("n4")))
    refused.settle()
    assert refused.size("picky") == 4


def test_what_other_pods_use_of_a_node_is_no_change_unless_it_is_fewer_gpus(refused: World) -> None:
    refused.takes = {f"n{index}": 4 for index in range(1, 5)}
    refused.wait()
    # As when the launcher of a displaced job ends, and one starts.
    for cpu in (64_000, 63_000, 64_000):
        refused.add(NodeChanged(node=a_node("n1", room={"cpu": cpu})))
        refused.settle()
    # That the room is known is a change, once.
    refused = a_full_pool()
    refused.add(*(NodeChanged(node=a_node(f"n{index}", room={"cpu": 64_000})) for index in range(1, 5)), picky())
    refused.settle()
    before = refused.disturbed.copy()
    refused.takes = {f"n{index}": 4 for index in range(1, 5)}
    refused.add(NodeChanged(node=a_node("n1", room={"cpu": 63_000})))
    refused.add(NodeChanged(node=a_node("n1", room={"cpu": 63_000}, foreign_gpus=1, launchers=("low9",))))
    refused.add(NodeChanged(node=a_node("n1", room={"cpu": 64_000})))
    refused.wait()
    assert (refused.size("picky"), refused.disturbed) == (0, before)


def test_workers_that_nodes_took_stay_and_others_get_back_what_they_left() -> None:
    world = World(low(0, min_replicas=1, max_replicas=16), takes={f"n{index}": 1 for index in range(1, 5)})
    world.settle()
    world.add(picky(8, least=1))
    world.settle()
    assert (world.size("picky"), world.size("low0")) == (2, 14)
    before = world.disturbed.copy()
    for _ in range(5):
        world.wait()
    assert (world.size("picky"), world.size("low0"), world.disturbed) == (2, 14, before)


def test_job_that_runs_with_what_nodes_took_grows_into_free_gpus() -> None:
    world = World(low(0, min_replicas=1, max_replicas=16), takes={f"n{index}": 1 for index in range(1, 5)})
    world.settle()
    world.add(picky(8, least=1))
    world.settle()
    size = world.size("picky")
    world.takes = {f"n{index}": 4 for index in range(1, 5)}
    done = tuple(world.job("low0").workers)
    world.add(WorkerExited(job_id="low0", workers=done, cause="finished"), JobCompleted(job_id="low0"))
    world.wait()
    assert size < world.size("picky") == 8


def test_job_that_was_refused_on_free_gpus_may_still_displace_others_once() -> None:
    world = World(*(low(index) for index in range(3)))
    world.settle()
    world.add(picky())
    world.settle()
    for _ in range(5):
        world.wait()
    assert sum(world.disturbed.values()) == 1


def test_job_for_which_nobody_left_anything_is_planned_as_before() -> None:
    world = World(takes={})
    world.add(picky())
    world.settle()
    assert world.job("picky").refusals
    assert world.job("picky").displaced_in_vain is None


def test_leavers_that_end_or_are_drained_are_not_displaced_by_anybody() -> None:
    world = a_full_pool()
    world.add(NodeDrainRequested(name="n4"))
    world.settle()
    world.add(NodeUndrainRequested(name="n4"))
    world.settle()
    assert not any(job.has_displaced for job in world.state.jobs.values())


def test_snapshot_keeps_that_it_was_in_vain(refused: World) -> None:
    again = Live()
    again.load(refused.live.dump())
    assert again.state("default") == refused.state
    folded = Live()
    for event in refused.log.events:
        folded.apply(event)
    assert folded.dump() == refused.live.dump()


@pytest.mark.parametrize("least", [4, 1], ids=["rigid", "elastic"])
def test_guaranteed_job_that_was_refused_takes_no_idle_cells_back_again(least: int) -> None:
    cells = some_cells({"vision": {"node": 2}, "speech": {"node": 2}})
    world = World(VirtualClustersApplied(pool="default", cells=cells))
    world.add(*(low(index, virtual_cluster="speech") for index in range(4)))
    world.settle()
    assert [world.size(f"low{index}") for index in range(4)] == [4] * 4
    world.add(picky(4, least=least, priority=0, virtual_cluster="vision"))
    world.settle()
    before = world.disturbed.copy()
    assert +before == Counter(low2=1, low3=1)
    for _ in range(10):
        world.wait()
    assert world.disturbed == before
    assert [world.size(f"low{index}") for index in range(4)] == [4] * 4
    assert "others made room for it in vain (n2: kube-scheduler does not bind worker picky-0" in said(
        world.state.plan.reasons["picky"]
    )
    # Once a node changes, its guarantee holds again.
    world.takes = {f"n{index}": 4 for index in range(1, 5)}
    world.add(NodeChanged(node=a_node("n2", labels={"zone": "b"})))
    world.settle()
    assert world.size("picky") == 4


def test_only_what_it_asks_of_nodes_makes_their_answers_void(refused: World) -> None:
    why: dict[str, Any] = {"reason": NoneAtWork(), "since": 0.0, "retry_after_s": 60.0}
    refused.add(JobBackedOff(pool="default", job_id="picky", at_work=0, planned=4, **why))
    refused.add(JobChanged(job_id="picky", epochs=7))
    job = refused.job("picky")
    assert (set(job.refusals), job.backoff is not None, job.displaced_in_vain is not None) == ({"n4"}, True, True)
    # It comes last no longer, and nodes refuse it all the same.
    refused.add(JobChanged(job_id="picky", priority=12))
    job = refused.job("picky")
    assert (set(job.refusals), job.backoff, job.displaced_in_vain is not None) == ({"n4"}, None, True)
    refused.add(JobChanged(job_id="picky", gpus_per_replica=Gpus(2)))
    job = refused.job("picky")
    assert (job.refusals, job.backoff, job.displaced_in_vain) == ({}, None, None)

"""The loop of one pool: what holds it up, what it does once that is over, and what ends it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from tests.builders import a_node, a_spec
from tests.pool_loops import LogStage
from tests.reasons import said
from tests.waiting import until
from voda.clock import SystemClock
from voda.cluster.port import Observed
from voda.concurrency import single_error
from voda.controller import pool_loop as loop_of_a_pool
from voda.domain.errors import ClusterUnavailable, Fenced, InvalidInput, StoreNotWritable, StoreUnavailable
from voda.domain.plan import Allocation
from voda.domain.reasons.requests import Requested
from voda.domain.state import ClusterState, linear_speedup
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import (
    ActionFailed,
    AnyFact,
    JobSubmitted,
    LeaderElected,
    NodeChanged,
    NodeDrainRequested,
    NodeUndrainRequested,
    SettingsChanged,
    WorkerStarted,
)
from voda.log.append_plan import Append
from voda.log.memory import MemoryStore
from voda.policies import POLICIES, Policy
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.workload import SpeedupProfile

PROFILE = SpeedupProfile(epochs=1, work_s=1e6, speedup=linear_speedup(4))
DEADLINE_S = 20.0


class FullStore(MemoryStore):
    """A log whose disk may be full."""

    is_full = False
    has_no_room_for: type[AnyFact] | None = None
    loses_answers_about: type[AnyFact] | None = None
    refuses: AnyFact | None = None
    most_together = 0
    """Streams of the append that had the most."""

    async def append_all(self, appends: Sequence[Append]) -> int:
        data = [fact.data for append in appends for fact in append.facts]
        if self.is_full or any(self.has_no_room_for is type(each) for each in data):
            raise StoreNotWritable("the disk is full")
        if self.refuses in data:
            raise InvalidInput("it cannot be stored")
        position = await super().append_all(appends)
        self.most_together = max(self.most_together, len(appends))
        if any(self.loses_answers_about is type(each) for each in data):
            self.loses_answers_about = None
            raise StoreUnavailable("the connection broke")
        return position


class ShyCluster(SimulatedCluster):
    """Does not answer a number of times."""

    silences = 0

    async def observe(self) -> Observed:
        if self.silences > 0:
            self.silences -= 1
            raise ClusterUnavailable("not now")
        return await super().observe()


class Clumsy:
    """A policy with a flaw, until it is mended."""

    name: ClassVar = "fifo"
    title: ClassVar = "Clumsy"
    paper: ClassVar = ""
    is_mended = False

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        if not self.is_mended:
            raise ZeroDivisionError("by nothing")
        return POLICIES.choose("fifo").allocate(view, now)


class Stage(LogStage):
    """A pool of one node with two GPUs, where everything but the loop can be broken."""

    store: FullStore

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self.clock = SystemClock()
        self.store = FullStore()
        self.cluster = ShyCluster([a_node("n1", gpus=2)], now=self.clock.now)
        self.loop = self.a_loop(self.cluster, policies=lambda name: policies.get(name) or POLICIES.choose(name))

    async def submit(self, job_id: str) -> None:
        spec = a_spec(job_id)
        self.cluster.admit(spec, PROFILE)
        await self.add(JobSubmitted(spec=spec))

    async def follow(self) -> None:
        async for event in self.store.tail(0):
            self.loop.see(event)

    def runs(self, job_id: str) -> Callable[[], bool]:
        return lambda: job_id in self.cluster.workers()


@asynccontextmanager
async def a_stage(policies: Mapping[str, Policy] | None = None) -> AsyncIterator[Stage]:
    """Yield a stage whose loop leads."""
    stage = Stage(policies or {})
    await stage.add(SettingsChanged(pool="default", settings={"ratelimit_s": 0.0}))
    await stage.add(SettingsChanged(pool="default", settings={"policy": "fifo"}))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(stage.follow()), group.create_task(stage.loop.run("me"))]
        await until(lambda: stage.loop.is_leading)
        yield stage
        for task in tasks:
            task.cancel()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_of_a_pool, "_RETRY_S", 0.05)
    monkeypatch.setattr(loop_of_a_pool, "_RETRY_UNEXPECTED_S", 0.05)


async def test_loop_when_the_disk_of_the_log_was_full_goes_on_once_there_is_room() -> None:
    async with a_stage() as stage:
        await stage.submit("a")
        stage.store.is_full = True
        await until(lambda: "the disk is full" in stage.loop.failure)
        assert not stage.runs("a")()
        stage.store.is_full = False
        await until(stage.runs("a"))
        await until(lambda: stage.loop.failure == "")


async def test_failure_of_an_action_that_the_log_could_not_take_is_kept_until_it_can() -> None:
    async with a_stage() as stage:
        stage.store.has_no_room_for = ActionFailed
        # The cluster does not know the job: its start is refused.
        await stage.add(JobSubmitted(spec=a_spec("a")))
        await until(lambda: "the disk is full" in stage.loop.failure)
        stage.store.has_no_room_for = None
        await until(lambda: stage.loop.failure == "")
        first, *_ = [event.data for event in await stage.recorded(ActionFailed)]
        assert isinstance(first, ActionFailed)
        assert (first.job_id, first.action, first.attempt) == ("a", "StartJob", 1)


async def test_loop_when_an_answer_of_the_log_is_lost_has_told_what_happened_once() -> None:
    async with a_stage() as stage:
        stage.store.loses_answers_about = WorkerStarted
        await stage.submit("a")
        await until(lambda: "the connection broke" in stage.loop.failure)
        await until(lambda: stage.loop.failure == "")
        await stage.submit("b")
        await until(stage.runs("b"))
        told = [event.data for event in await stage.store.read(0, 1_000) if isinstance(event.data, WorkerStarted)]
        assert [fact.job_id for fact in told].count("a") == 1


async def test_loop_when_workers_start_together_records_them_in_one_append_once_though_its_answer_is_lost() -> None:
    async with a_stage() as stage:
        stage.cluster.silences = 1
        await stage.submit("a")
        await stage.submit("b")
        stage.store.loses_answers_about = WorkerStarted
        await until(lambda: stage.runs("a")() and stage.runs("b")())
        await until(lambda: "the connection broke" in stage.loop.failure)
        await until(lambda: stage.loop.failure == "")
        told = [event.data for event in await stage.store.read(0, 1_000) if isinstance(event.data, WorkerStarted)]
        assert sorted(fact.job_id for fact in told) == ["a", "b"]
        assert stage.store.most_together == 2


async def test_loop_when_one_of_several_facts_cannot_be_recorded_records_the_others() -> None:
    async with a_stage() as stage:
        stage.cluster.silences = 1
        stage.store.refuses = WorkerStarted(job_id="a", workers={0: "n1"})
        await stage.submit("a")
        await stage.submit("b")
        await until(lambda: "b" in stage.loop.live.cluster.jobs("default"))
        await until(lambda: bool(stage.loop.live.cluster.jobs("default")["b"].workers))
        assert not stage.loop.live.cluster.jobs("default")["a"].workers


async def test_loop_when_the_only_node_is_drained_halts_its_job_until_it_is_undrained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_of_a_pool, "RESYNC_S", 0.05)
    monkeypatch.setattr(loop_of_a_pool, "_CONFIRM_S", 0.01)
    async with a_stage() as stage:
        await stage.submit("a")
        await until(stage.runs("a"))
        await stage.add(NodeDrainRequested(name="n1", reason=Requested(by="ada")))
        await until(lambda: not stage.runs("a")())
        await until(lambda: "none is free" in said(stage.loop.live.cluster.plan("default").reasons["a"]))
        await stage.add(NodeUndrainRequested(name="n1"))
        await until(stage.runs("a"))
        # The node itself was always as the cluster shows it: no resync has anything to repair.
        assert not [event for event in await stage.store.read(0, 1_000) if isinstance(event.data, NodeChanged)]


async def test_loop_when_a_policy_has_a_flaw_stands_still_and_says_why_until_it_is_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clumsy = Clumsy()
    async with a_stage({"fifo": clumsy}) as stage:
        await stage.submit("a")
        await until(lambda: "ZeroDivisionError" in stage.loop.failure)
        clumsy.is_mended = True
        await until(stage.runs("a"))
        await until(lambda: stage.loop.failure == "")
    assert sum("Traceback" in (record.exc_text or "") for record in caplog.records) == 1


async def test_start_when_the_cluster_did_not_answer_follows_once_it_does() -> None:
    async with a_stage() as stage:
        await stage.submit("a")
        await until(stage.runs("a"))
        stage.cluster.silences = 3
        await stage.submit("b")
        # Long before the next relist.
        await until(stage.runs("b"))
        assert stage.cluster.silences == 0


async def _overthrown() -> None:
    async with a_stage() as stage:
        elected = LeaderElected(pool="default", leader="other")
        fact = Fact(data=elected, event_id="other", recorded_at=stage.clock.now())
        await stage.store.append("decisions.default", ANY_VERSION, [fact], epoch=99)
        await stage.submit("a")
        await asyncio.sleep(DEADLINE_S)


async def test_loop_when_another_leader_took_over_ends() -> None:
    with pytest.raises(ExceptionGroup) as ended:
        await _overthrown()
    assert isinstance(single_error(ended.value), Fenced)

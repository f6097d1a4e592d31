"""The worker reconciler: what is tried when, and what a failure of one job means for the others."""

import asyncio
import math
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_spec, a_state
from tests.waiting import until
from voda.clock import VirtualClock
from voda.cluster.port import Observed
from voda.domain.errors import ActionRefused, ClusterUnavailable, Fenced, StoreUnavailable
from voda.domain.plan import Action, Placement, ResizeJob, StartJob
from voda.domain.state import ClusterState, linear_speedup
from voda.events.envelope import Fact
from voda.events.types import ActionFailed
from voda.log.memory import MemoryStore
from voda.reconcilers.watcher import Watcher
from voda.reconcilers.workers import WorkerReconciler
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.workload import SpeedupProfile

PROFILE = SpeedupProfile(epochs=1, work_s=1e6, speedup=linear_speedup(4))


class UnwillingCluster(SimulatedCluster):
    """Refuses actions of some kinds on job `a`."""

    refuses: tuple[type, ...] = ()
    error: Exception = ActionRefused("not today")

    async def apply(self, action: Action) -> None:
        if isinstance(action, self.refuses) and action.job_id == "a":
            raise self.error
        await super().apply(action)


class Stage:
    """A reconciler before a node of four GPUs, with jobs `a` and `b` made known."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.clock = VirtualClock(1000.0)
        self.store = store or MemoryStore()
        self.use(UnwillingCluster([a_node("n1")], now=self.clock.now))

    def use(self, cluster: UnwillingCluster, *, jobs: str = "ab", concurrency: int = 1) -> None:
        """Begin anew with that cluster."""
        self.cluster = cluster
        for job_id in jobs:
            cluster.admit(a_spec(job_id, max_replicas=4), PROFILE)
        watcher = Watcher(store=self.store, clock=self.clock)
        self.reconciler = WorkerReconciler(cluster=cluster, watcher=watcher, clock=self.clock, concurrency=concurrency)

    async def step(self, placement: Placement, *, jobs: str = "ab") -> int:
        async def current() -> ClusterState:
            live = [a_job(job_id, max_replicas=4) for job_id in jobs]
            return a_state(jobs=live, nodes=[a_node("n1")], placement=placement)

        return await self.reconciler.step(current)

    def workers(self) -> dict[str, int]:
        return {job_id: len(indices) for job_id, indices in self.cluster.workers().items()}

    async def attempts(self) -> Sequence[int]:
        return [event.data.attempt for event in await self.store.read(0, 99) if isinstance(event.data, ActionFailed)]


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_step_when_an_action_is_refused_then_it_is_an_event_and_the_others_are_done(stage: Stage) -> None:
    stage.cluster.refuses = (StartJob,)
    assert await stage.step({"a": ("n1",), "b": ("n1",)}) == 1
    assert stage.workers() == {"b": 1}
    assert await stage.attempts() == [1]


async def test_step_when_an_action_fails_as_nobody_foresaw_then_the_others_are_done_and_it_is_tried_later(
    stage: Stage,
) -> None:
    stage.cluster.refuses, stage.cluster.error = (StartJob,), KeyError("of an object that nobody expected")
    assert await stage.step({"a": ("n1",), "b": ("n1",)}) == 1
    assert stage.workers() == {"b": 1}
    assert await stage.attempts() == [1]
    assert stage.reconciler.resume_at < math.inf


async def test_step_when_an_action_keeps_failing_then_it_is_tried_less_and_less_often(stage: Stage) -> None:
    stage.cluster.refuses = (StartJob,)
    tried_at: list[float] = []
    for second in range(20):
        stage.clock.move_to(1000.0 + second)
        before = await stage.attempts()
        await stage.step({"a": ("n1",)})
        tried_at += [second] if await stage.attempts() != before else []
    assert tried_at == [0, 1, 3, 7, 15]
    assert stage.reconciler.resume_at == 1031.0


async def test_step_when_a_pause_is_over_and_the_action_succeeds_then_nothing_is_paused(stage: Stage) -> None:
    stage.cluster.refuses = (StartJob,)
    await stage.step({"a": ("n1",)})
    stage.cluster.refuses = ()
    assert await stage.step({"a": ("n1",)}) == 0
    stage.clock.move_to(1001.0)
    assert await stage.step({"a": ("n1",)}) == 1
    assert stage.reconciler.resume_at == math.inf


async def test_pause_when_it_ends_during_the_step_that_left_its_job_alone_is_not_forgotten(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = stage.cluster.apply

    async def late(action: Action) -> None:
        stage.clock.move_to(1005.0)
        await apply(action)

    stage.cluster.refuses = (StartJob,)
    await stage.step({"a": ("n1",)})
    monkeypatch.setattr(stage.cluster, "apply", late)
    assert await stage.step({"a": ("n1",), "b": ("n1",)}) == 1
    assert stage.reconciler.resume_at == 1001.0


async def test_step_when_a_paused_job_shall_do_something_else_then_that_is_done_at_once(stage: Stage) -> None:
    await stage.step({"a": ("n1",)})
    stage.cluster.refuses = (ResizeJob,)
    await stage.step({"a": ("n1", "n1")})
    assert await stage.attempts() == [1]
    assert await stage.step({}) == 1
    assert stage.workers() == {}


async def test_pause_when_its_job_has_ended_then_it_is_forgotten(stage: Stage) -> None:
    stage.cluster.refuses = (StartJob,)
    await stage.step({"a": ("n1",)})
    await stage.step({}, jobs="b")
    assert stage.reconciler.resume_at == math.inf


class BusyCluster(UnwillingCluster):
    """Asks for patience instead of starting job `a`."""

    async def apply(self, action: Action) -> None:
        if action.job_id == "a":
            raise ClusterUnavailable("too many requests", retry_after_s=7.5)
        await super().apply(action)


async def test_pause_when_the_cluster_asks_for_one_is_at_least_that_long(stage: Stage) -> None:
    stage.use(BusyCluster([a_node("n1")], now=stage.clock.now))
    assert await stage.step({"a": ("n1",), "b": ("n1",)}) == 1
    assert stage.reconciler.resume_at == 1007.5


class SlowCluster(UnwillingCluster):
    """Holds every action on job `a` until it is let go, and notes what is begun, in order."""

    def __init__(self, stage: "Stage") -> None:
        super().__init__([a_node("n1"), a_node("n2")], now=stage.clock.now)
        self.let_go = asyncio.Event()
        self.begun: list[tuple[str, str]] = []
        self.under_way = self.most_under_way = 0

    async def apply(self, action: Action) -> None:
        self.begun.append((action.job_id, type(action).__name__))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if action.job_id == "a":
                await self.let_go.wait()
            else:
                await asyncio.sleep(0)
            await super().apply(action)
        finally:
            self.under_way -= 1


async def test_step_when_several_jobs_may_be_acted_on_then_a_slow_one_holds_up_no_other(stage: Stage) -> None:
    cluster = SlowCluster(stage)
    stage.use(cluster, jobs="abcd", concurrency=2)
    placement = dict.fromkeys("abcd", ("n1",))
    step = asyncio.ensure_future(stage.step(placement, jobs="abcd"))
    await until(lambda: set(cluster.workers()) == {"b", "c", "d"})
    assert not step.done()
    cluster.let_go.set()
    assert await step == 4
    assert set(cluster.workers()) == {"a", "b", "c", "d"}
    assert cluster.most_under_way == 2


class LostStore(MemoryStore):
    """Cannot be written to."""

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        raise StoreUnavailable("the log is away")


async def test_step_when_a_failure_cannot_be_written_down_then_that_is_raised_and_others_are_done() -> None:
    stage = Stage(LostStore())
    stage.use(stage.cluster, concurrency=2)
    stage.cluster.refuses = (StartJob,)
    with pytest.raises(StoreUnavailable):
        await stage.step({"a": ("n1",), "b": ("n1",)})
    assert stage.workers() == {"b": 1}


async def test_job_that_is_started_by_a_successor_just_before_the_cluster_is_observed_is_not_stopped(
    stage: Stage,
) -> None:
    log = ["b"]

    class Successor(SimulatedCluster):
        """Submits and starts job `a` while the reconciler under test is on its way to look."""

        async def observe(self) -> Observed:
            log.append("a")
            await super().apply(StartJob(job_id="a", nodes=("n1",)))
            return await super().observe()

    async def current() -> ClusterState:
        return a_state(
            jobs=[a_job(job_id) for job_id in log], nodes=[a_node("n1")], placement=dict.fromkeys(log, ("n1",))
        )

    cluster = Successor([a_node("n1")], now=stage.clock.now)
    for job_id in "ab":
        cluster.admit(a_spec(job_id), PROFILE)
    reconciler = WorkerReconciler(
        cluster=cluster, watcher=Watcher(store=stage.store, clock=stage.clock), clock=stage.clock
    )
    await reconciler.step(current)
    assert set(cluster.workers()) == {"a", "b"}


async def test_step_when_another_leads_by_now_ends_and_records_no_failure(stage: Stage) -> None:
    stage.cluster.refuses, stage.cluster.error = (StartJob,), Fenced("another process leads")
    with pytest.raises(Fenced):
        await stage.step({"a": ("n1",), "b": ("n1",)})
    assert stage.workers() == {}
    assert await stage.attempts() == []


class RetryingCluster(UnwillingCluster):
    """Starts nothing of job `a` for 8 s after its program failed."""

    async def observe(self) -> Observed:
        return replace(await super().observe(), retries={"a": 1008.0} if self._now() < 1008 else {})


async def test_step_when_a_job_waits_for_its_next_try_looks_again_then(stage: Stage) -> None:
    stage.use(RetryingCluster([a_node("n1")], now=stage.clock.now))
    assert await stage.step({"a": ("n1",), "b": ("n1",)}) == 1
    assert (stage.workers(), stage.reconciler.resume_at) == ({"b": 1}, 1008.0)
    stage.clock.move_to(1008)
    assert await stage.step({"a": ("n1",), "b": ("n1",)}) == 1
    assert (stage.workers(), stage.reconciler.resume_at) == ({"a": 1, "b": 1}, math.inf)

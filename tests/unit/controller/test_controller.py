"""The controller: when it decides, what it records, and that a former leader cannot."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from tests.builders import a_node, a_spec
from tests.pool_loops import LogStage
from tests.reasons import said
from tests.telemetry import RecordingTelemetry
from voda.clock import VirtualClock
from voda.controller.controller import Controller
from voda.controller.snapshots import take_snapshots
from voda.domain.dependency import Dependency
from voda.domain.errors import Fenced, InvalidInput, StoreUnavailable
from voda.domain.job_array import ArrayTask
from voda.domain.node import PodNeeds
from voda.domain.plan import Allocation
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.outcomes import Promoted, QueueReason, Waits
from voda.domain.reasons.requests import NotCompleted
from voda.domain.state import ClusterState
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import (
    AnyFact,
    ExitCause,
    JobBackedOff,
    JobCanceled,
    JobCancelRequested,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobHaltRequested,
    JobProgressed,
    JobQueueLevelChanged,
    JobStalled,
    JobSubmitted,
    LeaderElected,
    NodeChanged,
    NodeDrainRequested,
    NodeJoined,
    NodeRoomChanged,
    PlanAdopted,
    SettingsChanged,
    WorkerExited,
    WorkerStarted,
)
from voda.log.append_plan import Append
from voda.log.memory import MemoryStore
from voda.metrics import CONTROLLER_STEP_DURATION, REPLAN_DURATION
from voda.policies import POLICIES, Policy
from voda.timetravel.verify import verify


class Stage(LogStage):
    """A controller on a memory store, with two GPUs and a clock that the test moves."""

    clock: VirtualClock

    def __init__(self, policies: Mapping[str, Policy] | None = None, clock: VirtualClock | None = None) -> None:
        self.store = MemoryStore()
        self.clock = clock or VirtualClock(1000.0)
        self.policies = policies or {}
        self.telemetry = RecordingTelemetry()
        self.controller = self.another()

    def another(self) -> Controller:
        return self.a_controller(
            policies=lambda name: self.policies.get(name) or POLICIES.choose(name), telemetry=self.telemetry
        )

    @property
    def decisions(self) -> list[tuple[str, ...]]:
        """Return the pool of each decision that was timed."""
        return self.telemetry.spans(REPLAN_DURATION)

    @property
    def steps(self) -> list[tuple[str, ...]]:
        """Return the pool of each step that was timed."""
        return self.telemetry.spans(CONTROLLER_STEP_DURATION)

    async def begin(self, *, ratelimit_s: float = 30.0, policy: str = "fifo") -> None:
        await self.add(NodeJoined(node=a_node("n1", gpus=2)))
        await self.add(SettingsChanged(pool="default", settings={"ratelimit_s": float(ratelimit_s)}))
        await self.add(SettingsChanged(pool="default", settings={"policy": policy}))
        await self.controller.lead("me")
        await self.controller.step()

    async def begin_again(self) -> None:
        """Give the controller something to decide."""
        await self.add(NodeJoined(node=a_node("n1", gpus=2)))
        await self.add(JobSubmitted(spec=a_spec("again")))
        await self.controller.step()

    async def step_at(self, instant: float) -> float:
        self.clock.move_to(instant)
        return await self.controller.step()

    async def plans(self) -> list[PlanAdopted]:
        return [event.data for event in await self.recorded(PlanAdopted) if isinstance(event.data, PlanAdopted)]


class PassingClock(VirtualClock):
    """A clock that a millisecond passes on between two readings."""

    def now(self) -> float:
        self.move_to(super().now() + 0.001)
        return super().now()


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_first_event_after_a_quiet_time_is_served_at_once(stage: Stage) -> None:
    await stage.begin()
    await stage.add(JobSubmitted(spec=a_spec("a")))
    assert await stage.step_at(1100) == 1220, "unless it takes its GPUs until then"
    (plan,) = await stage.plans()
    assert (plan.placed, plan.cause, set(plan.reasons)) == ({"a": ("n1",)}, "job.submitted", {"a"})


async def test_events_within_the_rate_limit_of_an_interruption_are_coalesced_into_one_plan(stage: Stage) -> None:
    await stage.begin(policy="elastic-fifo")
    await stage.add(JobSubmitted(spec=a_spec("a", max_replicas=2)))
    await stage.step_at(1100)
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    await stage.add(JobSubmitted(spec=a_spec("b")))
    await stage.step_at(1110)
    assert [plan.placed.keys() for plan in await stage.plans()] == [{"a"}, {"a", "b"}]
    await stage.add(NodeJoined(node=a_node("n2", gpus=1)))
    assert await stage.step_at(1111) == 1140
    await stage.add(JobSubmitted(spec=a_spec("c", min_replicas=2, max_replicas=2)))
    assert await stage.step_at(1139) == 1140
    await stage.step_at(1140)
    plan = (await stage.plans())[2:]
    assert [plan.placed.keys() for plan in plan] == [{"a"}]


async def test_plan_of_a_policy_that_weighs_restarts_puts_the_next_one_off_by_a_tenth_of_the_rate_limit(
    stage: Stage,
) -> None:
    await stage.begin(policy="elastic-value")
    await stage.add(JobSubmitted(spec=a_spec("a", max_replicas=2, requested_replicas=2)))
    await stage.step_at(1100)
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    await stage.add(JobSubmitted(spec=a_spec("b", priority=1)))
    await stage.step_at(1110)
    assert stage.controller.live.cluster.plan("default").replicas == {"a": 1, "b": 1}
    await stage.add(NodeJoined(node=a_node("n2", gpus=1)))
    assert await stage.step_at(1111) == 1113
    await stage.step_at(1113)
    assert (await verify(stage.store)).difference is None


async def test_job_that_fits_free_gpus_starts_within_the_rate_limit_as_requested_and_no_other_is_touched(
    stage: Stage,
) -> None:
    await stage.begin(policy="elastic-fifo")
    await stage.add(JobSubmitted(spec=a_spec("a", max_replicas=8)))
    await stage.step_at(1100)
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    await stage.add(JobSubmitted(spec=a_spec("b")))
    await stage.step_at(1110)
    await stage.add(NodeJoined(node=a_node("n2", gpus=4)))
    await stage.add(JobSubmitted(spec=a_spec("c", max_replicas=4, requested_replicas=2)))
    await stage.add(JobSubmitted(spec=a_spec("large", min_replicas=8, max_replicas=8)))
    assert await stage.step_at(1111) == 1140
    plan = (await stage.plans())[-1]
    assert (plan.placed, plan.released, plan.only_starts) == ({"c": ("n2", "n2")}, (), True)
    assert stage.controller.live.cluster.undecided("default") == {"large"}
    await stage.step_at(1140)
    assert stage.controller.live.cluster.undecided("default") == set()
    assert (await verify(stage.store)).difference is None


@pytest.mark.parametrize(
    "change",
    [
        JobChanged(job_id="b", min_replicas=2, max_replicas=2),
        NodeChanged(node=a_node("n1", gpus=1)),
        NodeChanged(node=a_node("n1", gpus=2, is_ready=False)),
        NodeChanged(node=a_node("n1", gpus=2, is_schedulable=False)),
        NodeDrainRequested(name="n1"),
    ],
)
async def test_job_starts_within_the_rate_limit_only_where_others_may_keep_what_they_have(
    stage: Stage, change: AnyFact
) -> None:
    await stage.begin(policy="elastic-fifo")
    await stage.add(JobSubmitted(spec=a_spec("a", max_replicas=8)))
    await stage.step_at(1100)
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    await stage.add(JobSubmitted(spec=a_spec("b")))
    await stage.step_at(1110)
    before = len(await stage.plans())
    await stage.add(NodeJoined(node=a_node("n2", gpus=4)))
    await stage.add(change)
    await stage.add(JobSubmitted(spec=a_spec("c")))
    assert await stage.step_at(1111) == 1140
    assert len(await stage.plans()) == before
    await stage.step_at(1140)
    assert [plan.only_starts for plan in (await stage.plans())[before:]] == [False]


async def test_gpus_that_a_job_leaves_go_to_a_waiting_one_at_once(stage: Stage) -> None:
    await stage.begin()
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.step_at(1000.5)
    await stage.add(JobSubmitted(spec=a_spec("b")))
    assert await stage.step_at(1003) == 1123
    assert [plan.placed.keys() for plan in await stage.plans()] == [{"a", "b"}]
    await stage.add(JobSubmitted(spec=a_spec("c")))
    await stage.add(JobCompleted(job_id="a"))
    assert await stage.step_at(1004) == 1006
    assert stage.controller.live.cluster.plan("default").replicas == {"b": 1, "c": 1}
    assert (await verify(stage.store)).difference is None


async def test_jobs_start_within_the_rate_limit_once_a_second_at_the_most(stage: Stage) -> None:
    await stage.begin()
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.step_at(1100)
    await stage.add(JobSubmitted(spec=a_spec("b")))
    assert await stage.step_at(1100.5) == 1101
    assert stage.controller.live.cluster.plan("default").replicas == {"a": 1}
    await stage.step_at(1101)
    assert stage.controller.live.cluster.plan("default").replicas == {"a": 1, "b": 1}


async def test_task_beyond_the_bound_of_its_array_does_not_start_on_free_gpus(stage: Stage) -> None:
    await stage.begin()
    for index in range(2):
        array = ArrayTask(array_id="sweep", name="sweep", index=index, indices="0-1", at_once=1)
        await stage.add(JobSubmitted(spec=a_spec(f"sweep-{index}", array=array)))
        await stage.step_at(1100 + 2 * index)
    assert stage.controller.live.cluster.plan("default").replicas == {"sweep-0": 1}


@pytest.mark.parametrize("asked", [JobCancelRequested(job_id="a"), JobHaltRequested(job_id="a")])
async def test_plan_that_takes_gpus_as_the_user_asked_interrupts_nobody(stage: Stage, asked: AnyFact) -> None:
    await stage.begin()
    await stage.add(JobSubmitted(spec=a_spec("a", min_replicas=2, max_replicas=2)))
    await stage.step_at(1100)
    await stage.add(asked)
    await stage.step_at(1110)
    await stage.add(JobSubmitted(spec=a_spec("b")))
    await stage.step_at(1113)
    assert stage.controller.live.cluster.plan("default").replicas == {"b": 1}


async def test_leader_that_took_over_does_not_know_whether_the_last_plan_interrupted_anybody(stage: Stage) -> None:
    await stage.begin()
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.step_at(1100)
    stage.controller = stage.another()
    await stage.controller.lead("successor")
    await stage.add(JobSubmitted(spec=a_spec("b")))
    assert await stage.step_at(1101) == 1130


async def test_decision_that_changes_nothing_is_not_recorded(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0)
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.step_at(1100)
    before = await stage.store.position()
    await stage.add(NodeJoined(node=a_node("n1", gpus=2)))
    await stage.step_at(1200)
    assert await stage.store.position() == before + 1


async def test_plan_is_based_on_the_log_it_was_decided_from(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0)
    await stage.add(JobSubmitted(spec=a_spec("a")))
    end = await stage.store.position()
    await stage.step_at(1100)
    (event,) = await stage.recorded(PlanAdopted)
    assert isinstance(event.data, PlanAdopted)
    assert (event.data.based_on, event.recorded_at, event.stream, event.epoch) == (end, 1100, "decisions.default", 1)


async def test_canceled_job_without_workers_is_ended_at_once(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0)
    await stage.add(JobSubmitted(spec=a_spec("a", min_replicas=9, max_replicas=9)))
    await stage.step_at(1100)
    await stage.add(JobCancelRequested(job_id="a"))
    await stage.step_at(1101)
    assert stage.controller.live.cluster.jobs("default") == {}


async def test_many_jobs_are_canceled_in_few_appends() -> None:
    stage = Stage()
    stage.store = store = CountingStore()
    stage.controller = stage.another()
    await stage.begin(ratelimit_s=0)
    await stage.add(JobSubmitted(spec=a_spec("a")))
    for number in range(1001):
        await stage.add(JobSubmitted(spec=a_spec(f"b{number}", after=(Dependency(job_id="a"),))))
    await stage.add(JobFailed(job_id="a", reason=Said(text="x")))
    before = store.appends
    await stage.step_at(1101)
    assert len(await stage.recorded(JobCanceled)) == 1001
    assert store.appends - before <= 8
    assert stage.controller.live.cluster.jobs("default") == {}


async def test_canceled_job_that_is_planned_is_ended_once_no_plan_starts_it(stage: Stage) -> None:
    await stage.begin(ratelimit_s=10)
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.step_at(1100)
    # Its workers may be starting, and the log know nothing of it yet: whoever leads next would not, either.
    await stage.add(JobCancelRequested(job_id="a"))
    await stage.step_at(1100.5)
    assert set(stage.controller.live.cluster.jobs("default")) == {"a"}
    due_at = await stage.step_at(1101)
    assert stage.controller.live.cluster.plan("default").placement == {}
    assert due_at == 1101
    await stage.step_at(1101)
    assert stage.controller.live.cluster.jobs("default") == {}


async def test_canceled_job_with_workers_is_ended_when_they_are_gone(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0)
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1"}))
    await stage.add(JobCancelRequested(job_id="a"))
    await stage.step_at(1100)
    assert set(stage.controller.live.cluster.jobs("default")) == {"a"}
    await stage.add(WorkerExited(job_id="a", workers=(0,)))
    await stage.step_at(1101)
    assert stage.controller.live.cluster.jobs("default") == {}


class LateStore(MemoryStore):
    """Keeps an end of a job under way, as a link does that stands still, and says that it did not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.is_late = False
        self.under_way: list[Fact] = []

    async def append_all(self, appends: Sequence[Append]) -> int:
        facts = [fact for append in appends for fact in append.facts]
        if not (self.is_late and isinstance(facts[0].data, JobCanceled)):
            return await super().append_all(appends)
        self.under_way += facts
        raise StoreUnavailable("no answer")

    async def arrive(self) -> None:
        self.is_late = False
        for fact in self.under_way:
            await self.append(fact.data.stream, ANY_VERSION, [fact])


@pytest.mark.parametrize("is_succeeded", [False, True])
async def test_canceled_job_whose_end_arrives_after_it_was_recorded_again_ended_once(is_succeeded: bool) -> None:
    stage = Stage()
    stage.store = store = LateStore()
    stage.controller = stage.another()
    await stage.begin(ratelimit_s=0)
    await stage.add(JobSubmitted(spec=a_spec("a", min_replicas=9, max_replicas=9)))
    await stage.add(JobCancelRequested(job_id="a"))
    store.is_late = True
    with pytest.raises(StoreUnavailable):
        await stage.step_at(1100)
    assert len(store.under_way) == 1
    store.is_late = False
    if is_succeeded:
        stage.controller = stage.another()
        await stage.controller.lead("somebody else")
    await stage.step_at(1101)
    assert stage.controller.live.cluster.jobs("default") == {}
    await store.arrive()
    (ended,) = await stage.recorded(JobCanceled)
    assert ended.recorded_at == 1101


async def test_former_leader_is_refused_by_the_store(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0)
    successor = stage.another()
    assert await successor.lead("somebody else") == 2
    await stage.add(JobSubmitted(spec=a_spec("a")))
    with pytest.raises(Fenced, match="epoch 1 was followed by epoch 2"):
        await stage.step_at(1100)
    assert await stage.plans() == []
    await successor.step()
    assert len(await stage.plans()) == 1


async def test_new_leader_knows_what_the_old_one_decided(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0)
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.step_at(1100)
    successor = stage.another()
    await successor.lead("somebody else")
    await successor.step()
    assert len(await stage.plans()) == 1
    assert [event.epoch for event in await stage.recorded(LeaderElected)] == [1, 2]
    assert successor.live.state_hash() == await caught_up_hash(stage)


async def test_every_step_and_every_decision_is_timed(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0)
    before = len(stage.steps), len(stage.decisions)
    await stage.step_at(1100)
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.step_at(1101)
    assert (len(stage.steps), len(stage.decisions)) == (before[0] + 2, before[1] + 1)
    assert min(seconds for _, _, seconds in stage.telemetry.observed) > 0
    assert {*stage.steps, *stage.decisions} == {("default",)}


async def caught_up_hash(stage: Stage) -> str:
    await stage.controller.catch_up()
    return stage.controller.live.state_hash()


async def test_nudge_makes_a_decision_due_without_an_event(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0)
    before = len(stage.decisions)
    stage.controller.request_decision("tick")
    await stage.step_at(1500)
    assert len(stage.decisions) == before + 1


LATE = Promoted(waited_s=1, times=1.0, last_run_s=1)


class Rising:
    """Moves every job to queue 1 at the instant 2000."""

    name: ClassVar[str] = "rising"
    title: ClassVar[str] = "for the test"
    paper: ClassVar[str] = "none"

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        return Allocation(replicas=dict.fromkeys(view.jobs, 0), reasons=dict.fromkeys(view.jobs, Waits()))

    def requeue(self, view: ClusterState, now: float) -> Mapping[str, tuple[int, QueueReason]]:
        late = [job_id for job_id, job in view.jobs.items() if now >= 2000 and job.queue_level == 0]
        return dict.fromkeys(late, (1, LATE))

    def requeue_due_at(self, view: ClusterState, now: float) -> float:
        return 2000.0 if now < 2000 and view.jobs else float("inf")


async def test_policy_with_queues_is_asked_at_the_instant_it_named() -> None:
    stage = Stage({"rising": Rising()})
    await stage.begin(ratelimit_s=0, policy="rising")
    await stage.add(JobSubmitted(spec=a_spec("a")))
    assert await stage.step_at(1100) == 2000
    decisions = len(stage.decisions)
    assert await stage.step_at(2000) == float("inf")
    (moved,) = await stage.recorded(JobQueueLevelChanged)
    assert isinstance(moved.data, JobQueueLevelChanged)
    assert (moved.data.job_id, moved.data.queue_level, moved.data.reason) == ("a", 1, LATE)
    assert len(stage.decisions) == decisions + 1


async def test_policy_or_placer_that_nobody_knows_leaves_the_one_in_force() -> None:
    stage = Stage()
    await stage.begin(ratelimit_s=0)
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.step_at(1100)
    await stage.add(SettingsChanged(pool="default", settings={"policy": "dice", "placer": "darts"}))
    await stage.add(JobSubmitted(spec=a_spec("b")))
    await stage.step_at(1200)
    first, second = await stage.plans()
    assert (second.policy, second.placer) == (first.policy, first.placer) == ("fifo", "steady")
    assert set(second.placed) == {"b"}


async def test_policy_that_nobody_knows_is_refused_where_none_is_in_force() -> None:
    stage = Stage()
    with pytest.raises(InvalidInput, match="policy 'dice' is not known"):
        await stage.begin(policy="dice")


async def test_progress_alone_makes_no_decision_due(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0)
    await stage.add(JobSubmitted(spec=a_spec("a", epochs=9)))
    await stage.step_at(1100)
    decisions = len(stage.decisions)
    await stage.add(JobProgressed(job_id="a", epochs_done=1, workers=1))
    await stage.step_at(1200)
    assert len(stage.decisions) == decisions


class FlakyStore(MemoryStore):
    """Fails once to answer a decision, with or without having recorded it."""

    fails = False
    records_first = False

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        if not (self.fails and stream.startswith("decisions.")):
            return await super().append(stream, expected_version, facts, epoch=epoch)
        self.fails = False
        if self.records_first:
            await super().append(stream, expected_version, facts, epoch=epoch)
        raise StoreUnavailable("no answer")


@pytest.mark.parametrize("records_first", [False, True])
async def test_decision_when_the_store_did_not_answer_is_made_once_and_the_next_one_too(records_first: bool) -> None:
    stage = Stage()
    stage.store = store = FlakyStore()
    stage.controller = stage.another()
    await stage.begin(ratelimit_s=0)
    await stage.add(JobSubmitted(spec=a_spec("a")))
    store.fails, store.records_first = True, records_first
    with pytest.raises(StoreUnavailable):
        await stage.step_at(1100)
    await stage.step_at(1101)
    await stage.add(JobSubmitted(spec=a_spec("b")))
    await stage.step_at(1102)
    assert [set(plan.placed) for plan in await stage.plans()] == [{"a"}, {"b"}]


async def test_event_of_another_pool_neither_makes_a_decision_due_nor_uses_up_the_rate_limit(stage: Stage) -> None:
    await stage.begin(ratelimit_s=30)
    decisions = len(stage.decisions)
    await stage.add(NodeJoined(node=a_node("x1", pool="other")))
    await stage.add(JobSubmitted(spec=a_spec("x", pool="other")))
    await stage.step_at(1100)
    assert len(stage.decisions) == decisions
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.step_at(1101)
    assert [set(plan.placed) for plan in await stage.plans()] == [{"a"}]


async def test_node_that_goes_over_to_another_pool_makes_a_decision_due_in_both(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0)
    decisions = len(stage.decisions)
    await stage.add(NodeJoined(node=a_node("n1", pool="other")))
    await stage.step_at(1100)
    await stage.add(NodeJoined(node=a_node("n1")))
    await stage.step_at(1101)
    assert len(stage.decisions) == decisions + 2


async def test_leader_whose_predecessors_clock_was_ahead_does_not_wait_for_its_time(stage: Stage) -> None:
    await stage.begin()
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.step_at(9000)
    stage.clock = VirtualClock(2000.0, prefix="later-")
    stage.controller = stage.another()
    await stage.controller.lead("successor")
    await stage.add(JobSubmitted(spec=a_spec("b")))
    await stage.step_at(2001)
    assert [set(plan.placed) for plan in await stage.plans()] == [{"a"}, {"b"}]


# ---- an epoch from outside


async def test_lead_when_an_epoch_is_given_leads_in_it(stage: Stage) -> None:
    assert await stage.controller.lead("me", 7) == 7
    (elected,) = await stage.recorded(LeaderElected)
    assert elected.epoch == 7


@pytest.mark.parametrize("epoch", [6, 7])
async def test_lead_when_the_epoch_is_not_higher_than_the_stream_s_is_fenced(stage: Stage, epoch: int) -> None:
    await stage.controller.lead("me", 7)
    before = await stage.store.position()
    with pytest.raises(Fenced):
        await stage.another().lead("other", epoch)
    assert await stage.store.position() == before


async def test_lead_when_asked_again_because_something_else_failed_leads_on(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0)
    for _ in range(2):
        assert await stage.controller.lead("me", 7) == 7
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.step_at(1100)
    assert len(await stage.plans()) == 1
    assert [event.epoch for event in await stage.recorded(LeaderElected)] == [1, 7]
    assert await stage.controller.lead("me", 7) == 7
    await stage.add(JobSubmitted(spec=a_spec("b")))
    await stage.step_at(1200)
    assert len(await stage.plans()) == 2


class DeafStore(MemoryStore):
    """Records what is appended, but its answer may be lost."""

    loses_answers = False

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        position = await super().append(stream, expected_version, facts, epoch=epoch)
        if self.loses_answers:
            raise StoreUnavailable("the answer was lost")
        return position


async def test_lead_when_the_answer_to_the_election_was_lost_is_elected_once(stage: Stage) -> None:
    stage.store = store = DeafStore()
    stage.controller = stage.another()
    store.loses_answers = True
    with pytest.raises(StoreUnavailable):
        await stage.controller.lead("me", 7)
    store.loses_answers = False
    await stage.controller.lead("me", 7)
    assert len(await stage.recorded(LeaderElected)) == 1
    await stage.begin_again()
    assert len(await stage.plans()) == 1


async def test_lead_when_asked_again_after_another_took_over_is_fenced(stage: Stage) -> None:
    await stage.controller.lead("me", 7)
    await stage.another().lead("other", 8)
    with pytest.raises(Fenced):
        await stage.controller.lead("me", 7)
    # Elected anew, it leads again, and with all that it knows.
    await stage.controller.lead("me", 9)
    await stage.begin_again()
    assert len(await stage.plans()) == 1


async def test_lead_when_it_followed_the_log_keeps_what_it_folded(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0)
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.step_at(1100)
    standby = stage.another()
    await standby.warm()
    live, cluster = standby.live, standby.live.cluster
    await take_snapshots(stage.store, [stage.controller.live], stage.controller.live.position)
    await stage.add(JobCancelRequested(job_id="a"))
    await standby.lead("other", 2)
    assert (standby.live, standby.live.cluster) == (live, cluster)
    assert standby.live.position == await stage.store.position()
    fresh = stage.another()
    await fresh.warm()
    assert fresh.live.state_hash() == standby.live.state_hash()


class CountingStore(MemoryStore):
    """Counts its appends."""

    appends = 0

    async def append_all(self, appends: Sequence[Append]) -> int:
        self.appends += 1
        return await super().append_all(appends)


class CrashingStore(MemoryStore):
    """Fails at one append to a job's stream, with or without having recorded it."""

    crashes_at = -1
    records_first = False

    async def append_all(self, appends: Sequence[Append]) -> int:
        if not appends[0].stream.startswith("job.") or appends[0].expected_version == 0:
            return await super().append_all(appends)
        self.crashes_at -= 1
        if self.crashes_at == 0 and not self.records_first:
            raise StoreUnavailable("it crashed before")
        position = await super().append_all(appends)
        if self.crashes_at == 0:
            raise StoreUnavailable("it crashed after")
        return position


@pytest.mark.parametrize("records_first", [False, True])
@pytest.mark.parametrize("crashes_at", range(1, 7))
async def test_jobs_that_wait_in_vain_are_canceled_once_wherever_the_leader_crashes(
    crashes_at: int, records_first: bool
) -> None:
    stage = Stage()
    stage.store = store = CrashingStore()
    stage.controller = stage.another()
    await stage.begin(ratelimit_s=0)
    for job_id, after in {"a": "", "b": "a", "c": "b", "d": "c"}.items():
        spec = a_spec(job_id, after=(Dependency(job_id=after),) if after else ())
        fact = Fact(data=JobSubmitted(spec=spec), event_id=f"submit-{job_id}", recorded_at=stage.clock.now())
        await store.append(f"job.{job_id}", 0, [fact])
    await stage.step_at(1100)
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1"}))
    await stage.add(WorkerExited(job_id="a", workers=(0,), cause="failed", exit_code=1))
    await stage.add(JobFailed(job_id="a", reason=Said(text="exit code 1")))
    store.crashes_at, store.records_first = crashes_at, records_first
    with pytest.raises(StoreUnavailable):
        await stage.step_at(1200)
    stage.controller = stage.another()
    await stage.controller.lead("another")
    await stage.step_at(1201)
    requests = [event.data for event in await stage.recorded(JobCancelRequested)]
    assert requests == [
        JobCancelRequested(job_id="b", reason=NotCompleted(job="a")),
        JobCancelRequested(job_id="c", reason=NotCompleted(job="b", is_canceled=True)),
        JobCancelRequested(job_id="d", reason=NotCompleted(job="c", is_canceled=True)),
    ]
    assert [event.stream for event in await stage.recorded(JobCanceled)] == ["job.b", "job.c", "job.d"]
    assert dict(stage.controller.live.cluster.jobs("default")) == {}


async def test_workers_on_a_silent_node_when_its_grace_ends_are_planned_elsewhere_without_another_event() -> None:
    stage = Stage()
    await stage.begin(ratelimit_s=0.0)
    await stage.add(JobSubmitted(spec=a_spec("a", max_replicas=2)))
    await stage.controller.step()
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1"}))
    for name in ("n2", "n3"):
        await stage.add(NodeJoined(node=a_node(name, gpus=2)))
    await stage.add(NodeChanged(node=a_node("n1", gpus=2, is_ready=False)))
    assert await stage.controller.step() == 1060.0
    assert stage.controller.live.cluster.plan("default").placement["a"][0] == "n1"
    stage.clock.move_to(1060.0)
    assert await stage.controller.step() == float("inf")
    plan = stage.controller.live.cluster.plan("default")
    assert plan.cause == "node is silent"
    assert "n1" not in plan.placement["a"]


@pytest.mark.parametrize(
    ("needs", "is_due"), [(None, False), (PodNeeds(requests={"cpu": 1_000}), True)], ids=["GPUs alone", "CPUs too"]
)
async def test_room_of_a_node_makes_a_plan_due_where_a_job_asks_for_more_than_gpus(
    needs: PodNeeds | None, is_due: bool
) -> None:
    stage = Stage()
    await stage.begin(ratelimit_s=0.0)
    await stage.add(JobSubmitted(spec=a_spec("a", max_replicas=1, needs=needs)))
    await stage.controller.step()
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1"}))
    await stage.controller.step()
    decided = len(stage.decisions)
    await stage.add(NodeRoomChanged(name="n1", room={"cpu": 8_000}))
    await stage.controller.step()
    assert (len(stage.decisions) > decided) == is_due


async def test_nodes_when_each_is_silent_for_a_moment_move_no_worker() -> None:
    stage = Stage()
    await stage.begin(ratelimit_s=0.0, policy="elastic-fifo")
    await stage.add(JobSubmitted(spec=a_spec("a", max_replicas=2, min_replicas=2)))
    for name in ("n2", "n3"):
        await stage.add(NodeJoined(node=a_node(name, gpus=2)))
    await stage.controller.step()
    placed = stage.controller.live.cluster.plan("default").placement
    await stage.add(WorkerStarted(job_id="a", workers=dict(enumerate(placed["a"]))))
    for flap in range(20):
        for name in ("n1", "n2", "n3"):
            for is_ready in (False, True):
                stage.clock.move_to(1001.0 + flap)
                await stage.add(NodeChanged(node=a_node(name, gpus=2, is_ready=is_ready)))
                await stage.controller.step()
                assert stage.controller.live.cluster.plan("default").placement == placed


async def test_workers_of_a_node_that_says_fewer_gpus_when_its_grace_ends_are_as_many_as_it_says() -> None:
    stage = Stage()
    await stage.begin(ratelimit_s=0.0, policy="elastic-fifo")
    await stage.add(JobSubmitted(spec=a_spec("a", max_replicas=2)))
    await stage.controller.step()
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    for name in ("n2", "n3"):
        await stage.add(NodeJoined(node=a_node(name, gpus=2, is_schedulable=False)))
    await stage.controller.step()
    stage.clock.move_to(1010.0)
    await stage.add(NodeChanged(node=a_node("n1", gpus=1)))
    assert await stage.controller.step() == 1070.0
    assert stage.controller.live.cluster.plan("default").placement == {"a": ("n1", "n1")}
    # Whoever leads by then knows from the log since when.
    stage.controller = stage.another()
    stage.clock.move_to(1030.0)
    await stage.controller.lead("another")
    assert await stage.step_at(1031.0) == 1070.0
    assert stage.controller.live.cluster.plan("default").placement == {"a": ("n1", "n1")}
    await stage.step_at(1070.0)
    assert stage.controller.live.cluster.plan("default").placement == {"a": ("n1",)}


async def test_worker_that_exits_where_its_gpu_is_gone_is_planned_elsewhere_at_once() -> None:
    stage = Stage()
    await stage.begin(ratelimit_s=0.0)
    await stage.add(JobSubmitted(spec=a_spec("a", min_replicas=2, max_replicas=2)))
    await stage.controller.step()
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    for name in ("n2", "n3"):
        await stage.add(NodeJoined(node=a_node(name, gpus=2)))
    await stage.add(NodeChanged(node=a_node("n1", gpus=1)))
    await stage.controller.step()
    await stage.add(WorkerExited(job_id="a", workers=(1,), cause="failed"))
    await stage.controller.step()
    assert stage.controller.live.cluster.plan("default").placement["a"].count("n1") < 2


async def test_stuck_job_of_higher_priority_takes_gpus_from_others_only_when_it_is_tried_again(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0.0)
    await stage.add(JobSubmitted(spec=a_spec("low", min_replicas=2, max_replicas=2)))
    await stage.add(JobSubmitted(spec=a_spec("high", min_replicas=2, max_replicas=2, priority=9)))
    at, until = 1000.0, 1000.0 + 86_400
    while at < until:
        due_at = await stage.step_at(at)
        planned = stage.controller.live.cluster.plan("default").placement
        job = stage.controller.live.cluster.job("low")
        assert job is not None
        # What is planned for the job of lower priority runs at once; the other one never does.
        if "low" in planned and not job.workers:
            await stage.add(WorkerStarted(job_id="low", workers={0: "n1", 1: "n1"}))
        elif "low" not in planned and job.workers:
            await stage.add(WorkerExited(job_id="low", workers=(0, 1)))
        else:
            at = due_at
    stuck = [event.data for event in await stage.recorded(JobBackedOff)]
    spans = [fact.retry_after_s for fact in stuck if isinstance(fact, JobBackedOff)]
    assert spans[:6] == [240.0, 480.0, 960.0, 1_920.0, 3_600.0, 3_600.0]
    plans = await stage.plans()
    # One try, in vain, after each delay.
    assert sum("high" in plan.placed for plan in plans) in (len(spans), len(spans) + 1)
    assert {fact.job_id for fact in stuck if isinstance(fact, JobBackedOff)} == {"high"}
    assert len(spans) < 30


async def test_stuck_job_that_nobody_waits_behind_stays_planned(stage: Stage) -> None:
    await stage.begin(ratelimit_s=0.0)
    await stage.add(JobSubmitted(spec=a_spec("a")))
    assert await stage.step_at(1100) == 1220
    assert await stage.step_at(1220) == 1460
    assert await stage.step_at(1460) == 1580
    assert await stage.step_at(1580) == 2060
    [first, *others] = await stage.plans()
    assert (first.placed, [plan.placed for plan in others]) == ({"a": ("n1",)}, [{}, {}])
    assert "stuck with 0 of 1 planned worker" in said(others[-1].reasons["a"])


class TickingClock(VirtualClock):
    """A clock on which every look may take a while, as where a decision takes long."""

    tick_s = 0.0

    def now(self) -> float:
        self.move_to(super().now() + self.tick_s)
        return super().now()


@pytest.mark.parametrize("looks", range(1, 10))
async def test_plan_that_depends_on_the_time_is_recorded_at_the_instant_of_its_decision(looks: int) -> None:
    stage = Stage()
    stage.clock = clock = TickingClock(1000.0)
    stage.controller = stage.another()
    await stage.begin(ratelimit_s=0.0)
    for job_id, priority in (("low", 0), ("high", 9)):
        await stage.add(JobSubmitted(spec=a_spec(job_id, min_replicas=2, max_replicas=2, priority=priority)))
    await stage.step_at(1000)
    await stage.step_at(1120)
    # With one of these numbers of looks the decision begins before the stuck job is tried again, and ends after that.
    clock.move_to(1360.5 - looks)
    await stage.add(JobSubmitted(spec=a_spec("last", min_replicas=2, max_replicas=2)))
    clock.tick_s = 1.0
    await stage.controller.step()
    assert len(await stage.plans()) == 3
    assert (await verify(stage.store)).difference is None


@pytest.mark.parametrize("cause", ["stopped", "evicted"])
async def test_worker_that_left_a_cordoned_node_is_planned_elsewhere(cause: ExitCause) -> None:
    stage = Stage()
    await stage.begin(ratelimit_s=0.0)
    await stage.add(JobSubmitted(spec=a_spec("a")))
    await stage.controller.step()
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1"}))
    await stage.add(NodeJoined(node=a_node("n2", gpus=2)))
    await stage.add(NodeChanged(node=a_node("n1", gpus=2, is_schedulable=False)))
    await stage.controller.step()
    assert stage.controller.live.cluster.plan("default").placement == {"a": ("n1",)}
    await stage.add(WorkerExited(job_id="a", workers=(0,), cause=cause))
    await stage.controller.step()
    assert stage.controller.live.cluster.plan("default").placement == {"a": ("n2",)}


async def test_gpus_of_replicas_that_are_done_go_to_a_waiting_job_at_once() -> None:
    stage = Stage()
    await stage.begin(ratelimit_s=0.0)
    await stage.add(JobSubmitted(spec=a_spec("a", min_replicas=2, max_replicas=2, requested_replicas=2, kind="Job")))
    await stage.add(JobSubmitted(spec=a_spec("b")))
    await stage.controller.step()
    assert stage.controller.live.cluster.plan("default").placement == {"a": ("n1", "n1")}
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    await stage.add(WorkerExited(job_id="a", workers=(0,), cause="finished"))
    await stage.controller.step()
    assert stage.controller.live.cluster.plan("default").placement == {"a": ("n1", "n1"), "b": ("n1",)}


@pytest.mark.parametrize("end", [JobHaltRequested(job_id="t0"), JobCompleted(job_id="t0")])
async def test_task_that_gave_its_place_in_its_array_away_once_its_workers_are_gone_lets_the_next_one_go(
    end: AnyFact,
) -> None:
    stage = Stage()
    await stage.begin(ratelimit_s=0.0)
    for index in range(2):
        task = ArrayTask(array_id="t", name="t", index=index, indices="0-1", at_once=1)
        await stage.add(JobSubmitted(spec=a_spec(f"t{index}", array=task)))
    await stage.controller.step()
    await stage.add(WorkerStarted(job_id="t0", workers={0: "n1"}))
    await stage.add(end)
    await stage.controller.step()
    assert stage.controller.live.cluster.plan("default").placement == {}
    await stage.add(WorkerExited(job_id="t0", workers=(0,)))
    await stage.controller.step()
    assert stage.controller.live.cluster.plan("default").placement == {"t1": ("n1",)}


async def test_job_in_backoff_leaves_its_gpus_to_others_and_is_planned_anew_at_its_next_try() -> None:
    stage = Stage()
    await stage.begin(ratelimit_s=0.0)
    for job_id in ("a", "b"):
        await stage.add(JobSubmitted(spec=a_spec(job_id, min_replicas=2, max_replicas=2, requested_replicas=2)))
    await stage.controller.step()
    cluster = stage.controller.live.cluster
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    await stage.add(WorkerExited(job_id="a", workers=(0,), cause="failed", retry_at=1008.0))
    await stage.controller.step()
    assert list(cluster.plan("default").placement) == ["a"]
    await stage.add(WorkerExited(job_id="a", workers=(1,), cause="failed", retry_at=1008.0))
    assert await stage.controller.step() == 1008.0
    assert list(cluster.plan("default").placement) == ["b"]
    await stage.add(JobCompleted(job_id="b"))
    await stage.controller.step()
    assert dict(cluster.plan("default").placement) == {}
    await stage.step_at(1008)
    assert list(cluster.plan("default").placement) == ["a"]
    assert (await verify(stage.store)).difference is None


@pytest.mark.parametrize("early_ms", range(1, 13))
async def test_job_whose_next_try_comes_while_others_are_looked_at_is_planned_then(early_ms: int) -> None:
    stage = Stage(clock=PassingClock(1000.0))
    await stage.begin(ratelimit_s=0.0)
    await stage.add(JobSubmitted(spec=a_spec("a", min_replicas=2, max_replicas=2, requested_replicas=2)))
    await stage.controller.step()
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    await stage.add(WorkerExited(job_id="a", workers=(0, 1), cause="failed", retry_at=1008.0))
    await stage.controller.step()
    cluster = stage.controller.live.cluster
    assert not cluster.plan("default").placement
    # It has the controller look, and makes no plan due.
    await stage.add(JobStalled(job_id="a"))
    due_at = await stage.step_at(1008 - early_ms / 1000)
    if not cluster.plan("default").placement:
        assert due_at <= 1008.1
        await stage.step_at(max(due_at, stage.clock.now()))
    assert cluster.plan("default").placement == {"a": ("n1", "n1")}

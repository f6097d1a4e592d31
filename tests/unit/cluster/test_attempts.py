"""Attempts: what is tried when, and what a failure of one job means for the others."""

import asyncio
import math
from collections import Counter as Counted

import pytest

from tests.waiting import until
from voda.clock import VirtualClock
from voda.cluster.attempts import Attempts
from voda.domain.errors import ActionRefused, ClusterUnavailable
from voda.domain.plan import Action, HaltJob, StartJob
from voda.events.types import ActionFailed
from voda.metrics import ACTIONS, Counter, Histogram, Telemetry

A, B = StartJob(job_id="a", nodes=("n1",)), StartJob(job_id="b", nodes=("n1",))


class Counts(Telemetry):
    """Counts outcomes."""

    def __init__(self) -> None:
        self.of = Counted[str]()

    def count(self, counter: Counter, *labels: str, by: float = 1) -> None:
        assert counter is ACTIONS
        self.of[":".join(labels)] += 1

    def observe(self, histogram: Histogram, seconds: float, *labels: str) -> None:
        assert labels in {("default", "StartJob"), ("default", "HaltJob")}


class Stage:
    """A cluster that does what it is told, but for starts of job `a` while there is an error."""

    def __init__(self, *, at_once: int = 1) -> None:
        self.clock, self.counts = VirtualClock(1000.0), Counts()
        self.error: Exception | None = None
        self.done: list[Action] = []
        self.told: list[ActionFailed] = []
        self.attempts = Attempts(
            self.apply, self.told.append, self.clock.now, pool="default", telemetry=self.counts, at_once=at_once
        )

    async def apply(self, action: Action) -> None:
        if self.error is not None and action == A:
            raise self.error
        self.done.append(action)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.mark.parametrize("error", [ActionRefused("not today"), KeyError("of an object that nobody expected")])
async def test_make_when_an_action_fails_then_it_is_told_and_the_others_are_done(
    stage: Stage, error: Exception
) -> None:
    stage.error = error
    assert await stage.attempts.make([A, B]) == 1001.0
    assert stage.done == [B]
    [told] = stage.told
    assert (told.job_id, told.action, told.attempt, told.retry_at) == ("a", "StartJob", 1, 1001.0)
    assert str(error) in told.error
    assert stage.counts.of == {"default:StartJob:failed": 1, "default:StartJob:accepted": 1}


@pytest.mark.virtual_time
async def test_action_that_takes_too_long_is_told_to_have_no_answer_and_a_timeout_within_it_is_told_as_it_is() -> None:
    told = list[ActionFailed]()

    async def apply(action: Action) -> None:
        if action == A:
            await asyncio.Event().wait()
        raise TimeoutError("of somebody else")

    await Attempts(apply, told.append, VirtualClock().now).make([A, B])
    assert [fact.error for fact in told] == [
        "no answer within 30 s",
        "TimeoutError('of somebody else') was not foreseen",
    ]


async def test_make_when_an_action_keeps_failing_then_it_is_tried_less_and_less_often(stage: Stage) -> None:
    stage.error = ActionRefused("not today")
    tried_at: list[float] = []
    for second in range(20):
        stage.clock.move_to(1000.0 + second)
        before = len(stage.told)
        again_at = await stage.attempts.make([A])
        tried_at += [second] if len(stage.told) > before else []
    assert tried_at == [0, 1, 3, 7, 15]
    assert again_at == 1031.0


async def test_make_when_a_pause_is_over_and_the_action_succeeds_then_nothing_is_paused(stage: Stage) -> None:
    stage.error = ActionRefused("not today")
    await stage.attempts.make([A])
    stage.error = None
    await stage.attempts.make([A])
    assert stage.done == []
    stage.clock.move_to(1001.0)
    assert await stage.attempts.make([A]) == math.inf
    stage.error = ActionRefused("not today")
    await stage.attempts.make([A])
    assert [told.attempt for told in stage.told] == [1, 1]


async def test_pause_when_it_ends_while_another_job_is_tried_is_not_forgotten(stage: Stage) -> None:
    stage.error = ActionRefused("not today")
    await stage.attempts.make([A])

    making = asyncio.ensure_future(stage.attempts.make([A, B]))
    await asyncio.sleep(0)
    stage.clock.move_to(1005.0)
    assert await making == 1001.0


async def test_make_when_something_else_is_desired_of_a_paused_job_then_that_is_done_at_once(stage: Stage) -> None:
    stage.error = ActionRefused("not today")
    await stage.attempts.make([A])
    assert await stage.attempts.make([HaltJob(job_id="a")]) == math.inf
    assert stage.done == [HaltJob(job_id="a")]


async def test_pause_of_a_job_of_which_nothing_is_desired_wakes_nobody_and_is_kept_for_a_while(stage: Stage) -> None:
    stage.error = ActionRefused("not today")
    for second in (1, 5, 400):
        await stage.attempts.make([A])
        stage.clock.move_to(1000.0 + second)
        assert await stage.attempts.make([]) == math.inf
    await stage.attempts.make([A])
    assert [told.attempt for told in stage.told] == [1, 2, 3, 1]


async def test_pause_when_the_cluster_asks_for_one_is_at_least_that_long(stage: Stage) -> None:
    stage.error = ClusterUnavailable("too many requests", retry_after_s=7.5)
    assert await stage.attempts.make([A, B]) == 1007.5


async def test_make_when_several_jobs_may_be_tried_then_a_slow_one_holds_up_no_other() -> None:
    let_go, under_way, most = asyncio.Event(), set[str](), 0

    async def apply(action: Action) -> None:
        nonlocal most
        under_way.add(action.job_id)
        most = max(most, len(under_way))
        await (let_go.wait() if action.job_id == "a" else asyncio.sleep(0))
        under_way.discard(action.job_id)
        done.append(action.job_id)

    done: list[str] = []
    attempts = Attempts(apply, lambda told: None, VirtualClock().now, at_once=2)
    making = asyncio.ensure_future(attempts.make([StartJob(job_id=job_id, nodes=("n1",)) for job_id in "abcd"]))
    await until(lambda: done == ["b", "c", "d"])
    assert not making.done()
    let_go.set()
    assert await making == math.inf
    assert (done[-1], most) == ("a", 2)

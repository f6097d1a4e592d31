"""Explanations over HTTP."""

import asyncio
from pathlib import Path

import pytest

from tests.builders import a_spec
from tests.integration.api.test_plans import a_leader, decided, pass_time
from tests.service import Service, a_service
from tests.waiting import until
from voda.auth.tokens import Authenticator
from voda.cli.render.job_text import held_up, state
from voda.clock import VirtualClock
from voda.domain.dependency import Dependency
from voda.domain.job import Phase
from voda.domain.plan import ExpectedTimes
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.requests import Requested
from voda.events.types import (
    ActionFailed,
    JobCanceled,
    JobCancelRequested,
    JobCompleted,
    JobFailed,
    JobHaltRequested,
    JobResumeRequested,
    JobSubmitted,
    PlanAdopted,
    ProgramFailed,
    WorkerExited,
    WorkerStarted,
)
from voda.log.store import EventStore
from voda.timetravel.explanation import JobExplanation
from voda.timetravel.job_explanation import explain
from voda.timetravel.moment import LogPlace
from voda.wire.base import Problem
from voda.wire.explanations import ExplanationView
from voda.wire.jobs import JobView


async def explained(service: Service, job: str, at: str = "") -> ExplanationView:
    answer = await service.ask("GET", f"/api/v1/jobs/{job}/explain" + (f"?at={at}" if at else ""))
    assert answer.status == 200, answer.body
    return answer.as_a(ExplanationView)


async def test_explain_when_a_job_waits_then_tells_what_it_lacks_and_what_would_help() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        leader = await a_leader(service)
        await service.happens(JobSubmitted(spec=a_spec("a", min_replicas=3, max_replicas=3)))
        await decided(service, leader)
        await service.happens(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1", 2: "n1"}))
        await service.happens(JobSubmitted(spec=a_spec("b", min_replicas=2, max_replicas=2)))
        await decided(service, leader)
        service.backend.journal.view.forecasts = {
            "b": ExpectedTimes(position=1, starts_at=service.backend.journal.clock.now() + 60)
        }
        told = await explained(service, "b")
        assert (told.phase, told.nodes, told.queue_position, told.queue_length) == (Phase.WAITING, (), 1, 1)
        assert told.shortage is not None
        assert (told.shortage.needs_gpus, told.shortage.free_gpus) == (2, 1)
        assert any("min 1" in suggestion for suggestion in told.suggestions)
        assert told.reason
        assert told.expected_start_at is not None
        assert (told.expected_start_at - told.at).total_seconds() == 60
        assert [(decision.plan, decision.before, decision.after) for decision in told.decisions] == [(2, (), ())]


async def shown(service: Service, job: str) -> JobView:
    return (await service.ask("GET", f"/api/v1/jobs/{job}")).as_a(JobView)


async def test_explain_gives_the_reason_that_the_job_has_everywhere_before_and_after_its_first_plan() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        leader = await a_leader(service)
        await decided(service, leader)
        await service.happens(JobSubmitted(spec=a_spec("a")))
        told, job = await explained(service, "a"), await shown(service, "a")
        assert (told.reason, told.next_message != "", len(told.next)) == (job.reason, True, 1) == (None, True, 1)
        await decided(service, leader)
        told, job = await explained(service, "a"), await shown(service, "a")
        assert told.reason == job.reason is not None
        assert told.message == job.message != ""


async def test_job_that_was_halted_and_resumed_is_not_preempted_and_one_that_made_room_is() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        for name in ("a", "b", "c"):
            await service.happens(JobSubmitted(spec=a_spec(name)))
            await service.happens(WorkerStarted(job_id=name, workers={0: "n1"}))
        await service.happens(JobHaltRequested(job_id="a", reason=Requested(by="ada")))
        for name in ("a", "b"):
            await service.happens(WorkerExited(job_id=name, workers=(0,)))
        await service.happens(WorkerExited(job_id="c", workers=(0,), cause="failed"))
        told = await explained(service, "a")
        assert (told.is_halted, told.is_preempted, told.message) == (True, False, "halted by ada")
        await service.happens(JobResumeRequested(job_id="a"))
        jobs = [await shown(service, name) for name in ("a", "b", "c")]
        assert [job.interruption for job in jobs] == ["halted", "preempted", "failed"]
        assert [job.is_preempted for job in jobs] == [False, True, False]
        assert [(await explained(service, job.job_id)).interruption for job in jobs] == [
            "halted",
            "preempted",
            "failed",
        ]
        await service.happens(WorkerStarted(job_id="b", workers={0: "n1"}))
        assert (await shown(service, "b")).interruption == ""


async def test_explanation_of_a_job_that_is_canceled_says_so() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        await service.happens(WorkerStarted(job_id="a", workers={0: "n1"}))
        assert not (await explained(service, "a")).is_canceling
        await service.happens(JobCancelRequested(job_id="a", reason=Requested(text="not needed")))
        told = await explained(service, "a")
        assert (told.is_canceling, state(told)) == (True, "Canceling")


async def test_try_that_follows_a_failure_is_told_with_its_time() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        due_at = service.backend.journal.clock.now() + 8
        await service.happens(
            ProgramFailed(
                job_id="a", replica="worker-0", reason=Said(text="ended"), next_try=2, most_tries=7, next_try_at=due_at
            )
        )
        for told in (await shown(service, "a"), await explained(service, "a")):
            assert (told.next_try, told.most_tries) == (2, 7)
            assert told.next_try_at is not None
            assert told.next_try_at.timestamp() == due_at


async def test_places_in_the_queue_have_no_gaps_when_a_job_that_was_forecast_starts() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        for name in ("a", "b", "c"):
            await service.happens(JobSubmitted(spec=a_spec(name)))
        service.backend.journal.view.forecasts = {
            name: ExpectedTimes(position=place) for place, name in enumerate("abc", 1)
        }
        assert [(await shown(service, name)).forecast.position for name in "abc"] == [1, 2, 3]
        await service.happens(WorkerStarted(job_id="a", workers={0: "n1"}))
        assert [(await shown(service, name)).forecast.position for name in "abc"] == [None, 1, 2]


async def places(service: Service, names: str) -> list[int | None]:
    return [(await shown(service, name)).forecast.position for name in names]


async def test_place_in_the_queue_is_told_before_any_forecast_is_made() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        for spec in (a_spec("a"), a_spec("b"), a_spec("c", priority=5), a_spec("d", after=(Dependency(job_id="b"),))):
            await service.happens(JobSubmitted(spec=spec))
        assert await places(service, "abcd") == [2, 3, 1, None]


async def test_place_of_a_job_that_no_forecast_knows_is_behind_the_jobs_of_its_priority() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        for spec in (a_spec("a"), a_spec("b", priority=5), a_spec("c"), a_spec("d"), a_spec("e", priority=3)):
            await service.happens(JobSubmitted(spec=spec))
        service.backend.journal.view.forecasts = {
            name: ExpectedTimes(position=place) for place, name in enumerate("bca", 1)
        }
        assert await places(service, "bceda") == [1, 3, 2, 5, 4]


async def test_job_that_waits_for_its_next_try_is_not_expected_to_start_before_it() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        now = service.backend.journal.clock.now()
        service.backend.journal.view.forecasts = {"a": ExpectedTimes(position=1, starts_at=now + 1)}
        await service.happens(
            ProgramFailed(
                job_id="a", replica="worker-0", reason=Said(text="ended"), next_try=2, most_tries=7, next_try_at=now + 8
            )
        )
        starts_at = (await shown(service, "a")).forecast.starts_at
        assert starts_at is not None
        assert starts_at.timestamp() == now + 8


async def test_explain_when_a_job_runs_then_tells_who_decided_so() -> None:
    async with a_service() as service:
        leader = await a_leader(service)
        await decided(service, leader)
        await service.happens(JobSubmitted(spec=a_spec("a", max_replicas=2)))
        await decided(service, leader)
        await service.happens(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
        told = await explained(service, "a")
        assert (told.phase, told.nodes, told.planned, told.shortage) == (
            Phase.RUNNING,
            ("n1", "n1"),
            ("n1", "n1"),
            None,
        )
        (decision,) = told.decisions
        assert (decision.plan, decision.cause, decision.after) == (1, "job.submitted", ("n1", "n1"))
        assert decision.cause_position is not None


async def test_explain_when_at_a_moment_of_the_past_then_tells_of_then() -> None:
    async with a_service() as service:
        submitted = await service.happens(JobSubmitted(spec=a_spec("a")))
        started = await service.happens(WorkerStarted(job_id="a", workers={0: "n1"}))
        await service.happens(WorkerExited(job_id="a", workers=(0,), cause="finished"))
        await service.happens(JobCompleted(job_id="a"))
        assert (await explained(service, "a", str(submitted))).phase is Phase.SUBMITTED
        then = await explained(service, "a", str(started))
        assert (then.phase, then.nodes, then.position) == (Phase.RUNNING, ("n1",), started)


async def test_action_that_failed_is_told_with_its_next_try() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        plan = PlanAdopted(
            pool="default", number=1, based_on=1, policy="fifo", placer="steady", cause="tick", placed={"a": ("n1",)}
        )
        await service.happens(plan)
        at = service.backend.journal.clock.now() + 60.0
        await service.happens(ActionFailed(job_id="a", action="StartJob", error="no room", retry_at=at))
        told = await explained(service, "a")
        assert (told.obstacle, told.retry_at and told.retry_at.timestamp()) == ("StartJob: no room", at)
        assert held_up(told, lambda instant: f"{instant:%H:%M}").startswith("StartJob: no room; next try at ")


async def test_explain_when_a_job_failed_or_was_canceled_then_tells_why() -> None:
    async with a_service() as service:
        for job_id in ("a", "b"):
            await service.happens(JobSubmitted(spec=a_spec(job_id)))
        await service.happens(JobFailed(job_id="a", reason=Said(text="no such namespace")))
        await service.happens(JobCancelRequested(job_id="b", reason=Requested(text="wrong data")))
        await service.happens(JobCanceled(job_id="b"))
        assert (await explained(service, "a")).message == "no such namespace"
        assert (await explained(service, "b")).message == "wrong data"


async def test_explain_when_a_job_ended_then_tells_its_story() -> None:
    async with a_service() as service:
        await service.happens(JobSubmitted(spec=a_spec("a-2", name="a")))
        await service.happens(WorkerStarted(job_id="a-2", workers={0: "n1"}))
        pass_time(service)
        await service.happens(WorkerExited(job_id="a-2", workers=(0,), cause="finished"))
        await service.happens(JobCompleted(job_id="a-2"))
        told = await explained(service, "a")
        assert (told.job_id, told.phase) == ("a-2", Phase.COMPLETED)
        assert told.ended is not None
        assert (told.ended.outcome, told.ended.starts) == ("completed", 1)
        assert told.ended.running_s == 1.0


async def test_explain_when_the_moment_or_job_is_wrong_then_is_refused() -> None:
    async with a_service() as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        far = ("%2B99999999999999999999h", "-99999999999999999999h", "0001-01-01T00:00:00%2B14:00", "9999-12-31")
        for at in ("yesterday", "99", "+1x", "%F0%9F%92%A5", *far):
            answer = await service.ask("GET", f"/api/v1/jobs/a/explain?at={at}")
            assert (answer.status, answer.as_a(Problem).field) == (422, "at"), at
        answer = await service.ask("GET", "/api/v1/jobs/a/explain?at=1")
        assert (answer.status, "position 2" in answer.as_a(Problem).detail) == (422, True)
        assert (await service.ask("GET", "/api/v1/jobs/b/explain")).status == 404
        assert (await service.ask("GET", "/api/v1/jobs/a/explain?when=1")).status == 422


@pytest.mark.parametrize("path", ["/api/v1/jobs/a/explain?at=2", "/api/v1/jobs/a/explain", "/api/v1/usage"])
async def test_user_whose_explanations_take_long_takes_no_turn_of_others(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Authenticator.open(tmp_path, VirtualClock())
    ada, bob = access.add("ada", "user"), access.add("bob", "user")
    goes_on, asked = asyncio.Event(), list[str]()

    async def slow(store: EventStore, job_id: str, place: LogPlace) -> JobExplanation:
        asked.append(job_id)
        if job_id == "b":
            await goes_on.wait()
        return await explain(store, job_id, place)

    monkeypatch.setattr("voda.api.routes.jobs.explain", slow)
    async with a_service(access=access) as service, asyncio.TaskGroup() as group:
        for name in "ab":
            await service.happens(JobSubmitted(spec=a_spec(name)))
        asking = [service.ask("GET", "/api/v1/jobs/b/explain?at=3", token=bob) for _ in range(95)]
        waiting = [group.create_task(each) for each in asking]
        await until(lambda: bool(asked))
        async with asyncio.timeout(60):
            assert (await service.ask("GET", path, token=ada)).status == 200
        assert asked.count("b") == 1
        goes_on.set()
    assert {task.result().status for task in waiting} == {200}

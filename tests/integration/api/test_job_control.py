"""Halt, resume and rerun over HTTP; and names, which mean the live job, else the latest run."""

from pathlib import Path

import pytest

from tests.builders import a_spec
from tests.integration.api.test_jobs import JOBS, refused, submit, tokens
from tests.integration.api.test_plans import a_leader, decided
from tests.service import a_manifest, a_service
from voda.domain.job import Phase
from voda.domain.plan import ExpectedTimes
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.outcomes import Halted
from voda.domain.reasons.requests import Requested
from voda.events.types import (
    JobCancelRequested,
    JobCompleted,
    JobFailed,
    JobHaltRequested,
    JobResumeRequested,
    JobSubmitted,
    WorkerExited,
    WorkerStarted,
)
from voda.policies import POLICIES
from voda.wire.explanations import ExplanationView
from voda.wire.jobs import ArrayView, JobList, JobView, SubmissionView


async def test_name_means_the_live_job_else_the_latest_run_everywhere_and_an_id_means_itself() -> None:
    async with a_service() as service:
        for _ in range(2):
            await submit(service)
            shown = (await service.ask("GET", f"{JOBS}/digits")).as_a(JobView)
            await service.happens(JobCompleted(job_id=shown.job_id))
        ids = {}
        for named in ("digits", "digits-2", "@digits", "@digits-2"):
            ids[named] = (await service.ask("GET", f"{JOBS}/{named}")).as_a(JobView).job_id
            told = (await service.ask("GET", f"{JOBS}/{named}/explain")).as_a(ExplanationView)
            assert told.job_id == ids[named]
            about = (await service.ask("GET", f"/api/v1/events?job={named}")).json()["items"]
            assert {event["stream"] for event in about} == {f"job.{ids[named]}"}
        assert ids == {"digits": "digits-2", "digits-2": "digits-2", "@digits": "digits", "@digits-2": "digits-2"}
        assert (await refused(service, 404, "GET", f"{JOBS}/@digits-3")).detail.startswith("no job has the id")


async def test_report_of_a_job_whose_name_a_newer_one_has_is_its_own(tmp_path: Path) -> None:
    access, anna, _, _ = tokens(tmp_path)
    async with a_service(access=access) as service:
        await submit(service, token=anna)
        # An object of the cluster may share its name with a live job whose object it follows.
        await service.happens(JobSubmitted(spec=a_spec("digits-2", name="digits", user="anna")))
        path = f"{JOBS}/digits/progress"
        assert (await service.ask("POST", path, token=access.job_token("digits"), body={"epoch": 3})).status == 204
        done = [
            (await service.ask("GET", f"{JOBS}/@{job}", token=anna)).as_a(JobView).progress.epochs_done
            for job in ("digits", "digits-2")
        ]
        assert done == [3.0, 0.0]


async def test_halt_is_recorded_once_and_told_and_resume_undoes_it() -> None:
    async with a_service() as service:
        await submit(service)
        service.backend.journal.view.forecasts = {"digits": ExpectedTimes(position=1, starts_at=9e9, finishes_at=9e9)}
        answer = await service.ask("POST", f"{JOBS}/digits/halt?reason=disk%20is%20full")
        job = answer.as_a(JobView)
        assert (answer.status, job.is_halted, job.message) == (200, True, "halted by admin: disk is full")
        assert job.reason == Halted(by="admin", text="disk is full")
        assert (job.forecast.position, job.forecast.starts_at, job.forecast.finishes_at) == (None, None, None)
        position = service.backend.journal.view.position
        assert (await service.ask("POST", f"{JOBS}/digits/halt?reason=again")).as_a(JobView).message == job.message
        assert service.backend.journal.view.position == position
        listed = (await service.ask("GET", f"{JOBS}?phase=Halted")).as_a(JobList)
        assert [one.job_id for one in listed.items] == ["digits"]
        for _ in range(2):
            assert not (await service.ask("POST", f"{JOBS}/digits/resume")).as_a(JobView).is_halted
        facts = [event.data for event in await service.backend.journal.store.read(0, 100, stream="job.digits")][1:]
        assert facts == [
            JobHaltRequested(job_id="digits", reason=Requested(by="admin", text="disk is full")),
            JobResumeRequested(job_id="digits"),
        ]


@pytest.mark.parametrize("policy", POLICIES)
async def test_halted_job_gives_its_gpus_back_and_gets_none_until_it_is_resumed(policy: str) -> None:
    async with a_service(nodes={"n1": 1}) as service:
        leader = await a_leader(service)
        await service.ask("PATCH", "/api/v1/pools/default/settings", body={"policy": policy, "ratelimit_s": 0})
        await submit(service, "first", workers=1)
        await submit(service, "second", workers=1)
        await decided(service, leader)
        await service.happens(WorkerStarted(job_id="first", workers={0: "n1"}))
        await service.ask("POST", f"{JOBS}/first/halt")
        await decided(service, leader)
        shown = (await service.ask("GET", f"{JOBS}/first")).as_a(JobView)
        assert (shown.replicas, shown.planned_replicas, shown.message) == (1, 0, "halted by admin")
        assert (await service.ask("GET", f"{JOBS}/second")).as_a(JobView).planned_replicas == 1
        await service.happens(WorkerExited(job_id="first", workers=(0,), cause="stopped"))
        await service.happens(JobCompleted(job_id="second"))
        await decided(service, leader)
        assert (await service.ask("GET", f"{JOBS}/first")).as_a(JobView).planned_replicas == 0
        told = (await service.ask("GET", f"{JOBS}/first/explain")).as_a(ExplanationView)
        assert (told.message, told.shortage) == ("halted by admin", None)
        await service.ask("POST", f"{JOBS}/first/resume")
        await decided(service, leader)
        assert (await service.ask("GET", f"{JOBS}/first")).as_a(JobView).planned_replicas == 1


async def test_waiting_job_that_is_resumed_has_the_reason_of_a_new_plan() -> None:
    async with a_service(nodes={"n1": 1}) as service:
        leader = await a_leader(service)
        await service.ask("PATCH", "/api/v1/pools/default/settings", body={"ratelimit_s": 0})
        await submit(service, "first", workers=1)
        await submit(service, "second", workers=1)
        for verb in ("halt", "resume"):
            await service.ask("POST", f"{JOBS}/second/{verb}")
            await decided(service, leader)
        assert (await service.ask("GET", f"{JOBS}/second")).as_a(JobView).message.startswith("waits")


async def test_halt_and_resume_of_an_ending_job_are_refused() -> None:
    async with a_service() as service:
        await submit(service)
        await submit(service, "other")
        await service.happens(JobCompleted(job_id="digits"))
        await service.happens(JobCancelRequested(job_id="other"))
        for verb in ("halt", "resume"):
            assert "Completed" in (await refused(service, 409, "POST", f"{JOBS}/digits/{verb}")).detail
            assert "being canceled" in (await refused(service, 409, "POST", f"{JOBS}/other/{verb}")).detail
        assert (await refused(service, 422, "POST", f"{JOBS}/other/halt?reason=a%0Ab")).field == "reason"


async def test_rerun_submits_the_manifest_again_as_the_next_run_of_the_name() -> None:
    async with a_service() as service:
        await submit(service, max_replicas=3, epochs=7)
        problem = await refused(service, 409, "POST", f"{JOBS}/digits/rerun")
        assert problem.detail.startswith("job digits is live, ")
        await service.happens(JobCompleted(job_id="digits"))
        headers = {"Idempotency-Key": "once"}
        answers = [await service.ask("POST", f"{JOBS}/digits/rerun", headers=headers) for _ in range(2)]
        jobs = [answer.as_a(SubmissionView).job for answer in answers]
        assert [answer.status for answer in answers] == [201, 200]
        assert answers[0].headers["Location"] == f"{JOBS}/digits-2"
        assert [(job.job_id, job.name, job.max_replicas, job.progress.epochs) for job in jobs] == [
            ("digits-2", "digits", 3, 7)
        ] * 2
        manifests = [(await service.ask("GET", f"{JOBS}/{job}/manifest")).json() for job in ("@digits", "digits-2")]
        assert manifests[0] == manifests[1]


async def test_rerun_while_a_later_run_is_live_names_it_and_what_to_do() -> None:
    async with a_service() as service:
        await submit(service)
        await service.happens(JobCompleted(job_id="digits"))
        await service.ask("POST", f"{JOBS}/digits/rerun")
        for name in ("@digits", "digits"):
            detail = (await refused(service, 409, "POST", f"{JOBS}/{name}/rerun")).detail
            assert "digits-2" in detail
            assert "`voda wait digits-2` and rerun then, or `voda delete digits-2` first" in detail
        detail = (await refused(service, 409, "POST", f"{JOBS}/@digits/rerun")).detail
        assert detail.startswith("digits-2, a later run of digits, is live")


async def test_key_of_a_rerun_is_another_than_a_key_of_a_submit_that_begins_with_rerun() -> None:
    async with a_service() as service:
        await submit(service)
        await service.happens(JobCompleted(job_id="digits"))
        body, path = a_manifest("digits"), f"{JOBS}/digits/rerun"
        again = await service.ask("POST", path, headers={"Idempotency-Key": "z"})
        assert again.as_a(SubmissionView).job.job_id == "digits-2"
        await service.happens(JobCompleted(job_id="digits-2"))
        third = await service.ask("POST", JOBS, body=body, headers={"Idempotency-Key": "rerun z"})
        assert (third.status, third.as_a(SubmissionView).job.job_id) == (201, "digits-3")


async def test_rerun_of_a_task_is_in_no_array_which_stays_as_it_was() -> None:
    async with a_service() as service:
        await submit(service, "sweep", array="0-2%1")
        await service.happens(JobFailed(job_id="sweep-1", reason=Said(text="x")))
        for run in ("sweep-1-2", "sweep-1-3"):
            headers = {"Idempotency-Key": run}
            for status in (201, 200):
                answer = await service.ask("POST", f"{JOBS}/sweep-1/rerun", headers=headers)
                assert (answer.status, answer.as_a(SubmissionView).job.job_id) == (status, run)
            record = service.backend.journal.view.job_registry.jobs()[run]
            assert (record.spec.name, record.spec.array) == ("sweep-1", None)
            assert record.spec.environment["VODA_ARRAY_TASK_ID"] == "1"
            assert record.spec.environment["VODA_ARRAY_TASK_COUNT"] == "3"
            await service.happens(JobCompleted(job_id=run))
        problem = await refused(service, 422, "POST", JOBS, body=a_manifest("report", after="sweep"))
        assert "sweep-1 failed" in problem.detail
        answer = await service.ask("DELETE", "/api/v1/arrays/sweep")
        assert answer.as_a(ArrayView).states == {"Canceling": 2, "Failed": 1}


async def test_rerun_by_an_admin_belongs_to_the_owner_and_the_log_knows_who_asked(tmp_path: Path) -> None:
    access, anna, bob, vera = tokens(tmp_path)
    admin = access.add("root", "admin")
    async with a_service(access=access) as service:
        await submit(service, token=anna)
        await service.happens(JobCompleted(job_id="digits"))
        for token in (bob, vera):
            for verb in ("halt", "resume", "rerun"):
                await refused(service, 403, "POST", f"{JOBS}/digits/{verb}", token=token)
        answer = await service.ask("POST", f"{JOBS}/digits/rerun", token=admin)
        assert answer.as_a(SubmissionView).job.user == "anna"
        [event] = await service.backend.journal.store.read(0, 10, stream="job.digits-2")
        assert event.actor == "root"
        shown = (await service.ask("POST", f"{JOBS}/digits/halt", token=admin)).as_a(JobView)
        assert (shown.job_id, shown.message, shown.phase) == ("digits-2", "halted by root", Phase.SUBMITTED)


async def test_rerun_of_a_job_without_a_manifest_is_refused() -> None:
    async with a_service() as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        await service.happens(JobCompleted(job_id="a"))
        assert "without a manifest" in (await refused(service, 409, "POST", f"{JOBS}/a/rerun")).detail

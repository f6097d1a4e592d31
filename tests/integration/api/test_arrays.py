"""Arrays and dependencies over HTTP: submitted whole or not at all, listed, canceled together."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from tests.integration.api.test_jobs import JOBS, refused, submissions, submit, tokens
from tests.service import START, Service, a_manifest, a_service
from voda.auth.tokens import Authenticator
from voda.clock import VirtualClock
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.requests import Requested
from voda.events.types import JobCanceled, JobCancelRequested, JobCompleted, JobFailed, WorkerStarted
from voda.log.memory import MemoryStore
from voda.projections.jobs.registry import JobRegistry
from voda.wire.jobs import ArrayView, JobList, JobView, SubmissionView

ARRAYS = "/api/v1/arrays"
AFTER = "metadata.annotations[voda.dev/after]"


async def tasks(service: Service, name: str = "sweep") -> list[str]:
    found = (await service.ask("GET", f"{JOBS}?array={name}&limit=500")).as_a(JobList)
    return [job.job_id for job in found.items]


async def array(service: Service, name: str = "sweep") -> ArrayView:
    answer = await service.ask("GET", f"{ARRAYS}/{name}")
    assert answer.status == 200, answer.body
    return answer.as_a(ArrayView)


async def job(service: Service, job_id: str) -> JobView:
    return (await service.ask("GET", f"{JOBS}/{job_id}")).as_a(JobView)


async def test_array_is_submitted_as_its_tasks_in_one_request() -> None:
    async with a_service() as service:
        answer = await submit(service, "sweep", array="0-8:4%2", epochs=3)
        assert (answer.job.job_id, answer.job.array and answer.job.array.count) == ("sweep-0", 3)
        assert await tasks(service) == ["sweep-0", "sweep-4", "sweep-8"]
        submitted = await submissions(service)
        shown = await job(service, "sweep-4")
        found = await array(service)
    specs = [fact.spec for fact in submitted]
    assert [(spec.name, spec.epochs, spec.array and spec.array.index) for spec in specs] == [
        ("sweep-0", 3, 0),
        ("sweep-4", 3, 4),
        ("sweep-8", 3, 8),
    ]
    assert shown.array is not None
    assert (shown.array.array_id, shown.array.name, shown.array.indices, shown.array.at_once) == (
        "sweep-0",
        "sweep",
        "0-8:4",
        2,
    )
    manifest = specs[1].manifest or {}
    assert manifest["metadata"]["name"] == "sweep-4"
    assert manifest["metadata"]["annotations"]["voda.dev/array-task"] == "4"
    assert (found.states, found.count, found.finished_at) == ({"Submitted": 3}, 3, None)


async def test_array_submitted_twice_with_one_key_is_submitted_once() -> None:
    headers = {"Idempotency-Key": "k"}
    async with a_service() as service:
        body = a_manifest("sweep", array="0-9")
        answers = await asyncio.gather(*[service.ask("POST", JOBS, body=body, headers=headers) for _ in range(3)])
        assert sorted(answer.status for answer in answers) == [200, 200, 201]
        assert {answer.as_a(SubmissionView).job.job_id for answer in answers} == {"sweep-0"}
        assert len(await submissions(service)) == 10
        other = a_manifest("sweep", array="0-5")
        problem = await refused(service, 422, "POST", JOBS, body=other, headers=headers)
    assert "another manifest" in problem.detail


async def test_array_of_which_one_name_is_taken_submits_nothing() -> None:
    async with a_service() as service:
        await submit(service, "sweep-7")
        problem = await refused(service, 409, "POST", JOBS, body=a_manifest("sweep", array="0-9"))
        assert "job sweep-7 has the name 'sweep-7' and is live" in problem.detail
        assert len(await submissions(service)) == 1
        await submit(service, "sweep", array="0-3")
        for name in ("sweep", "sweep-2"):
            await refused(service, 409, "POST", JOBS, body=a_manifest(name))
        await refused(service, 409, "POST", JOBS, body=a_manifest("sweep", array="10-12"))


async def test_array_whose_ids_are_taken_gets_others() -> None:
    async with a_service() as service:
        await submit(service, "sweep", array="0-1")
        for index in range(2):
            await service.happens(JobCompleted(job_id=f"sweep-{index}"))
        again = await submit(service, "sweep", array="0-1")
        assert again.job.job_id == "sweep-0-2"
        assert await tasks(service) == ["sweep-0-2", "sweep-1-2"]
        assert await tasks(service, "sweep-0") == ["sweep-0", "sweep-1"]
        assert (await array(service, "sweep-0")).states == {"Completed": 2}


async def test_dry_run_of_an_array_submits_nothing() -> None:
    async with a_service() as service:
        answer = await service.ask("POST", f"{JOBS}?dry_run=true", body=a_manifest("sweep", array="0-9"))
        assert (answer.status, answer.as_a(SubmissionView).job.name) == (200, "sweep-0")
        assert await submissions(service) == []


async def test_array_that_is_wrong_or_too_large_is_refused_with_the_figure(tmp_path: Path) -> None:
    access, _, bob, _ = tokens(tmp_path)
    async with a_service(access=access, jobs_per_user=5) as service:
        for text, expected in {
            "9-0": "a range that ascends, got '9-0'",
            "0-9999": "up to 5,000 tasks, got 10,000",
            "0-3%none": "a number of 1 or more after %",
        }.items():
            body = a_manifest("sweep", array=text)
            problem = await refused(service, 422, "POST", JOBS, token=bob, body=body)
            assert problem.field == "metadata.annotations[voda.dev/array]"
            assert expected in problem.detail
        problem = await refused(service, 422, "POST", JOBS, token=bob, body=a_manifest("sweep", array="0-5"))
        assert "it has 6 tasks, and a user may have 5 live jobs" in problem.detail
        body = a_manifest("s" * 55, array="0-999")
        assert (await refused(service, 422, "POST", JOBS, token=bob, body=body)).field == "metadata.name"
        large = a_manifest("sweep", array="0-999")
        large["metadata"]["annotations"]["large"] = "x" * 100_000
        problem = await refused(service, 422, "POST", JOBS, token=access.add("root", "admin"), body=large)
        assert "expected up to 33,554,432" in problem.detail
        assert await submissions(service) == []
        await submit(service, "sweep", token=bob, array="0-3")
        problem = await refused(service, 429, "POST", JOBS, token=bob, body=a_manifest("more", array="0-1"))
        assert "4 live jobs, and 5 is the most, too many for 2 more" in problem.detail


async def test_array_that_is_too_large_with_what_it_comes_after_is_refused() -> None:
    async with a_service() as service:
        names = [f"{'n' * 40}{number}" for number in range(100)]
        for name in names:
            await submit(service, name)
        body = a_manifest("sweep", array="0-4999", after=",".join(names))
        for path in (JOBS, f"{JOBS}?dry_run=true"):
            problem = await refused(service, 422, "POST", path, body=body)
            assert "5,000 tasks, with what they come after, have" in problem.detail
            assert problem.field == "metadata.annotations[voda.dev/array]"


async def test_one_task_by_its_annotations_joins_its_array() -> None:
    task: dict[str, Any] = {"array": "0-2%1", "array_name": "sweep"}
    async with a_service() as service:
        for index in (1, 0, 2):
            await submit(service, f"sweep-{index}", array_task=index, **task)
        assert await tasks(service) == ["sweep-1", "sweep-0", "sweep-2"]
        found = [await job(service, name) for name in ("sweep-0", "sweep-2")]
        assert {one.array and one.array.array_id for one in found} == {"sweep-1"}
        problem = await refused(service, 422, "POST", JOBS, body=a_manifest("x", array_task=7, **task))
        assert "expected one of 0-2" in problem.detail
        body = a_manifest("x", array="0-2", array_task=1)
        assert "voda.dev/array-name] is missing" in (await refused(service, 422, "POST", JOBS, body=body)).detail


async def test_task_that_comes_late_joins_its_array_until_that_has_all_its_tasks() -> None:
    task: dict[str, Any] = {"array": "0-2", "array_name": "sweep"}
    async with a_service() as service:
        await submit(service, "sweep-0", array_task=0, **task)
        await service.happens(JobCompleted(job_id="sweep-0"))
        await submit(service, "report", after="sweep")
        await submit(service, "sweep-1", array_task=1, **task)
        await service.happens(JobCompleted(job_id="sweep-1"))
        live = service.backend.journal.view.cluster
        assert [each.target for each in (live.job("report") or raises()).waits_for] == ["array sweep"]
        # Each of these would wait for itself.
        await submit(service, "later", after="report")
        for after in ("sweep", "sweep-0,report:any", "later"):
            body = a_manifest("sweep-2", array_task=2, after=after, **task)
            problem = await refused(service, 422, "POST", JOBS, body=body)
            assert (problem.field, "task 2 of array sweep cannot come after" in problem.detail) == (AFTER, True)
        await submit(service, "sweep-2", array_task=2, after="sweep-1", **task)
        assert await tasks(service) == ["sweep-0", "sweep-1", "sweep-2"]
        await service.happens(JobCompleted(job_id="sweep-2"))
        assert (live.job("report") or raises()).waits_for == ()
        await submit(service, "sweep-0", array_task=0, **task)
        assert await tasks(service) == ["sweep-0-2"]


async def test_task_of_a_canceled_array_begins_another() -> None:
    task: dict[str, Any] = {"array": "0-2", "array_name": "sweep"}
    async with a_service() as service:
        await submit(service, "sweep-0", array_task=0, **task)
        assert (await service.ask("DELETE", f"{ARRAYS}/sweep")).status == 202
        await service.happens(JobCanceled(job_id="sweep-0"))
        await submit(service, "sweep-1", array_task=1, **task)
        assert await tasks(service) == ["sweep-1"]


async def test_task_joins_only_the_array_of_its_own_user(tmp_path: Path) -> None:
    access, anna, bob, _ = tokens(tmp_path)
    task: dict[str, Any] = {"array": "0-3", "array_name": "sweep"}
    async with a_service(access=access) as service:
        for index, token in enumerate((anna, bob, anna, bob)):
            await submit(service, f"sweep-{index}", token=token, array_task=index, **task)
        arrays = service.backend.journal.view.job_registry.arrays
        found = [[one.spec.job_id for one in arrays.tasks(f"sweep-{first}")] for first in (0, 1)]
    assert found == [["sweep-0", "sweep-2"], ["sweep-1", "sweep-3"]]


async def test_array_is_canceled_as_a_whole_by_its_owner(tmp_path: Path) -> None:
    access, anna, bob, _ = tokens(tmp_path)
    async with a_service(access=access) as service:
        await submit(service, "sweep", token=anna, array="0-3")
        await service.happens(JobCompleted(job_id="sweep-1"))
        await refused(service, 403, "DELETE", f"{ARRAYS}/sweep", token=bob)
        answer = await service.ask("DELETE", f"{ARRAYS}/sweep?reason=wrong%20data", token=anna)
        assert answer.status == 202
        assert answer.as_a(ArrayView).states == {"Canceling": 3, "Completed": 1}
        again = await service.ask("DELETE", f"{ARRAYS}/sweep", token=anna)
        assert again.status == 202
        events = await service.backend.journal.store.read(0, 100)
        why = Requested(by="anna", text="wrong data")
        requests = [event.data for event in events if isinstance(event.data, JobCancelRequested)]
        assert requests == [JobCancelRequested(job_id=f"sweep-{n}", reason=why, with_array=True) for n in (0, 2, 3)]
        for index in (0, 2, 3):
            await service.happens(JobCanceled(job_id=f"sweep-{index}"))
        found = (await service.ask("GET", f"{ARRAYS}/sweep", token=anna)).as_a(ArrayView)
        assert (found.states, found.finished_at is None) == ({"Canceled": 3, "Completed": 1}, False)
        await refused(service, 404, "GET", f"{ARRAYS}/weep", token=anna)


async def test_job_comes_after_live_jobs_and_arrays_by_their_names() -> None:
    async with a_service() as service:
        await submit(service, "prep")
        await submit(service, "sweep", array="0-1")
        answer = await submit(service, "report", after="prep:any,sweep,prep:any")
        assert [(each.job_id, each.array, each.condition) for each in answer.job.after] == [
            ("prep", "", "any"),
            ("sweep-0", "sweep", "ok"),
        ]
        live = service.backend.journal.view.cluster
        assert len((live.job("report") or raises()).waits_for) == 2
        await service.happens(JobFailed(job_id="prep", reason=Said(text="x")))
        for index in range(2):
            await service.happens(JobCompleted(job_id=f"sweep-{index}"))
        assert (live.job("report") or raises()).waits_for == ()


def raises() -> Any:
    raise AssertionError("the job is live")


async def test_dependency_on_a_job_that_has_ended_is_decided_at_submit() -> None:
    async with a_service() as service:
        await submit(service, "good")
        await submit(service, "bad")
        await service.happens(JobCompleted(job_id="good"))
        await service.happens(JobFailed(job_id="bad", reason=Said(text="x")))
        await submit(service, "a", after="good")
        await submit(service, "b", after="bad:any")
        live = service.backend.journal.view.cluster
        assert [(live.job(name) or raises()).waits_for for name in "ab"] == [(), ()]
        problem = await refused(service, 422, "POST", JOBS, body=a_manifest("c", after="bad"))
        assert (problem.field, "bad failed, so a job after bad would never start" in problem.detail) == (AFTER, True)
        problem = await refused(service, 422, "POST", JOBS, body=a_manifest("c", after="nobody"))
        assert "there is no job or array 'nobody': submit it first" in problem.detail
        await submit(service, "bad")
        await submit(service, "d", after="bad")
        assert [each.job_id for each in (live.job("d") or raises()).waits_for] == ["bad-2"]


async def test_retry_of_a_submit_is_answered_though_its_dependency_failed_since() -> None:
    headers = {"Idempotency-Key": "k"}
    async with a_service() as service:
        await submit(service, "a")
        body = a_manifest("b", after="a")
        assert (await service.ask("POST", JOBS, body=body, headers=headers)).status == 201
        await service.happens(JobFailed(job_id="a", reason=Said(text="x")))
        assert (await service.ask("POST", JOBS, body=body, headers=headers)).status == 200


async def test_bare_name_of_what_a_job_comes_after_means_no_other_users_job(tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, VirtualClock(START))
    ann, bob = access.add("ann", "user"), access.add("bob", "user")
    others: dict[str, dict[str, Any]] = {"prep": {}, "sweep": {"array": "0-1"}}
    async with a_service(access=access) as service:
        for name, extra in others.items():
            assert (await service.ask("POST", JOBS, token=bob, body=a_manifest(name, **extra))).status == 201
            answer = await service.ask("POST", JOBS, token=ann, body=a_manifest("report", after=name))
            assert (answer.status, answer.json()["field"]) == (422, AFTER)
            assert f"that of bob is meant only as bob/{name}" in answer.json()["detail"]
        body = a_manifest("report", after="bob/prep,bob/sweep:any,@prep:any")
        answer = await service.ask("POST", JOBS, token=ann, body=body)
        assert answer.status == 201
        assert [each.job_id for each in answer.as_a(SubmissionView).job.after] == ["prep", "sweep-0", "prep"]
        answer = await service.ask("POST", JOBS, token=ann, body=a_manifest("later", after="report"))
        assert answer.status == 201


async def test_arrays_are_the_same_after_a_snapshot_of_the_registry() -> None:
    store = MemoryStore()
    async with a_service(store) as service:
        await submit(service, "sweep", array="0-2")
        await submit(service, "after", after="sweep")
        await service.happens(WorkerStarted(job_id="sweep-0", workers={0: "n1"}))
        registry = service.backend.journal.view.job_registry
        again = JobRegistry()
        again.load(registry.dump())
    assert again.dump() == registry.dump()
    assert [task.spec.job_id for task in again.arrays.tasks("sweep-0")] == [f"sweep-{n}" for n in range(3)]
    assert again.arrays.live("sweep") == "sweep-0"
    assert msgspec.json.encode(again.jobs()["after"].spec) == msgspec.json.encode(registry.jobs()["after"].spec)

"""What a name means when several users have jobs of that name, now and at a past moment."""

from pathlib import Path

from tests.builders import a_spec
from tests.integration.api.test_jobs import JOBS, refused, submit, tokens
from tests.service import Service, a_manifest, a_service
from voda.cli.render.arrays import after_text
from voda.events.types import JobCompleted, JobSubmitted
from voda.wire.events import EventList
from voda.wire.explanations import ExplanationView
from voda.wire.jobs import ArrayView, JobList, JobView


async def meant(service: Service, named: str, token: str = "") -> str:
    answer = await service.ask("GET", f"{JOBS}/{named}", token=token)
    assert answer.status == 200, answer.body
    return answer.as_a(JobView).job_id


async def test_bare_name_means_the_callers_own_job_first_and_that_of_others_without_one(tmp_path: Path) -> None:
    access, anna, bob, vera = tokens(tmp_path)
    async with a_service(access=access) as service:
        await submit(service, "train", token=anna)
        await service.happens(JobCompleted(job_id="train"))
        await submit(service, "train", token=bob)
        assert [await meant(service, "train", token) for token in (anna, bob, vera)] == ["train", "train-2", "train-2"]
        assert [await meant(service, "@train-2", token) for token in (anna, bob)] == ["train-2", "train-2"]
        assert [await meant(service, "train-2", token) for token in (anna, bob)] == ["train-2", "train-2"]


async def test_owner_and_name_mean_the_owners_job_in_every_path(tmp_path: Path) -> None:
    access, anna, bob, _ = tokens(tmp_path)
    admin = access.add("root", "admin")
    async with a_service(access=access) as service:
        await submit(service, "train", token=anna)
        await service.happens(JobCompleted(job_id="train"))
        await submit(service, "train", token=bob)
        assert [await meant(service, f"{owner}%2Ftrain", admin) for owner in ("anna", "bob")] == ["train", "train-2"]
        told = await service.ask("GET", f"{JOBS}/anna%2Ftrain/explain", token=bob)
        assert told.as_a(ExplanationView).job_id == "train"
        events = (await service.ask("GET", "/api/v1/events?job=anna/train", token=bob)).json()
        assert {event["stream"] for event in events["items"]} == {"job.train"}
        problem = await refused(service, 404, "GET", f"{JOBS}/vera%2Ftrain", token=bob)
        assert problem.detail == "'vera' has no job 'train': `voda get --all --user vera` lists theirs"
        assert (await service.ask("DELETE", f"{JOBS}/bob%2Ftrain", token=admin)).as_a(JobView).job_id == "train-2"
        await refused(service, 403, "DELETE", f"{JOBS}/bob%2Ftrain", token=anna)


async def test_array_of_the_caller_goes_before_job_and_array_of_others(tmp_path: Path) -> None:
    access, anna, bob, _ = tokens(tmp_path)
    async with a_service(access=access) as service:
        await submit(service, "sweep", token=anna, array="0-1")
        for task in ("sweep-0", "sweep-1"):
            await service.happens(JobCompleted(job_id=task))
        await submit(service, "sweep", token=bob)
        await service.happens(JobCompleted(job_id="sweep"))
        await submit(service, "sweep", token=bob, array="5-7")
        problem = await refused(service, 404, "GET", f"{JOBS}/sweep", token=anna)
        assert problem.detail == "sweep is an array: name one of its tasks, sweep-0 to sweep-1"
        assert await meant(service, "sweep", bob) == "sweep"
        found = {}
        for token in (anna, bob):
            answer = await service.ask("GET", f"{JOBS}?array=sweep", token=token)
            found[token] = [job.job_id for job in answer.as_a(JobList).items]
        assert found == {anna: ["sweep-0", "sweep-1"], bob: ["sweep-5", "sweep-6", "sweep-7"]}


async def test_after_means_the_callers_own_job_unless_it_names_an_owner(tmp_path: Path) -> None:
    access, anna, bob, _ = tokens(tmp_path)
    async with a_service(access=access) as service:
        await submit(service, "prep", token=anna)
        await service.happens(JobCompleted(job_id="prep"))
        await submit(service, "prep", token=bob)
        own = await submit(service, "train", token=anna, after="prep")
        theirs = await submit(service, "eval", token=anna, after="bob/prep:any")
        assert [each.job_id for each in own.job.after] == ["prep"]
        assert [each.job_id for each in theirs.job.after] == ["prep-2"]
        # Both have a prep, so both are shown with their owners, as they may be named.
        assert (after_text(own.job.after), after_text(theirs.job.after)) == ("anna/prep", "bob/prep-2:any")
        again = await submit(service, "again", token=anna, after="bob/prep-2:any")
        assert again.job.after == theirs.job.after


async def test_after_shows_an_owner_only_where_the_name_does_not_say_enough(tmp_path: Path) -> None:
    access, anna, bob, _ = tokens(tmp_path)
    async with a_service(access=access) as service:
        await submit(service, "prep", token=anna)
        await submit(service, "sweep", token=anna, array="0-1")
        own = await submit(service, "train", token=anna, after="prep,sweep")
        theirs = await submit(service, "eval", token=bob, after="anna/prep,anna/sweep:any")
        assert after_text(own.job.after) == "prep, array sweep"
        assert after_text(theirs.job.after) == "anna/prep, array anna/sweep:any"
        spec = service.backend.journal.view.job_registry.jobs()["eval"].spec
        assert [each.target for each in spec.after] == ["anna/prep", "array anna/sweep"]


async def test_new_name_that_is_the_id_of_a_run_of_another_name_is_refused() -> None:
    async with a_service() as service:
        await submit(service, "train")
        await service.happens(JobCompleted(job_id="train"))
        assert (await submit(service, "train")).job.job_id == "train-2"
        problem = await refused(service, 409, "POST", JOBS, body=a_manifest("train-2"))
        assert problem.detail == "train-2 is the id of a run of train: choose another name"
        await service.happens(JobCompleted(job_id="train-2"))
        await refused(service, 409, "POST", JOBS, body=a_manifest("train-2"))
        # The other way round, the id of the next run goes past a name.
        await submit(service, "train-3")
        assert (await submit(service, "train")).job.job_id == "train-4"


async def test_name_that_a_log_has_as_name_and_id_runs_again() -> None:
    async with a_service() as service:
        await service.happens(JobSubmitted(spec=a_spec("train-2", name="train")))
        await service.happens(JobSubmitted(spec=a_spec("train-2-2", name="train-2")))
        await service.happens(JobCompleted(job_id="train-2-2"))
        assert (await submit(service, "train-2")).job.job_id == "train-2-3"


async def test_explain_at_a_past_moment_means_the_run_of_that_moment(tmp_path: Path) -> None:
    access, anna, bob, _ = tokens(tmp_path)
    async with a_service(access=access) as service:
        await submit(service, "train", token=anna)
        first = await service.happens(JobCompleted(job_id="train"))
        await submit(service, "train", token=bob)
        second = await service.happens(JobCompleted(job_id="train-2"))
        await submit(service, "train", token=anna)

        async def explained(named: str, token: str, at: int) -> str:
            answer = await service.ask("GET", f"{JOBS}/{named}/explain?at={at}", token=token)
            assert answer.status == 200, answer.body
            return answer.as_a(ExplanationView).job_id

        assert await explained("train", anna, first) == "train"
        assert await explained("train", anna, second) == "train"
        assert await explained("train", anna, second + 1) == "train-3"
        assert await explained("train", bob, first) == "train"
        assert await explained("train", bob, second + 1) == "train-2"
        assert await explained("bob%2Ftrain", anna, second) == "train-2"
        await refused(service, 404, "GET", f"{JOBS}/trian/explain?at={first}", token=anna)
        problem = await refused(service, 422, "GET", f"{JOBS}/bob%2Ftrain/explain?at={first}", token=anna)
        assert "job train-2 was submitted at position" in problem.detail


async def test_events_up_to_a_past_moment_are_those_of_the_run_that_the_name_meant_then(tmp_path: Path) -> None:
    access, anna, bob, _ = tokens(tmp_path)
    async with a_service(access=access) as service:
        await submit(service, "train", token=anna)
        first = await service.happens(JobCompleted(job_id="train"))
        await submit(service, "train", token=bob)
        second = await service.happens(JobCompleted(job_id="train-2"))
        await submit(service, "train", token=anna)

        async def streams(token: str, until: str) -> tuple[set[str], int]:
            answer = await service.ask("GET", f"/api/v1/events?job=train{until}", token=token)
            assert answer.status == 200, answer.body
            events = answer.as_a(EventList)
            return {event.stream for event in events.items}, events.last_position

        assert await streams(anna, f"&until={first}") == ({"job.train"}, first)
        assert await streams(bob, f"&until={first}") == ({"job.train"}, first)
        assert await streams(bob, f"&until={second}") == ({"job.train-2"}, second)
        assert await streams(anna, f"&until={second}") == ({"job.train"}, second)
        assert await streams(anna, "") == ({"job.train-3"}, second + 1)
        assert await streams(anna, f"&until={second + 99}") == ({"job.train-3"}, second + 1)
        await refused(service, 404, "GET", f"/api/v1/events?job=trian&until={first}", token=anna)
        await refused(service, 422, "GET", f"/api/v1/events?watch=true&until={first}", token=anna)


async def test_array_is_named_with_its_owner(tmp_path: Path) -> None:
    access, anna, bob, _ = tokens(tmp_path)
    async with a_service(access=access) as service:
        await submit(service, "sweep", token=anna, array="0-1")
        assert (await service.ask("GET", "/api/v1/arrays/anna%2Fsweep", token=bob)).as_a(ArrayView).user == "anna"
        await refused(service, 404, "GET", "/api/v1/arrays/bob%2Fsweep", token=bob)

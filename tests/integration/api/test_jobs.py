"""Jobs over HTTP: submit, list, get, change, delete, report."""

import asyncio
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.service import START, Service, a_manifest, a_service
from voda.auth.tokens import Authenticator
from voda.clock import VirtualClock
from voda.domain.job import Phase
from voda.domain.plan import ExpectedTimes
from voda.events.types import JobCancelRequested, JobCompleted, JobProgressed, JobSubmitted, WorkerStarted
from voda.log.memory import MemoryStore
from voda.manifests.text import MOST_BYTES
from voda.wire.base import Problem
from voda.wire.jobs import ForecastView, JobList, JobView, ReportList, SubmissionView

JOBS = "/api/v1/jobs"


async def submit(service: Service, name: str = "digits", *, token: str = "", **fields: Any) -> SubmissionView:
    answer = await service.ask("POST", JOBS, token=token, body=a_manifest(name, **fields))
    assert answer.status == 201, answer.body
    return answer.as_a(SubmissionView)


async def submissions(service: Service) -> list[JobSubmitted]:
    events = await service.backend.journal.store.read(0, 10_000)
    return [event.data for event in events if isinstance(event.data, JobSubmitted)]


async def refused(service: Service, status: int, method: str, path: str, **request: Any) -> Problem:
    answer = await service.ask(method, path, **request)
    assert answer.status == status, answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.as_a(Problem)
    assert problem.status == status
    return problem


async def forecast_of(service: Service, job: str) -> ForecastView:
    return (await service.ask("GET", f"{JOBS}/{job}")).as_a(JobView).forecast


def tokens(folder: Path) -> tuple[Authenticator, str, str, str]:
    """Return an access with an admin, users anna and bob, and the tokens of anna, bob and a viewer."""
    access = Authenticator.open(folder, VirtualClock(START))
    return access, access.add("anna", "user"), access.add("bob", "user"), access.add("vera", "viewer")


async def test_submit_when_good_is_recorded_and_shown_at_once() -> None:
    async with a_service() as service:
        answer = await service.ask("POST", JOBS, body=a_manifest(min_replicas=1, max_replicas=3, epochs=5))
        job = answer.as_a(SubmissionView).job
        assert (answer.status, answer.headers["Location"]) == (201, f"{JOBS}/digits")
        assert answer.headers["ETag"] == f'"{job.revision}"'
        assert (job.job_id, job.phase, job.max_replicas, job.progress.epochs) == ("digits", Phase.SUBMITTED, 3, 5)
        shown = await service.ask("GET", answer.headers["Location"])
    assert shown.as_a(JobView) == job


async def test_submit_when_yaml_is_the_same_as_json() -> None:
    text = """
    apiVersion: kubeflow.org/v2beta1
    kind: MPIJob
    metadata: {name: from-yaml}
    spec:
      mpiReplicaSpecs:
        Launcher: {template: {spec: {containers: [{name: c, image: i, command: [sleep, "1"]}]}}}
        Worker: {replicas: 2, template: {spec: {containers: [{name: c, image: i, command: [sleep, "1"]}]}}}
    """
    async with a_service() as service:
        answer = await service.ask("POST", JOBS, body=text, headers={"Content-Type": "application/yaml"})
    assert answer.status == 201
    assert answer.as_a(SubmissionView).job.requested_replicas == 2


async def test_submit_when_the_cluster_does_not_honour_parts_warns_of_each() -> None:
    from voda.manifests.local_warnings import local_warnings

    async with a_service(warnings=lambda parsed: tuple(local_warnings(parsed))) as service:
        fields = [warned.field for warned in (await submit(service)).warnings]
    assert any(field.endswith("image") for field in fields)
    assert len(fields) == len(set(fields))


async def test_submit_when_dry_records_nothing_and_tells_the_id() -> None:
    async with a_service() as service:
        await submit(service)
        position = service.backend.journal.view.position
        await service.happens(JobCompleted(job_id="digits"))
        answer = await service.ask("POST", f"{JOBS}?dry_run=true", body=a_manifest())
        taken = answer.as_a(SubmissionView)
        assert (answer.status, taken.is_dry_run, taken.job.job_id) == (200, True, "digits-2")
        assert await service.backend.journal.store.position() == position + 1


async def test_submit_when_the_name_is_live_is_refused() -> None:
    async with a_service() as service:
        await submit(service)
        problem = await refused(service, 409, "POST", JOBS, body=a_manifest())
        assert "digits" in problem.detail
        await refused(service, 409, "POST", f"{JOBS}?dry_run=true", body=a_manifest())


async def test_submit_when_the_name_has_ended_gets_the_next_number() -> None:
    async with a_service() as service:
        for job_id in ("digits", "digits-2", "digits-3", "digits-4"):
            assert (await submit(service)).job.job_id == job_id
            await service.happens(JobCompleted(job_id=job_id))
        latest = await service.ask("GET", f"{JOBS}/digits-4")
        assert latest.as_a(JobView).name == "digits"


async def test_submit_when_in_a_namespace_has_it_in_its_id() -> None:
    manifest = a_manifest()
    manifest["metadata"]["namespace"] = "team"
    async with a_service() as service:
        await submit(service)
        answer = await service.ask("POST", JOBS, body=manifest)
    assert answer.as_a(SubmissionView).job.job_id == "team_digits"


async def test_submit_when_the_same_name_comes_many_times_at_once_is_taken_once() -> None:
    async with a_service() as service:
        answers = await asyncio.gather(*[service.ask("POST", JOBS, body=a_manifest()) for _ in range(20)])
        assert sorted(answer.status for answer in answers) == [201] + [409] * 19
        assert len(await submissions(service)) == 1


async def test_submit_when_the_same_key_comes_many_times_at_once_gives_one_job() -> None:
    async with a_service() as service:
        key = {"Idempotency-Key": "k1"}
        answers = await asyncio.gather(*[service.ask("POST", JOBS, body=a_manifest(), headers=key) for _ in range(20)])
        assert sorted(answer.status for answer in answers) == [200] * 19 + [201]
        assert {answer.as_a(SubmissionView).job.job_id for answer in answers} == {"digits"}
        assert len(await submissions(service)) == 1


async def test_submit_when_the_key_was_seen_before_a_restart_gives_the_job_of_then() -> None:
    store, key = MemoryStore(), {"Idempotency-Key": "k1"}
    async with a_service(store) as service:
        assert (await service.ask("POST", JOBS, body=a_manifest(), headers=key)).status == 201
        await service.happens(JobCompleted(job_id="digits"))
    async with a_service(store, clock=VirtualClock(START, prefix="later-")) as service:
        again = await service.ask("POST", JOBS, body=a_manifest(), headers=key)
        assert (again.status, again.as_a(SubmissionView).job.phase) == (200, Phase.COMPLETED)
        assert len(await submissions(service)) == 1


async def test_submit_when_the_key_was_used_for_another_manifest_is_refused() -> None:
    async with a_service() as service:
        key = {"Idempotency-Key": "k1"}
        await service.ask("POST", JOBS, body=a_manifest(), headers=key)
        problem = await refused(service, 422, "POST", JOBS, body=a_manifest("other"), headers=key)
    assert "'k1'" in problem.detail
    assert "digits" in problem.detail


async def test_submit_when_the_key_is_another_users_is_a_job_of_its_own(tmp_path: Path) -> None:
    access, anna, bob, _ = tokens(tmp_path)
    async with a_service(access=access) as service:
        key = {"Idempotency-Key": "k1"}
        first = await service.ask("POST", JOBS, token=anna, body=a_manifest("a"), headers=key)
        second = await service.ask("POST", JOBS, token=bob, body=a_manifest("b"), headers=key)
    assert (first.status, second.status) == (201, 201)


async def test_submit_when_the_user_has_enough_jobs_is_refused_unless_admin(tmp_path: Path) -> None:
    access, anna, _, _ = tokens(tmp_path)
    admin = (tmp_path / "admin.token").read_text().strip()
    async with a_service(access=access, jobs_per_user=2) as service:
        asked = [service.ask("POST", JOBS, token=anna, body=a_manifest(f"a{number}")) for number in range(5)]
        statuses = sorted(answer.status for answer in await asyncio.gather(*asked))
        assert statuses == [201, 201, 429, 429, 429]
        for number in range(3):
            await submit(service, f"b{number}", token=admin)
        problem = await refused(service, 429, "POST", JOBS, token=anna, body=a_manifest("more"))
    assert "anna has 2 live jobs" in problem.detail


async def test_submit_when_no_node_could_ever_hold_it_warns() -> None:
    async with a_service() as service:
        taken = await submit(service, min_replicas=9, max_replicas=9, workers=9)
    assert any("waits until nodes join" in warned.message for warned in taken.warnings)


async def test_submit_when_the_pool_is_unknown_names_the_pools() -> None:
    async with a_service(pools=("v100", "a100")) as service:
        problem = await refused(service, 422, "POST", JOBS, body=a_manifest(pool="tpu"))
        assert "v100, a100" in problem.detail
        assert problem.field == "metadata.annotations[voda.dev/pool]"
        assert (await submit(service)).job.pool == "v100"


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, b"", {}),
        (400, b"\xff\xfe\x00garbage", {}),
        (400, b"{", {}),
        (400, b"- a\n- b", {}),
        (400, b"kind: MPIJob\n---\nkind: MPIJob\n", {}),
        (400, b"a: !!python/object/apply:os.system [id]", {}),
        (400, b"a: *nowhere", {}),
        (400, b"a: &a [*a]", {}),
        (400, b'{"a":' * 70 + b"1" + b"}" * 70, {}),
        (400, b"[" * 100_000, {}),
        (422, b"kind: Pod\napiVersion: v1\n", {}),
        (422, b"kind: [MPIJob]\napiVersion: kubeflow.org/v1\n", {}),
        (422, a_manifest("a/../b"), {}),
        (422, a_manifest("a\u202eb"), {}),
        (422, a_manifest("a\nb"), {}),
        (422, a_manifest("UPPER"), {}),
        (422, a_manifest("../../etc/passwd"), {}),
        (422, a_manifest("ünicode"), {}),
        (422, a_manifest("x" * 80), {}),
        (422, a_manifest(min_replicas=4, max_replicas=2), {}),
        (415, b"<a/>", {"Content-Type": "application/xml"}),
        (415, a_manifest(), {"Content-Encoding": "gzip"}),
        (422, a_manifest(), {"Idempotency-Key": "k" * 300}),
        (422, a_manifest(), {"Idempotency-Key": ""}),
    ],
)
async def test_submit_when_it_cannot_be_meant_is_refused_in_a_sentence(
    status: int, body: Any, headers: Mapping[str, str]
) -> None:
    async with a_service() as service:
        problem = await refused(service, status, "POST", JOBS, body=body, headers=headers)
        assert problem.detail
        assert await submissions(service) == []


@pytest.mark.slow
async def test_submit_when_the_body_is_huge_is_refused() -> None:
    async with a_service() as service:
        problem = await refused(service, 413, "POST", JOBS, body=io.BytesIO(b"x" * 3_000_000))
    assert "larger" in problem.detail


async def test_submit_when_the_body_is_as_large_as_manifests_may_be_is_taken() -> None:
    manifest = a_manifest()
    manifest["metadata"]["annotations"] = {"note": ""}
    room = MOST_BYTES - len(msgspec.json.encode(manifest))
    manifest["metadata"]["annotations"]["note"] = "n" * room
    async with a_service() as service:
        assert (await service.ask("POST", f"{JOBS}?dry_run=true", body=manifest)).status == 200


async def test_submit_when_a_yaml_bomb_is_refused_quickly() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    async with a_service() as service, asyncio.timeout(60):
        await refused(service, 400, "POST", JOBS, body="\n".join(lines))
        assert service.backend.journal.view.job_registry.jobs() == {}


async def test_list_when_paged_shows_each_job_once_though_jobs_come_and_change() -> None:
    async with a_service() as service:
        for number in range(10):
            await submit(service, f"j{number}", priority=number % 3)
        for sort in ("submitted_at", "-submitted_at", "priority", "-priority", "name", "-name"):
            seen: list[str] = []
            after = ""
            while True:
                answer = await service.ask("GET", f"{JOBS}?sort={sort}&limit=3&phase=live&name=&continue={after}")
                page = answer.as_a(JobList)
                assert page.total >= 10
                seen += [job.job_id for job in page.items]
                if not page.next:
                    break
                after = page.next
                # One that sorts before everything that is still to come, and one that was shown and has gone.
                await submit(service, f"new-{sort.strip('-').replace('_', '')}-{len(seen)}-{sort.count('-')}")
            assert len(seen) == len(set(seen))
            assert {f"j{number}" for number in range(10)} <= set(seen)


async def test_list_when_filtered_counts_what_matches() -> None:
    async with a_service() as service:
        for name in ("a", "b", "c"):
            await submit(service, name)
        await service.happens(JobCompleted(job_id="a"))
        await service.happens(WorkerStarted(job_id="b", workers={0: "n1"}))

        async def names(query: str) -> list[str]:
            answer = await service.ask("GET", f"{JOBS}?{query}")
            return [job.name for job in answer.as_a(JobList).items]

        assert await names("") == ["a", "b", "c"]
        assert await names("phase=live") == ["b", "c"]
        assert await names("phase=Running&phase=Completed") == ["a", "b"]
        assert await names("name=c") == ["c"]
        assert await names("user=nobody") == []
        assert await names("pool=default&namespace=default&sort=-replicas") == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=many", "limit"),
        ("phase=running", "phase"),
        ("sort=colour", "sort"),
        ("phaze=Running", "phaze"),
        ("limit=1&limit=2", "limit"),
        ("continue=zzz", "continue"),
        ("continue=WzEsMl0", "continue"),
        ("continue=%00", "continue"),
        ("sort=name&continue=WyJwcmlvcml0eSIsMSwyXQ", "continue"),
    ],
)
async def test_list_when_the_query_is_wrong_names_the_parameter(query: str, field: str) -> None:
    async with a_service() as service:
        problem = await refused(service, 422, "GET", f"{JOBS}?{query}")
    assert problem.field.startswith(field)


async def test_list_when_a_word_is_unknown_tells_the_others() -> None:
    async with a_service() as service:
        phase = await refused(service, 422, "GET", f"{JOBS}?phase=running")
        sort = await refused(service, 422, "GET", f"{JOBS}?sort=colour")
        name = await refused(service, 422, "GET", f"{JOBS}?fase=live")
    assert "expected one of Submitted, Waiting, Running, Completed, Failed, Canceled, live" in phase.detail
    assert "-priority" in sort.detail
    assert "expected one of pool, phase, user" in name.detail


async def test_get_when_unchanged_sends_no_body() -> None:
    async with a_service() as service:
        etag = f'"{(await submit(service)).job.revision}"'
        same = await service.ask("GET", f"{JOBS}/digits", headers={"If-None-Match": etag})
        assert (same.status, same.body, same.headers["ETag"]) == (304, b"", etag)
        await service.happens(WorkerStarted(job_id="digits", workers={0: "n1"}))
        other = await service.ask("GET", f"{JOBS}/digits", headers={"If-None-Match": etag})
        assert other.status == 200
        assert other.as_a(JobView).replicas == 1


@pytest.mark.parametrize(
    "name",
    ["nothing", "%2e%2e", "..%2f..%2fetc", "%00", "%ff", "%ed%a0%80", "%C3%BC", "a" * 3_000, "%F0%9F%98%80", "a b"],
)
@pytest.mark.parametrize("part", ["", "/progress", "/manifest"])
async def test_get_when_the_name_is_odd_is_not_found(name: str, part: str) -> None:
    async with a_service() as service:
        problem = await refused(service, 404, "GET", f"{JOBS}/{name.replace(' ', '%20')}{part}")
    assert len(problem.detail) < 400


async def test_change_when_good_is_recorded_and_shown() -> None:
    async with a_service() as service:
        await submit(service, min_replicas=1, max_replicas=2)
        answer = await service.ask("PATCH", f"{JOBS}/digits", body={"max_replicas": 4, "priority": 7, "epochs": 9})
        job = answer.as_a(JobView)
        assert (job.max_replicas, job.priority, job.progress.epochs, job.min_replicas) == (4, 7, 9, 1)
        position = service.backend.journal.view.position
        again = await service.ask("PATCH", f"{JOBS}/digits", body={"max_replicas": 4})
        assert (again.status, again.as_a(JobView).revision) == (200, job.revision)
        assert service.backend.journal.view.position == position


async def test_change_when_the_job_is_not_what_was_seen_is_refused() -> None:
    async with a_service() as service:
        etag = f'"{(await submit(service, min_replicas=1, max_replicas=2)).job.revision}"'
        first = await service.ask("PATCH", f"{JOBS}/digits", body={"priority": 1}, headers={"If-Match": etag})
        assert first.status == 200
        problem = await refused(
            service, 412, "PATCH", f"{JOBS}/digits", body={"priority": 2}, headers={"If-Match": etag}
        )
        assert "get it again" in problem.detail
        seen = first.headers["ETag"]
        asked = [
            service.ask("PATCH", f"{JOBS}/digits", body={"priority": 10 + n}, headers={"If-Match": seen})
            for n in range(5)
        ]
        assert sorted(answer.status for answer in await asyncio.gather(*asked)) == [200, 412, 412, 412, 412]


@pytest.mark.parametrize(
    ("status", "body", "field"),
    [
        (422, {"min_replicas": 0}, "min_replicas"),
        (422, {"min_replicas": 5}, "min_replicas"),
        (422, {"max_replicas": 5_000}, "max_replicas"),
        (422, {"min_replicas": 3, "max_replicas": 2}, "max_replicas"),
        (422, {"requested_replicas": 9}, "requested_replicas"),
        (422, {"epochs": -1}, "epochs"),
        (422, {"priority": 2**40}, "priority"),
        (422, {"priority": 2**70}, "priority"),
        (422, {"priority": "high"}, "priority"),
        (422, {"priority": None}, "priority"),
        (422, {"colour": 1}, "colour"),
        (422, [], ""),
        (400, b"{", ""),
        (400, b"\xff", ""),
        (415, "max_replicas: 3", ""),
    ],
)
async def test_change_when_it_cannot_be_meant_names_the_field(status: int, body: Any, field: str) -> None:
    async with a_service() as service:
        await submit(service, min_replicas=1, max_replicas=2)
        headers = {"Content-Type": "text/csv"} if status == 415 else {}
        problem = await refused(service, status, "PATCH", f"{JOBS}/digits", body=body, headers=headers)
    assert problem.field == field


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
@pytest.mark.parametrize(
    ("believed", "is_taken"),
    [("*", True), ('"0", "{}"', True), ('"0","1"', False), ('W/"{}"', False), ("{}", True), ('""', False), ("", False)],
)
async def test_job_when_if_match_is_given_is_touched_only_if_it_names_the_revision(
    method: str, believed: str, is_taken: bool
) -> None:
    async with a_service() as service:
        revision = (await submit(service)).job.revision
        before = service.backend.journal.view.position
        body = {"priority": 1} if method == "PATCH" else None
        headers = {"If-Match": believed.format(revision)}
        answer = await service.ask(method, f"{JOBS}/digits", body=body, headers=headers)
        assert (answer.status < 300, service.backend.journal.view.position > before) == (is_taken, is_taken), (
            answer.body
        )
        assert is_taken or answer.status == 412


async def test_delete_when_the_job_changed_meanwhile_leaves_it_alone() -> None:
    async with a_service() as service:
        seen = {"If-Match": f'"{(await submit(service)).job.revision}"'}
        await service.ask("PATCH", f"{JOBS}/digits", body={"priority": 1})
        problem = await refused(service, 412, "DELETE", f"{JOBS}/digits", headers=seen)
        assert "get it again" in problem.detail
        assert not (await service.ask("GET", f"{JOBS}/digits")).as_a(JobView).is_canceling


async def test_get_when_a_proxy_weakened_the_tag_is_unchanged_all_the_same() -> None:
    async with a_service() as service:
        revision = (await submit(service)).job.revision
        for known in (f'W/"{revision}"', f'"0", "{revision}"', "*"):
            answer = await service.ask("GET", f"{JOBS}/digits", headers={"If-None-Match": known})
            assert answer.status == 304


async def test_change_when_the_job_has_ended_is_refused() -> None:
    async with a_service() as service:
        await submit(service)
        await service.happens(JobCompleted(job_id="digits"))
        problem = await refused(service, 409, "PATCH", f"{JOBS}/digits", body={"priority": 1})
    assert "Completed" in problem.detail


async def test_delete_when_asked_twice_is_recorded_once() -> None:
    async with a_service() as service:
        await submit(service)
        first = await service.ask("DELETE", f"{JOBS}/digits?reason=a%20mistake")
        assert (first.status, first.as_a(JobView).is_canceling, first.as_a(JobView).message) == (
            202,
            True,
            "canceled by admin: a mistake",
        )
        position = service.backend.journal.view.position
        assert (await service.ask("DELETE", f"{JOBS}/digits")).status == 202
        assert service.backend.journal.view.position == position


async def test_delete_at_once_is_for_admins_also_of_a_job_that_is_canceled_already(tmp_path: Path) -> None:
    access, anna, _, _ = tokens(tmp_path)
    admin = (tmp_path / "admin.token").read_text().strip()
    async with a_service(access=access) as service:
        manifest = a_manifest()
        manifest["metadata"]["annotations"] = {**manifest["metadata"].get("annotations", {}), "voda.dev/array": "0-1"}
        assert (await service.ask("POST", JOBS, token=anna, body=manifest)).status == 201
        for path in (f"{JOBS}/digits-0", "/api/v1/arrays/digits"):
            problem = await refused(service, 403, "DELETE", f"{path}?now=true", token=anna)
            assert "only admins" in problem.detail
            assert (await service.ask("DELETE", path, token=anna)).status == 202
            for _ in range(2):
                assert (await service.ask("DELETE", f"{path}?now=true", token=admin)).status == 202
        events = await service.backend.journal.store.read(0, 100)
        facts = [event.data for event in events if isinstance(event.data, JobCancelRequested)]
    assert [(fact.job_id, fact.is_kill) for fact in facts] == [
        ("digits-0", False),
        ("digits-0", True),
        ("digits-1", False),
        ("digits-1", True),
    ]


async def test_delete_when_the_job_has_ended_leaves_it_as_it_is() -> None:
    async with a_service() as service:
        await submit(service)
        await service.happens(JobCompleted(job_id="digits"))
        answer = await service.ask("DELETE", f"{JOBS}/digits")
    assert (answer.status, answer.as_a(JobView).phase) == (202, Phase.COMPLETED)


async def test_report_when_sent_twice_is_recorded_once(tmp_path: Path) -> None:
    access, anna, _, _ = tokens(tmp_path)
    async with a_service(access=access) as service:
        await submit(service, token=anna, epochs=5)
        own, path = access.job_token("digits"), f"{JOBS}/digits/progress"
        said = {"epoch": 1, "epoch_time_s": 2.5, "workers": 1, "metrics": {"loss": 0.5}, "report_id": "r1"}
        for _ in range(2):
            assert (await service.ask("POST", path, token=own, body=said)).status == 204
        reports = (await service.ask("GET", path, token=anna)).as_a(ReportList).items
        assert [(one.epochs_done, one.epoch_s, one.metrics) for one in reports] == [(1.0, 2.5, {"loss": 0.5})]
        events = await service.backend.journal.store.read(0, 100, stream="job.digits")
        assert [event.actor for event in events if isinstance(event.data, JobProgressed)] == ["job/digits"]


async def test_report_when_a_resize_fell_into_the_epoch_tells_no_time() -> None:
    clock = VirtualClock(START, prefix="id-")
    async with a_service(clock=clock) as service:
        await submit(service, min_replicas=1, max_replicas=2)
        await service.happens(WorkerStarted(job_id="digits", workers={0: "n1"}))
        clock.move_to(START + 10)
        await service.ask("POST", f"{JOBS}/digits/progress", body={"epoch": 1, "epoch_time_s": 5.0})
        clock.move_to(START + 12)
        await service.happens(WorkerStarted(job_id="digits", workers={1: "n1"}))
        clock.move_to(START + 16)
        await service.ask("POST", f"{JOBS}/digits/progress", body={"epoch": 2, "epoch_time_s": 6.0})
        clock.move_to(START + 20)
        await service.ask("POST", f"{JOBS}/digits/progress", body={"epoch": 3, "epoch_time_s": 4.0})
        reports = (await service.ask("GET", f"{JOBS}/digits/progress")).as_a(ReportList).items
        events = await service.backend.journal.store.read(0, 100, stream="job.digits")
    assert [(one.workers, one.epoch_s) for one in reports] == [(1, 5.0), (2, None), (2, 4.0)]
    # The log has what the job said: whether a resize fell into it is decided by those who read the log.
    recorded = [event.data.epoch_s for event in events if isinstance(event.data, JobProgressed)]
    assert recorded == [5.0, 6.0, 4.0]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"epoch": NaN}'),
        (400, b'{"epoch": 1, "metrics": {"loss": Infinity}}'),
        (422, {"epoch": -1}),
        (422, {"epoch": 1, "workers": -1}),
        (422, {"epoch": 1, "epoch_time_s": 0}),
        (422, {"epoch": 1, "metrics": {"loss": "low"}}),
        (422, {"epoch": 1, "metrics": {"x" * 300: 1}}),
        (422, {"epoch": 1, "metrics": {f"m{n}": 1 for n in range(200)}}),
        (422, {"epoch": 1, "metrics": {f"{n}{'m' * 190}": 1 for n in range(100)}}),
        (422, {"epoch": "one"}),
        (422, {}),
    ],
)
async def test_report_when_it_cannot_be_meant_is_refused(status: int, body: Any) -> None:
    async with a_service() as service:
        await submit(service)
        await refused(service, status, "POST", f"{JOBS}/digits/progress", body=body)
        assert service.backend.journal.view.job_registry.jobs()["digits"].reports.count == 0


async def test_reports_of_an_ended_job_are_read_from_the_log_the_newest_thousand() -> None:
    async with a_service() as service:
        await submit(service)
        journal = service.backend.journal
        facts = [JobProgressed(job_id="digits", epochs_done=n, workers=1, metrics={"loss": n}) for n in range(1_101)]
        await journal.record(*facts, actor="test")
        await service.happens(JobCompleted(job_id="digits"))
        reports = (await service.ask("GET", f"{JOBS}/digits/progress")).as_a(ReportList).items
    assert [one.epochs_done for one in reports] == list(range(101, 1_101))
    assert reports[-1].metrics == {"loss": 1_100}


async def test_user_who_has_written_as_much_as_one_may_is_told_when_to_try_again_and_others_are_served(
    tmp_path: Path,
) -> None:
    access, anna, bob, _ = tokens(tmp_path)
    clock = VirtualClock(START, prefix="id-")
    async with a_service(access=access, clock=clock, log_bytes_per_user=4_000) as service:
        await submit(service, "mine", token=anna)
        own, path = access.job_token("mine"), f"{JOBS}/mine/progress"
        statuses = [
            (await service.ask("POST", path, token=own, body={"epoch": n, "metrics": {"m" * 200: n}})).status
            for n in range(10)
        ]
        assert (statuses[0], statuses[-1]) == (204, 429)
        refusal = await service.ask("POST", JOBS, token=anna, body=a_manifest("more"))
        assert refusal.status == 429
        assert 3_500 < int(refusal.headers["Retry-After"]) <= 3_660
        assert "user anna has written 4.0 kB to the log within an hour" in refusal.as_a(Problem).detail
        # What was acknowledged is in the log, what gives back is never refused, and others are served.
        events = await service.backend.journal.store.read(0, 100, stream="job.mine")
        assert sum(isinstance(event.data, JobProgressed) for event in events) == statuses.count(204)
        assert (await service.ask("DELETE", f"{JOBS}/mine", token=anna)).status == 202
        await submit(service, "others", token=bob)
        clock.move_to(START + int(refusal.headers["Retry-After"]))
        await submit(service, "more", token=anna)


async def test_manifests_of_a_users_live_jobs_are_bounded_in_bytes_until_jobs_end(tmp_path: Path) -> None:
    access, anna, bob, _ = tokens(tmp_path)
    admin = (tmp_path / "admin.token").read_text().strip()
    async with a_service(access=access, live_bytes_per_user=10_000) as service:

        def large(name: str) -> dict[str, Any]:
            return a_manifest(name, padding="x" * 3_000)

        asked = [service.ask("POST", JOBS, token=anna, body=large(f"a{number}")) for number in range(5)]
        statuses = [answer.status for answer in await asyncio.gather(*asked)]
        assert sorted(statuses) == [201, 201, 429, 429, 429]
        refusal = await refused(service, 429, "POST", JOBS, token=anna, body=large("more"))
        assert "of user anna's live jobs would have" in refusal.detail
        await refused(service, 429, "POST", f"{JOBS}?dry_run=true", token=anna, body=large("more"))
        whole = await refused(service, 422, "POST", JOBS, token=anna, body=a_manifest("w", padding="x" * 10_000))
        assert "all live jobs of a user may have 10 kB" in whole.detail
        for number, token in enumerate((bob, admin, admin, admin)):
            answer = await service.ask("POST", JOBS, token=token, body=large(f"b{number}"))
            assert answer.status == 201
        await service.happens(JobCompleted(job_id=f"a{statuses.index(201)}"))
        assert (await service.ask("POST", JOBS, token=anna, body=large("more"))).status == 201


async def test_jobs_of_admins_may_write_to_the_log_without_a_bound(tmp_path: Path) -> None:
    access, *_ = tokens(tmp_path)
    async with a_service(access=access, log_bytes_per_user=4_000) as service:
        await submit(service, "mine", token=(tmp_path / "admin.token").read_text().strip())
        own, path = access.job_token("mine"), f"{JOBS}/mine/progress"
        for n in range(10):
            answer = await service.ask("POST", path, token=own, body={"epoch": n, "metrics": {"m" * 200: n}})
            assert answer.status == 204


async def test_report_when_the_job_has_ended_is_refused() -> None:
    async with a_service() as service:
        await submit(service)
        await service.happens(JobCompleted(job_id="digits"))
        await refused(service, 409, "POST", f"{JOBS}/digits/progress", body={"epoch": 1})
        assert service.backend.journal.view.job_registry.jobs()["digits"].reports.count == 0


async def test_manifest_when_asked_for_is_as_submitted() -> None:
    async with a_service() as service:
        await submit(service, epochs=5)
        await service.ask("PATCH", f"{JOBS}/digits", body={"epochs": 9})
        as_json = await service.ask("GET", f"{JOBS}/digits/manifest")
        as_yaml = await service.ask("GET", f"{JOBS}/digits/manifest", headers={"Accept": "application/yaml"})
    assert as_json.json() == a_manifest(epochs=5)
    assert as_yaml.body.decode().startswith("apiVersion: kubeflow.org/v2beta1")


async def test_roles_when_not_enough_are_refused(tmp_path: Path) -> None:
    access, anna, bob, viewer = tokens(tmp_path)
    admin = (tmp_path / "admin.token").read_text().strip()
    async with a_service(access=access) as service:
        await submit(service, token=anna)
        own, foreign = access.job_token("digits"), access.job_token("other")
        for token in (anna, bob, viewer, admin):
            assert (await service.ask("GET", f"{JOBS}/digits", token=token)).status == 200
        change: dict[str, Any] = {"body": {"priority": 1}}
        for token in (viewer, own):
            await refused(service, 403, "POST", JOBS, token=token, body=a_manifest("other"))
        for token in (bob, viewer, own):
            await refused(service, 403, "PATCH", f"{JOBS}/digits", token=token, **change)
            await refused(service, 403, "DELETE", f"{JOBS}/digits", token=token)
        for token in (anna, viewer, foreign):
            await refused(service, 403, "POST", f"{JOBS}/digits/progress", token=token, body={"epoch": 1})
        for part in ("", "/manifest", "/logs", "/logs/replicas", "/explain", "/progress"):
            await refused(service, 403, "GET", f"{JOBS}/digits{part}", token=own)
        for token in (bob, viewer):
            await refused(service, 403, "GET", f"{JOBS}/digits/manifest", token=token)
        for token in (anna, admin):
            assert (await service.ask("GET", f"{JOBS}/digits/manifest", token=token)).json() == a_manifest()
        assert (await service.ask("PATCH", f"{JOBS}/digits", token=admin, **change)).status == 200
        assert (await service.ask("DELETE", f"{JOBS}/digits", token=anna)).status == 202
        assert (await service.ask("GET", f"{JOBS}/digits", token=viewer)).as_a(JobView).user == "anna"


@pytest.mark.parametrize(
    "shown", [None, "Bearer", "Bearer wrong", "Basic YTpi", "Bearer vjob_digits.0000", "Bearer \u00e9"]
)
async def test_token_when_missing_or_foreign_is_refused_before_anything_is_told(
    tmp_path: Path, shown: str | None
) -> None:
    access, *_ = tokens(tmp_path)
    async with a_service(access=access) as service:
        headers = {} if shown is None else {"Authorization": shown}
        for method, path in (("GET", JOBS), ("POST", JOBS), ("GET", f"{JOBS}/nothing"), ("DELETE", f"{JOBS}/x?y=z")):
            answer = await service.ask(method, path, headers=headers)
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")


async def test_job_when_it_runs_by_now_then_an_older_forecast_tells_no_start_and_no_place() -> None:
    async with a_service() as service:
        await submit(service, "a")
        await submit(service, "b")
        at = service.backend.journal.clock.now()
        expected = ExpectedTimes(position=1, starts_at=at + 5, finishes_at=at + 60)
        service.backend.journal.view.forecasts = {"a": expected, "b": expected}
        service.backend.journal.view.forecast_at = at
        before = await forecast_of(service, "a")
        await service.happens(WorkerStarted(job_id="a", workers={0: "n1"}))
        await service.happens(JobCancelRequested(job_id="b"))
        after, canceled = await forecast_of(service, "a"), await forecast_of(service, "b")
    assert (before.position, before.starts_at is None) == (1, False)
    assert (after.position, after.starts_at, after.finishes_at) == (None, None, before.finishes_at)
    assert (canceled.position, canceled.starts_at) == (None, None)

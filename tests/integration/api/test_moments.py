"""Moments over HTTP: the present one, those of the past, and what changes."""

import asyncio
import gzip
from pathlib import Path

import pytest

from tests.builders import a_spec
from tests.integration.api.test_plans import a_leader, decided, pass_time
from tests.service import START, Service, a_service
from tests.sse import Events
from voda.api.streams import moment_hub
from voda.app.runtime import Snapshots
from voda.application.read_model import ReadModel
from voda.domain.reasons.requests import Requested
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import JobCompleted, JobHaltRequested, JobSubmitted, WorkerExited, WorkerStarted
from voda.log.archive.archive_backed_store import ArchiveBackedStore
from voda.log.archive.retention import archive_log
from voda.log.memory import MemoryStore
from voda.wire.base import Problem
from voda.wire.moments import ChangesList, MomentView, TimelineView

STATE = "/api/v1/state"


async def state(service: Service, query: str = "") -> MomentView:
    answer = await service.ask("GET", f"{STATE}?{query}")
    assert answer.status == 200, answer.body
    return answer.as_a(MomentView)


async def a_run(service: Service) -> None:
    """Let job a run from second 10 to 30 on two workers, and b wait for it."""
    leader = await a_leader(service)
    await service.happens(JobSubmitted(spec=a_spec("a", user="ann", min_replicas=4, max_replicas=4)))
    await decided(service, leader)
    pass_time(service, 10)
    await service.happens(WorkerStarted(job_id="a", workers=dict.fromkeys(range(4), "n1")))
    await service.happens(JobSubmitted(spec=a_spec("b", min_replicas=2, max_replicas=2, epochs=3)))
    await decided(service, leader)
    pass_time(service, 20)
    await service.happens(WorkerExited(job_id="a", workers=(0, 1, 2, 3), cause="finished"))
    await service.happens(JobCompleted(job_id="a"))
    await decided(service, leader)
    pass_time(service, 10)
    await service.happens(WorkerStarted(job_id="b", workers={0: "n1", 1: "n1"}))


async def test_state_when_asked_now_then_shows_jobs_nodes_and_pools() -> None:
    async with a_service(nodes={"n1": 4, "n2": 2}) as service:
        await a_run(service)
        now = await state(service)
        assert [node.name for node in now.nodes] == ["n1", "n2"]
        (job,) = now.jobs
        assert (job.job_id, job.state, job.nodes, job.gpus, job.epochs) == ("b", "Running", {"n1": 2}, 2, 3)
        assert (now.pools[0].used_gpus, now.position == now.end) == (2, True)
        assert now.at.timestamp() == START + 40


async def test_state_when_asked_of_a_moment_then_is_as_it_was() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        await a_run(service)
        then = await state(service, "at=%2B20s")
        a, b = then.jobs
        assert (a.job_id, a.state, a.nodes, a.user) == ("a", "Running", {"n1": 4}, "ann")
        assert (b.job_id, b.state, b.nodes) == ("b", "Waiting", {})
        assert "GPU" in b.message
        assert b.reason is not None
        assert then.nodes[0].jobs == {"a": 4}
        assert then.end == (await state(service)).position


async def test_state_when_the_moment_is_wrong_then_says_what_is_expected() -> None:
    async with a_service() as service:
        for query, field in (("at=yesterday", "at"), ("at=99", "at"), ("at=1&watch=true", "at"), ("when=1", "when")):
            answer = await service.ask("GET", f"{STATE}?{query}")
            assert answer.status == 422, query
            assert answer.as_a(Problem).field == field


async def test_state_when_it_is_large_then_is_compressed_for_who_takes_it() -> None:
    async with a_service(nodes={f"n{number}": 8 for number in range(400)}) as service:
        async with service.session.get(service.url + STATE, headers={"Accept-Encoding": "gzip"}) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert len((await state(service)).nodes) == 400
        plain = await service.ask("GET", STATE, headers={"Accept-Encoding": "identity"})
        assert len(gzip.compress(plain.body)) < len(plain.body) / 5


async def test_changes_when_applied_then_lead_from_moment_to_moment() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        await a_run(service)
        answer = await service.ask("GET", f"{STATE}/changes?at=%2B5s&seconds=40&frames=4")
        found = answer.as_a(ChangesList)
        assert [item.at.timestamp() - START for item in found.items] == [15, 25, 35, 45]
        to_15, to_25, to_35, to_45 = found.items
        assert [job.state for job in to_15.jobs] == ["Running", "Waiting"]
        assert to_25.jobs == ()
        assert to_35.gone_jobs == ("a",)
        assert [(job.job_id, job.state) for job in to_45.jobs] == [("b", "Running")]
        assert found.end == to_45.position


async def test_moments_when_the_archive_is_away_then_are_known_from_the_cut_on(tmp_path: Path) -> None:
    store = MemoryStore()
    for number in range(40):
        fact = Fact(data=JobSubmitted(spec=a_spec(f"j{number}")), event_id=f"e{number}", recorded_at=START + number)
        await store.append(f"job.j{number}", ANY_VERSION, [fact])
        if number == 29:
            view = ReadModel(store)
            await view.open()
            await Snapshots(store, view).take()
    await archive_log(store, tmp_path / "archive", until=30)
    (tmp_path / "archive").rename(tmp_path / "away")
    async with a_service(ArchiveBackedStore(store)) as service:
        for query in ("at=-5s", "at=35"):
            assert len((await state(service, query)).jobs) == 35
        (item,) = (await service.ask("GET", f"{STATE}/changes?at=-5s&seconds=2&frames=1")).as_a(ChangesList).items
        assert [job.job_id for job in item.jobs] == ["j35", "j36"]
        for query in ("at=-20s", "at=+1s", "at=20"):
            answer = await service.ask("GET", f"{STATE}?{query.replace('+', '%2B')}")
            assert answer.status == 410, query
            assert "the first that can be asked is position 31, 2" in answer.as_a(Problem).detail
        timeline = (await service.ask("GET", "/api/v1/timeline?buckets=9")).as_a(TimelineView)
        assert timeline.begins_at is not None
        assert timeline.begins_at.timestamp() == START + 30
        first = (await service.ask("GET", "/api/v1/timeline?since=31&until=40&buckets=9")).as_a(TimelineView)
        assert list(first.waiting) == [31.0 + number for number in range(9)]
        newest = await service.ask("GET", "/api/v1/events?before=41&limit=40")
        assert [event["position"] for event in newest.json()["items"]] == list(range(40, 30, -1))
        assert newest.json()["last_position"] == 31
        assert (await service.ask("GET", "/api/v1/events?before=31&limit=1")).status == 410


async def test_changes_when_the_calendar_ends_before_them_are_refused() -> None:
    async with a_service() as service:
        answer = await service.ask("GET", f"{STATE}/changes?at=9998-12-31&seconds=3153600000&frames=1")
        assert (answer.status, answer.as_a(Problem).field) == (422, "seconds")


async def test_watch_when_jobs_change_then_tells_what_changed() -> None:
    async with (
        a_service(nodes={"n1": 4}) as service,
        service.session.get(service.url + STATE, headers={"Accept": "text/event-stream"}) as response,
    ):
        events = Events(response)
        (first,) = await events.take(1)
        assert first.type == "state"
        await service.happens(JobSubmitted(spec=a_spec("a")))
        (second,) = await events.take(1)
        assert second.type == "changes"
        assert [job["job_id"] for job in second.json()["jobs"]] == ["a"]
        assert second.id == second.json()["position"]
        await service.happens(JobHaltRequested(job_id="a", reason=Requested(by="ann", text="lunch")))
        (third,) = await events.take(1)
        (job,) = third.json()["jobs"]
        assert (job["state"], job["message"]) == ("Halted", "halted by ann: lunch")


async def test_watch_when_somebody_asks_meanwhile_then_misses_nothing() -> None:
    async with (
        a_service(nodes={"n1": 4}) as service,
        service.session.get(service.url + STATE, headers={"Accept": "text/event-stream"}) as response,
    ):
        events, known = Events(response), set[str]()
        await events.take(1)
        for number in range(12):
            await service.happens(JobSubmitted(spec=a_spec(f"j{number}")))
            await state(service)
        async for frame in events:
            known |= {job["job_id"] for job in frame.json()["jobs"]}
            if len(known) == 12:
                break


async def test_watch_when_a_reader_is_slow_then_gets_the_whole_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moment_hub, "_MOST_WAITING", 1)
    async with a_service(nodes={"n1": 4}) as service:
        backend = service.backend
        hub = moment_hub.MomentHub(backend.journal.view, backend.journal.clock, lambda _node: {})
        written, gate = asyncio.Queue[bytes](), asyncio.Event()

        async def write(frame: bytes) -> None:
            written.put_nowait(frame)
            await gate.wait()

        following = asyncio.create_task(hub.follow(write, 15.0))
        await written.get()
        for number in range(3):
            await service.happens(JobSubmitted(spec=a_spec(f"j{number}")))
            hub.state()
        gate.set()
        again = await written.get()
        following.cancel()
        assert again.startswith(b"event: state")
        assert b'"j2"' in again


async def test_timeline_when_asked_then_has_means_and_counts() -> None:
    async with a_service(nodes={"n1": 4}) as service:
        await a_run(service)
        answer = await service.ask("GET", "/api/v1/timeline?buckets=4")
        found = answer.as_a(TimelineView)
        assert found.begins_at is not None
        assert (found.begins_at.timestamp(), found.ends_at == found.known_until) == (START, True)
        assert [at - START for at in found.at] == [0, 10, 20, 30]
        assert found.gpus_in_use == pytest.approx([0, 4, 4, 0])
        assert found.waiting == pytest.approx([1, 1, 1, 1])
        assert sum(found.decisions) == 3
        pass_time(service, 40)
        later = (await service.ask("GET", "/api/v1/timeline?buckets=8")).as_a(TimelineView)
        # Two GPUs are held since the last event.
        assert later.gpus_in_use == pytest.approx([0, 4, 4, 0, 2, 2, 2, 2])
        none = await service.ask("GET", "/api/v1/timeline?since=%2B10s&until=%2B5s")
        assert none.as_a(Problem).field == "until"


async def test_timeline_when_the_log_is_empty_then_has_nothing() -> None:
    async with a_service(nodes={}) as service:
        found = (await service.ask("GET", "/api/v1/timeline?buckets=2")).as_a(TimelineView)
        assert (found.begins_at, found.known_until, sum(found.capacity)) == (None, None, 0)

"""Events over HTTP: pages of the past, and streams."""

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest

from tests.builders import a_spec
from tests.integration.api.test_plans import a_leader, decided
from tests.service import START, Service, a_backend, a_service
from tests.sse import Frame, watching
from voda.api.admission import CallerLimits
from voda.api.listener import serving
from voda.api.server import application
from voda.application import event_feed
from voda.auth.tokens import Authenticator
from voda.clock import VirtualClock
from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.events.types import JobChanged, JobProgressed, JobSubmitted
from voda.log.memory import MemoryStore
from voda.wire.base import Problem
from voda.wire.events import EventList, EventView

EVENTS = "/api/v1/events"


async def page(service: Service, query: str = "") -> EventList:
    answer = await service.ask("GET", f"{EVENTS}?{query}")
    assert answer.status == 200, answer.body
    return answer.as_a(EventList)


def positions(frames: Sequence[Frame]) -> list[int | None]:
    return [frame.id for frame in frames]


async def many(service: Service, count: int, *, job_id: str = "a", name: str = "epoch") -> int:
    """Record many reports in one go and return the last one's position."""
    clock = service.backend.journal.clock
    facts = [
        Fact(
            data=JobProgressed(job_id=job_id, epochs_done=float(number), workers=1, metrics={name: 1.0}),
            event_id=clock.new_id(),
            recorded_at=clock.now(),
        )
        for number in range(count)
    ]
    return await service.backend.journal.store.append(f"job.{job_id}", ANY_VERSION, facts)


# ---- pages


async def test_events_when_read_by_pages_then_are_the_whole_log() -> None:
    async with a_service() as service:
        await many(service, 25)
        found, after = [], 0
        while True:
            events = await page(service, f"after={after}&limit=10")
            found += [event.position for event in events.items]
            after = events.last_position
            if after == events.end:
                break
        assert found == list(range(1, 27))


async def test_events_when_read_backwards_then_are_the_whole_log_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "_CHUNK", 4)
    async with a_service() as service:
        await many(service, 25)
        found, before = [], 27
        while before > 1:
            events = await page(service, f"before={before}&limit=10")
            found += [event.position for event in events.items]
            before = events.last_position
        assert found == list(range(26, 0, -1))
        (last,) = (await page(service, "before=26&limit=1&type=node.joined")).items
        assert last.position == 1
        assert (await page(service, "before=9999&limit=1")).items[0].position == 26


async def test_events_when_asked_both_ways_is_refused() -> None:
    async with a_service() as service:
        for query in ("before=3&after=1", "before=3&until=2", "before=3&watch=true"):
            answer = await service.ask("GET", f"{EVENTS}?{query}")
            assert (answer.status, answer.as_a(Problem).field) == (422, "before")


async def test_events_when_of_one_job_then_plans_that_name_it_are_among_them() -> None:
    async with a_service(nodes={"n1": 1}) as service:
        leader = await a_leader(service)
        for job_id in ("a", "b"):
            await service.happens(JobSubmitted(spec=a_spec(job_id)))
            await decided(service, leader)
        await many(service, 3, job_id="a")
        events = await page(service, "job=b")
        assert [event.type for event in events.items] == ["job.submitted", "plan.adopted"]
        assert events.last_position == events.end
        events = await page(service, "job=a&type=plan.adopted&type=job.submitted&limit=1")
        assert [event.type for event in events.items] == ["job.submitted"]
        events = await page(service, f"job=a&type=plan.adopted&type=job.submitted&after={events.last_position}")
        assert [event.type for event in events.items] == ["plan.adopted"]


async def test_events_say_in_words_what_their_data_says_in_figures() -> None:
    async with a_service(nodes={"n1": 1}) as service:
        await many(service, 1)
        (progressed,) = (await page(service, "type=job.progressed")).items
        assert (progressed.data["epochs_done"], progressed.data["workers"]) == (0.0, 1)
        assert progressed.message == "0 epochs done on 1 worker"


async def test_events_when_rare_then_are_looked_for_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "_MOST_READ", 40)
    monkeypatch.setattr(event_feed, "_CHUNK", 20)
    async with a_service() as service:
        await many(service, 100)
        await service.happens(JobSubmitted(spec=a_spec("z")))
        events = await page(service, "type=job.submitted")
        assert (events.items, events.last_position, events.end) == ((), 40, 102)
        looks = 1
        while not events.items:
            events = await page(service, f"type=job.submitted&after={events.last_position}")
            looks += 1
        assert ([event.position for event in events.items], looks) == ([102], 3)


@pytest.mark.parametrize("watch", [False, True])
async def test_events_when_manifests_are_asked_for_then_show_those_of_own_jobs_alone(
    watch: bool, tmp_path: Path
) -> None:
    access = Authenticator.open(tmp_path, VirtualClock(START))
    tokens = {"anna": access.add("anna", "user"), "vera": access.add("vera", "viewer")}
    tokens["admin"] = (tmp_path / "admin.token").read_text().strip()
    shown = {}
    async with a_service(access=access) as service, asyncio.timeout(60):
        for user in ("anna", "vera"):
            spec = a_spec(f"{user}s", user=user, manifest={"kind": "MPIJob"})
            await service.happens(JobSubmitted(spec=spec))
        for name, token in tokens.items():
            asked = "/api/v1/events?manifests=true&type=job.submitted"
            if watch:
                url, headers = f"{service.url}{asked}&watch=true&after=0", {"Authorization": f"Bearer {token}"}
                async with service.session.get(url, headers=headers) as stream:
                    text = b""
                    while text.count(b"data: ") < 2 or not text.endswith(b"\n\n"):
                        text += await stream.content.readany()
                lines = [line[6:] for line in text.splitlines() if line.startswith(b"data: ")]
                events = [msgspec.json.decode(line, type=EventView) for line in lines]
            else:
                events = list((await service.ask("GET", asked, token=token)).as_a(EventList).items)
            shown[name] = [one.data["spec"]["job_id"] for one in events if "manifest" in one.data["spec"]]
    assert shown == {"anna": ["annas"], "vera": [], "admin": ["annas", "veras"]}


async def test_events_when_a_job_was_submitted_then_show_its_manifest_only_if_asked() -> None:
    async with a_service() as service:
        await service.happens(JobSubmitted(spec=a_spec("a", manifest={"kind": "MPIJob"})))
        (event,) = (await page(service, "job=a")).items
        assert "manifest" not in event.data["spec"]
        (event,) = (await page(service, "job=a&manifests=true")).items
        assert event.data["spec"]["manifest"] == {"kind": "MPIJob"}


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "after=-1",
        "after=x",
        "type=job.lost",
        "since=1",
        "limit=1&limit=2",
        "watch=maybe",
        "after=999",
    ],
)
async def test_events_when_the_query_is_wrong_then_is_refused_with_the_field(query: str) -> None:
    async with a_service() as service:
        answer = await service.ask("GET", f"{EVENTS}?{query}")
        assert (answer.status, answer.as_a(Problem).field.split("[")[0]) == (422, query.partition("=")[0])


async def test_events_when_the_job_is_unknown_then_is_not_found() -> None:
    async with a_service() as service:
        assert (await service.ask("GET", f"{EVENTS}?job=nobody")).status == 404


# ---- streams


async def test_stream_when_things_happen_then_shows_them_as_they_are_in_pages() -> None:
    async with a_service() as service, watching(service) as events:
        await service.happens(JobSubmitted(spec=a_spec("a", manifest={"kind": "MPIJob"})))
        await service.happens(JobChanged(job_id="a", priority=3))
        frames = await events.take(2)
        assert [(frame.id, frame.type) for frame in frames] == [(2, "job.submitted"), (3, "job.changed")]
        told = (await service.ask("GET", f"{EVENTS}?after=1")).json()["items"]
        assert [frame.json() for frame in frames] == told
        assert events.response.headers["Content-Type"].startswith("text/event-stream")


async def test_stream_when_begun_at_a_position_then_shows_the_past_and_goes_on() -> None:
    async with a_service() as service:
        await many(service, 450)
        async with watching(service, f"{EVENTS}?watch=true&after=100") as events:
            assert positions(await events.take(351)) == list(range(101, 452))
            await many(service, 5)
            assert positions(await events.take(5)) == list(range(452, 457))


async def test_stream_when_filtered_then_shows_only_what_is_wanted_but_marks_the_rest() -> None:
    limits = CallerLimits(heartbeat_s=0.05)
    async with a_service(limits=limits) as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        await service.happens(JobSubmitted(spec=a_spec("b")))
        async with watching(service, f"{EVENTS}?job=b&type=job.changed") as events:
            await service.happens(JobChanged(job_id="a", priority=1))
            await service.happens(JobChanged(job_id="b", priority=2))
            (frame,) = await events.take(1)
            assert frame.json()["data"] == {"job_id": "b", "priority": 2}
            last = await many(service, 3, job_id="a")
            async for beat in events.frames():
                assert not beat.data
                if beat.id == last:
                    break


async def test_stream_when_resumed_over_restarts_then_misses_and_repeats_nothing() -> None:
    store = MemoryStore()
    seen: list[Frame] = []
    resume: dict[str, str] = {}
    for _ in range(3):
        async with a_service(store) as service:
            # What happens while nobody watches is shown to who comes back.
            await many(service, 7)
            async with watching(service, f"{EVENTS}?after=0", headers=resume) as events:
                await many(service, 3)
                seen += await events.take(await store.position() - len(seen) - 2)
                resume = {"Last-Event-ID": str(seen[-1].id)}
    async with a_service(store) as service, watching(service, headers=resume) as events:
        seen += await events.take(2)
    assert positions(seen) == list(range(1, await store.position() + 1))


@pytest.mark.parametrize("resume", ["x", "-1", "1.5", "99999999", "9" * 30])
async def test_stream_when_resumed_from_nowhere_then_is_refused(resume: str) -> None:
    async with a_service() as service:
        answer = await service.ask("GET", f"{EVENTS}?watch=true", headers={"Last-Event-ID": resume})
        assert answer.status == 422


async def test_stream_when_more_comes_than_its_buffer_holds_then_reads_on_from_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_feed, "MAX_WAITING", 5)
    async with a_service() as service, watching(service) as events:
        for _ in range(5):
            await many(service, 300)
        assert positions(await events.take(1500)) == list(range(2, 1502))


async def test_stream_when_the_server_ends_then_ends_at_once() -> None:
    loop = asyncio.get_running_loop()
    async with a_backend() as backend, aiohttp.ClientSession() as session, AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving(application(backend), "127.0.0.1", 0))
        async with watching(Service(backend, url, session)) as events:
            began = loop.time()
            await stack.aclose()
            assert [frame async for frame in events] == []
            assert loop.time() - began < 4.0, "it would have been cut off only after 5 s"


@pytest.mark.slow
async def test_stream_when_its_reader_takes_nothing_then_is_cut_off_and_can_be_resumed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="voda.api")
    async with a_service(limits=CallerLimits(request_s=3.0)) as service, watching(service) as healthy:
        reader = await a_lazy_reader(service)
        # More than the kernel keeps for a socket: the server is left with the rest.
        last = 1
        for _ in range(12):
            last = await many(service, 20, name="x" * 100_000)
        assert positions(await healthy.take(240)) == list(range(2, last + 1))
        async with asyncio.timeout(60):
            while "cut off" not in caplog.text:  # noqa: ASYNC110 - who is cut off is told nothing to wait for
                await asyncio.sleep(0.05)
        got = await asyncio.to_thread(all_of, reader)
        ids = [int(line[4:]) for line in got.split(b"\n\n")[:-1] for line in line.splitlines() if line[:4] == b"id: "]
        assert ids == list(range(len(ids))), "the mark of the beginning, and then every event once"
        assert ids[-1] < last
        async with watching(service, headers={"Last-Event-ID": str(ids[-1])}) as again:
            assert positions(await again.take(last - ids[-1])) == list(range(ids[-1] + 1, last + 1))


async def test_stream_when_a_hundred_watch_then_the_log_is_read_once() -> None:
    store = CountingStore()
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        a_service(store, limits=CallerLimits(streams_per_user=100)) as service,
        aiohttp.ClientSession(connector=connector) as session,
        AsyncExitStack() as stack,
    ):
        crowd = Service(service.backend, service.url, session)
        streams = [await stack.enter_async_context(watching(crowd)) for _ in range(100)]
        before = store.reads
        last = await many(service, 50)
        for events in streams:
            assert positions(await events.take(50)) == list(range(2, last + 1))
        assert store.reads - before <= 10


async def a_lazy_reader(service: Service) -> socket.socket:
    """Return a connection that has asked for the stream and reads nothing."""
    where = urlsplit(service.url)
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(lazy, (where.hostname, where.port))
    await loop.sock_sendall(lazy, f"GET {EVENTS}?watch=true&after=0 HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
    return lazy


def all_of(reader: socket.socket) -> bytes:
    """Return the body of what is still to be read, without the marks of its chunks."""
    reader.settimeout(60)
    raw = b""
    with reader, suppress(ConnectionResetError):
        while piece := reader.recv(1 << 20):
            raw += piece
    body, rest = b"", raw.partition(b"\r\n\r\n")[2]
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


class CountingStore(MemoryStore):
    """A log that counts how often it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        """See EventStore.read."""
        self.reads += 1
        return await super().read(after, limit, stream=stream)

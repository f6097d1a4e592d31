"""What jobs print, over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from tests.builders import a_spec
from tests.service import START, Service, a_backend, a_service
from voda.api.admission import CallerLimits
from voda.api.listener import serving
from voda.api.server import application
from voda.auth.tokens import Authenticator
from voda.clock import SystemClock, VirtualClock
from voda.cluster.port import EVERY_LINE, LineTimes
from voda.domain.reasons.nodes import Said
from voda.events.types import JobFailed, JobSubmitted, WorkerStarted
from voda.wire.base import Problem


class KeptOutputs:
    """Outputs in memory."""

    def __init__(self) -> None:
        self.printed = {"a": {"launcher": b"one\ntwo\n", "worker-0": b"hello\n"}}
        self.grown = asyncio.Event()
        self.is_over = False
        self.readers = 0
        self.times: list[LineTimes] = []

    def prints(self, text: bytes, *, is_last: bool = False) -> None:
        """Let the launcher of job a print more."""
        self.printed["a"]["launcher"] += text
        self.is_over = is_last
        self.grown.set()
        self.grown = asyncio.Event()

    async def replicas(self, job_id: str) -> Sequence[str]:
        """See Outputs.replicas."""
        return tuple(self.printed.get(job_id, {}))

    async def read(
        self,
        job_id: str,
        replica: str,
        *,
        tail_bytes: int | None,
        follow: bool,
        times: LineTimes = EVERY_LINE,
    ) -> AsyncIterator[bytes]:
        """See Outputs.read."""
        at = 0 if tail_bytes is None else max(0, len(self.printed[job_id][replica]) - tail_bytes)
        self.readers += 1
        self.times.append(times)
        try:
            while True:
                grown, text = self.grown, self.printed[job_id][replica]
                if text[at:]:
                    yield text[at:]
                at = len(text)
                if not follow or self.is_over:
                    return
                await grown.wait()
        finally:
            self.readers -= 1


@pytest.fixture
def outputs() -> KeptOutputs:
    return KeptOutputs()


async def test_logs_when_read_then_are_of_the_most_telling_replica(outputs: KeptOutputs) -> None:
    async with a_service(outputs=outputs) as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        answer = await service.ask("GET", "/api/v1/jobs/a/logs")
        assert (answer.status, answer.body, answer.headers["X-Voda-Replica"]) == (200, b"one\ntwo\n", "launcher")
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert (await service.ask("GET", "/api/v1/jobs/a/logs?replica=worker-0")).body == b"hello\n"
        assert (await service.ask("GET", "/api/v1/jobs/a/logs?tail_bytes=4")).body == b"two\n"
        assert (await service.ask("GET", "/api/v1/jobs/a/logs/replicas")).json() == ["launcher", "worker-0"]


async def test_logs_when_followed_then_go_on_until_the_job_ends(outputs: KeptOutputs) -> None:
    async with a_service(outputs=outputs) as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        async with service.session.get(f"{service.url}/api/v1/jobs/a/logs?follow=true") as response:
            assert await response.content.readexactly(8) == b"one\ntwo\n"
            outputs.prints(b"three\n")
            assert await response.content.readline() == b"three\n"
            outputs.prints(b"four\n", is_last=True)
            assert await response.content.read() == b"four\n"
    assert outputs.readers == 0


async def test_logs_when_the_reader_goes_then_are_not_followed_any_more(outputs: KeptOutputs) -> None:
    async with a_service(outputs=outputs, limits=CallerLimits(heartbeat_s=0.02)) as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        response = await service.session.get(f"{service.url}/api/v1/jobs/a/logs?follow=true")
        await response.content.readline()
        response.close()
        async with asyncio.timeout(60):
            while outputs.readers:  # noqa: ASYNC110 - nobody is told that a reader went
                await asyncio.sleep(0.01)
        assert outputs.readers == 0


async def test_logs_when_the_server_ends_then_end_at_once(outputs: KeptOutputs) -> None:
    loop = asyncio.get_running_loop()
    async with (
        a_backend(outputs=outputs) as backend,
        aiohttp.ClientSession() as session,
        AsyncExitStack() as stack,
    ):
        url = await stack.enter_async_context(serving(application(backend), "127.0.0.1", 0))
        await Service(backend, url, session).happens(JobSubmitted(spec=a_spec("a")))
        async with session.get(f"{url}/api/v1/jobs/a/logs?follow=true") as response:
            await response.content.readexactly(8)
            began = loop.time()
            await stack.aclose()
            assert await response.content.read() == b""
            assert loop.time() - began < 4.0, "it would have been cut off only after 5 s"


async def test_logs_when_there_are_none_then_says_why(outputs: KeptOutputs) -> None:
    async with a_service() as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        answer = await service.ask("GET", "/api/v1/jobs/a/logs")
        assert (answer.status, "keeps no output" in answer.as_a(Problem).detail) == (404, True)
    async with a_service(outputs=outputs) as service:
        for job_id in "ab":
            await service.happens(JobSubmitted(spec=a_spec(job_id)))
        for path, told in (
            ("a/logs?replica=worker-9", "launcher, worker-0"),
            ("b/logs", "printed nothing yet"),
            ("d/logs", "not known"),
        ):
            answer = await service.ask("GET", f"/api/v1/jobs/{path}")
            assert (answer.status, told in answer.as_a(Problem).detail) == (404, True), path
        assert (await service.ask("GET", "/api/v1/jobs/b/logs/replicas")).json() == []
        for query in ("tail_bytes=-1", "tail_bytes=x", "follow=maybe", "lines=3"):
            answer = await service.ask("GET", f"/api/v1/jobs/a/logs?{query}")
            assert (answer.status, answer.as_a(Problem).field) == (422, query.partition("=")[0])


async def test_logs_when_its_replicas_are_gone_then_says_that_their_output_is_too(outputs: KeptOutputs) -> None:
    async with a_service(outputs=outputs) as service:
        for job_id in ("b", "c"):
            await service.happens(JobSubmitted(spec=a_spec(job_id)))
        await service.happens(WorkerStarted(job_id="b", workers={0: "n1"}))
        for job_id, told in (("b", "went with them"), ("c", "no replica of it ever started")):
            await service.happens(JobFailed(job_id=job_id, reason=Said(text="so")))
            answer = await service.ask("GET", f"/api/v1/jobs/{job_id}/logs")
            assert (answer.status, told in answer.as_a(Problem).detail) == (404, True), job_id


async def test_logs_when_pods_are_named_after_their_job_then_their_role_is_enough(
    outputs: KeptOutputs,
) -> None:
    pods = {"bert-launcher-75zxk": b"launched\n", "bert-worker-10": b"ten\n", "bert-worker-1": b"one\n"}
    outputs.printed["vision_bert"] = pods
    async with a_service(outputs=outputs) as service:
        await service.happens(JobSubmitted(spec=a_spec("vision_bert", name="bert", namespace="vision")))
        for asked, pod in (("worker-1", "bert-worker-1"), ("launcher", "bert-launcher-75zxk")):
            answer = await service.ask("GET", f"/api/v1/jobs/vision_bert/logs?replica={asked}")
            assert (answer.headers["X-Voda-Replica"], answer.body) == (pod, pods[pod])
        assert (await service.ask("GET", "/api/v1/jobs/vision_bert/logs?replica=worker-2")).status == 404


async def test_job_when_its_name_is_of_another_namespace_then_its_id_is_told(outputs: KeptOutputs) -> None:
    async with a_service(outputs=outputs) as service:
        await service.happens(JobSubmitted(spec=a_spec("vision_bert-2", name="bert", namespace="vision")))
        answer = await service.ask("GET", "/api/v1/jobs/bert")
        assert answer.as_a(Problem).detail.endswith("not known in namespace default: did you mean 'vision_bert-2'?")


async def test_logs_when_of_somebody_else_then_are_refused(outputs: KeptOutputs, tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, VirtualClock(0.0))
    tokens = {"ann": access.add("ann", "user"), "bob": access.add("bob", "user"), "eve": access.add("eve", "viewer")}
    tokens["admin"] = (tmp_path / "admin.token").read_text().strip()
    tokens["job"] = access.job_token("a")
    async with a_service(outputs=outputs, access=access) as service:
        await service.happens(JobSubmitted(spec=a_spec("a", user="ann")))
        for path in ("/api/v1/jobs/a/logs", "/api/v1/jobs/a/logs/replicas"):
            statuses = {name: (await service.ask("GET", path, token=token)).status for name, token in tokens.items()}
            assert statuses == {"ann": 200, "bob": 403, "eve": 403, "admin": 200, "job": 403}
            assert (await service.ask("GET", path)).status == 401


async def test_logs_of_the_last_minute_are_those_by_the_wall_clock_where_the_log_is_ahead_of_it(
    outputs: KeptOutputs,
) -> None:
    async with a_service(outputs=outputs, clock=SystemClock(START + 1e6, wall=lambda: START)) as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        assert (await service.ask("GET", "/api/v1/jobs/a/logs?since=1m")).status == 200
        assert outputs.times == [LineTimes(since=START - 60)]


async def test_logs_are_chosen_by_a_time_or_a_span_before_now(outputs: KeptOutputs) -> None:
    async with a_service(outputs=outputs) as service:
        await service.happens(JobSubmitted(spec=a_spec("a")))
        for query in (
            "",
            "?since=1h30m",
            "?since=5400",
            "?since=2023-11-14T22:00:00Z&timestamps=true",
            "?since=2023-11-14",
        ):
            assert (await service.ask("GET", f"/api/v1/jobs/a/logs{query}")).status == 200
        assert outputs.times == [
            LineTimes(),
            LineTimes(since=START - 5_400),
            LineTimes(since=START - 5_400),
            LineTimes(since=1_699_999_200.0, are_shown=True),
            LineTimes(since=1_699_920_000.0),
        ]
        for wrong in ("soon", "%2B10m", "9999999999999h"):
            answer = await service.ask("GET", f"/api/v1/jobs/a/logs?since={wrong}")
            assert (answer.status, answer.as_a(Problem).field) == (422, "since"), wrong

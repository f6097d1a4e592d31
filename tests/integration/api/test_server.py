"""The server itself: unknown paths, refusals, slow and broken clients, TLS, its end."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import uvloop
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tests.certificates import a_certificate
from tests.service import START, a_backend, a_manifest, a_service
from voda.api.admission import CallerLimits
from voda.api.listener import serving
from voda.api.operation import SHUTTING_DOWN
from voda.api.origin_check import LISTEN_HOST, refuse_foreign_origin
from voda.api.problems import problems
from voda.api.server import application, operations
from voda.auth.tokens import Authenticator
from voda.clock import VirtualClock
from voda.domain.errors import (
    AlreadyExists,
    InvalidInput,
    LogDamaged,
    NotAllowed,
    StoreNotWritable,
    StoreUnavailable,
    VersionConflict,
)
from voda.wire.base import Problem

PROBLEM = "application/problem+json"
SOON = CallerLimits(request_s=0.5, idle_s=0.8)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a bare connection to the server."""
    _, _, port = url.rpartition(":")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Return what still comes until the server closes the connection."""
    got = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(60):
            while piece := await reader.read(65_536):
                got += piece
    return got


async def test_path_when_unknown_is_a_problem() -> None:
    async with a_service() as service:
        answer = await service.ask("GET", "/api/v1/nothing")
    assert (answer.status, answer.headers["Content-Type"]) == (404, PROBLEM)
    assert "/api/v1/nothing" in answer.as_a(Problem).detail


async def test_method_when_unknown_tells_the_others() -> None:
    async with a_service() as service:
        answer = await service.ask("PUT", "/api/v1/jobs")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET,HEAD,POST")
    assert "expected GET, HEAD, POST" in answer.as_a(Problem).detail


@pytest.mark.parametrize(
    "path", ["/%2e%2e/%2e%2e/etc/passwd", "/../etc", "//", "/api/v1/jobs/", "/%00", "/%ff%fe", "/" + "a" * 5_000]
)
async def test_path_when_odd_is_not_found(path: str) -> None:
    async with a_service() as service:
        answer = await service.ask("GET", path)
    assert (answer.status, answer.headers["Content-Type"]) == (404, PROBLEM)
    assert len(answer.as_a(Problem).detail) < 1_000


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
        b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"H%d: x\r\n" % n for n in range(500)) + b"\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_request_when_it_is_no_http_is_answered_or_cut_off_and_others_are_served(sent: bytes) -> None:
    async with a_service(limits=SOON) as service:
        async with connected(service.url) as (reader, writer):
            writer.write(sent)
            answer = await until_closed(reader)
        assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
        assert b"Traceback" not in answer
        # Nothing as Python writes it.
        assert b"b'" not in answer
        assert (await service.ask("GET", "/api/v1/jobs")).status == 200


@pytest.mark.parametrize("sent", [b"", b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n"])
async def test_head_when_it_comes_slowly_is_cut_off(sent: bytes) -> None:
    async with a_service(limits=SOON) as service, connected(service.url) as (reader, writer):

        async def dribble() -> None:
            with contextlib.suppress(OSError):
                writer.write(sent)
                while sent:
                    writer.write(b"X-More: x\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as group:
            dribbling = group.create_task(dribble())
            answer = await until_closed(reader)
            dribbling.cancel()
    assert b"200" not in answer


@pytest.mark.parametrize("before", [b"", b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_head_when_it_has_too_much_and_no_end_is_refused_at_once(before: bytes) -> None:
    line = b"X: " + b"y" * 8_000 + b"\r\n"
    async with a_service() as service, connected(service.url) as (reader, writer):
        if before:
            writer.write(before)
            assert b"200" in await reader.readuntil(b"}")
        writer.write(b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n" + line * 9)
        answer = await until_closed(reader)
    assert answer.startswith(b"HTTP/1.1 431")
    assert b"longer than 65,536 bytes" in answer


async def test_head_when_it_is_long_but_ends_is_answered_and_no_body_counts_as_one() -> None:
    line, body = b"X: " + b"y" * 8_000 + b"\r\n", b" " * 500_000
    async with a_service() as service, connected(service.url) as (reader, writer):
        for piece in (b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n", *[line] * 7, b"\r\n"):
            writer.write(piece)
            await writer.drain()
        assert b"200" in await reader.readuntil(b"}")
        writer.write(b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert (await reader.readuntil(b"\r\n")).split()[1] in (b"400", b"415", b"422")


async def test_head_when_slow_after_a_good_request_is_cut_off() -> None:
    async with (
        a_service(limits=CallerLimits(request_s=0.5, idle_s=60)) as service,
        connected(service.url) as (reader, writer),
    ):
        writer.write(b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in await reader.readuntil(b"}")
        writer.write(b"GET /api/v1/jobs HT")
        assert await until_closed(reader) == b""


async def test_requests_when_sent_without_waiting_for_answers_have_one_and_the_connection_ends() -> None:
    async with a_service() as service, connected(service.url) as (reader, writer):
        writer.write(b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
        told = await until_closed(reader)
        assert told.count(b"HTTP/1.1") == told.count(b"HTTP/1.1 200") == 1
        assert b"Connection: close" in told


@pytest.mark.slow
async def test_body_when_it_comes_slowly_is_a_problem_and_the_connection_ends() -> None:
    async with a_service(limits=SOON) as service, connected(service.url) as (reader, writer):
        writer.write(b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        answer = await until_closed(reader)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive in time" in answer


async def test_connection_when_idle_is_closed() -> None:
    async with (
        a_service(limits=CallerLimits(request_s=60, idle_s=0.3)) as service,
        connected(service.url) as (reader, writer),
    ):
        writer.write(b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in await until_closed(reader)


async def test_answer_when_nobody_takes_it_is_cut_off() -> None:
    broken = asyncio.Event()

    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65_536)
        finally:
            broken.set()

    async with a_backend(limits=SOON) as backend:
        app = application(backend)
        app.router.add_get("/flood", flood)
        async with serving(app, "127.0.0.1", 0, limits=SOON) as url, connected(url) as (_, writer):
            writer.write(b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(60):
                await broken.wait()


async def test_error_when_it_is_ours_is_logged_under_an_id_and_nothing_of_it_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_request: web.Request) -> web.StreamResponse:
        raise KeyError("/secret/path")

    app = web.Application(middlewares=[problems(VirtualClock(prefix="id-").new_id)])
    app.router.add_get("/fail", fail)
    async with serving(app, "127.0.0.1", 0) as url, aiohttp.ClientSession() as session:
        answer = await session.get(f"{url}/fail")
        text = await answer.text()
    assert (answer.status, answer.content_type) == (500, PROBLEM)
    assert "secret" not in text
    assert "id-1" in text
    assert "id=id-1" in caplog.text
    assert "KeyError" in caplog.text


@pytest.mark.parametrize(
    ("error", "status", "header"),
    [
        (StoreUnavailable("busy"), 503, "Retry-After"),
        (StoreNotWritable("full"), 507, "Retry-After"),
        (VersionConflict("no"), 409, ""),
        (LogDamaged("bad", 7), 500, ""),
        (InvalidInput("half a character \udc80"), 422, ""),
    ],
)
async def test_error_when_raised_on_purpose_has_its_status(error: Exception, status: int, header: str) -> None:
    async def fail(_request: web.Request) -> web.StreamResponse:
        raise error

    app = web.Application(middlewares=[problems(VirtualClock().new_id)])
    app.router.add_get("/fail", fail)
    async with serving(app, "127.0.0.1", 0) as url, aiohttp.ClientSession() as session:
        answer = await session.get(f"{url}/fail")
        problem = await answer.json(content_type=PROBLEM)
    assert (answer.status, problem["status"]) == (status, status)
    assert problem["detail"].startswith(str(error)[:10])
    assert not header or header in answer.headers


async def test_answer_when_it_fails_half_way_is_cut_short() -> None:
    async def fail(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"a part")
        raise StoreUnavailable("gone")

    app = web.Application(middlewares=[problems(VirtualClock().new_id)])
    app.router.add_get("/fail", fail)
    async with serving(app, "127.0.0.1", 0) as url, aiohttp.ClientSession() as session:
        answer = await session.get(f"{url}/fail")
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_port_when_taken_is_one_clear_sentence() -> None:
    async with a_service() as service:
        port = int(service.url.rpartition(":")[2])
        with pytest.raises(
            AlreadyExists, match=rf"port {port}: .* \(process {os.getpid()}\) listens there.* --port 0 takes any"
        ):
            async with serving(web.Application(), "127.0.0.1", port):
                pass


async def test_port_when_nobody_listens_there_and_it_is_taken_all_the_same_says_what_keeps_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(AlreadyExists, match="nobody listens there, but a connection that has just ended keeps it"):
            async with serving(web.Application(), "127.0.0.1", taken.getsockname()[1]):
                pass


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.7"])
async def test_host_when_not_ours_is_one_clear_sentence(host: str) -> None:
    with pytest.raises(InvalidInput, match=host):
        async with serving(web.Application(), host, 0):
            pass


async def test_streams_when_the_server_ends_end_too() -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun ")
        await request.app[SHUTTING_DOWN].wait()
        await response.write(b"ended")
        return response

    async with a_backend() as backend, aiohttp.ClientSession() as session, asyncio.timeout(60):
        app = application(backend)
        app.router.add_get("/stream", stream)
        async with serving(app, "127.0.0.1", 0) as url:
            answer = await session.get(f"{url}/stream")
            assert await answer.content.readexactly(6) == b"begun "
            reading = asyncio.get_running_loop().create_task(answer.read())
            await asyncio.sleep(0)
        assert await reading == b"ended"


async def test_page_from_elsewhere_when_there_are_no_tokens_is_refused() -> None:
    async with a_service() as service:
        host = service.url.removeprefix("http://")
        for origin, status in (
            ("http://evil.example", 403),
            ("null", 403),
            (f"http://{host}", 201),
            (f"http://evil.example:{host.rpartition(':')[2]}", 403),
            ("http://[", 403),
        ):
            answer = await service.ask("POST", "/api/v1/jobs", body=a_manifest(), headers={"Origin": origin})
            assert answer.status == status, origin


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("[::1]:8470", 200),
        ("localhost:8470", 200),
        ("gpu1:8470", 200),
        ("rebound.example", 403),
        ("RE.bound.example:8470", 403),
        ("127.0.0.1.rebound.example", 403),
        ("[", 403),
        ("", 403),
    ],
)
async def test_host_when_others_could_claim_it_and_there_are_no_tokens_is_refused(host: str, status: int) -> None:
    async with a_service() as service:
        assert (await service.ask("GET", "/api/v1/jobs", headers={"Host": host})).status == status


async def test_host_when_it_is_the_one_listened_at_is_ours() -> None:
    async with a_backend() as backend:
        app = application(backend)
        async with serving(app, "localhost", 0):
            assert app[LISTEN_HOST] == "localhost"
    named = web.Application()
    named[LISTEN_HOST] = "gpu1.lab.example"
    refuse_foreign_origin(make_mocked_request("GET", "/", headers={"Host": "GPU1.lab.example:8470"}, app=named))
    with pytest.raises(NotAllowed):
        refuse_foreign_origin(make_mocked_request("GET", "/", headers={"Host": "gpu2.lab.example:8470"}, app=named))


@pytest.mark.parametrize("path", ["/metrics", "/docs", "/openapi.json", "/readyz"])
async def test_what_all_may_see_is_shown_under_no_foreign_name_where_there_are_no_tokens(path: str) -> None:
    async with a_service() as service:
        assert (await service.ask("GET", path, headers={"Host": "rebound.example"})).status == 403
        assert (await service.ask("GET", path)).status == 200


async def test_host_when_there_are_tokens_does_not_matter(tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, VirtualClock(START))
    async with a_service(access=access) as service:
        token = (tmp_path / "admin.token").read_text().strip()
        for headers in ({"Host": "voda.example"}, {"Origin": "http://["}):
            assert (await service.ask("GET", "/api/v1", token=token, headers=headers)).status == 200


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/jobs", "/api/v1/pools/default", "/openapi.json", "/docs"])
async def test_head_when_asked_is_the_answer_to_get_without_its_body(path: str) -> None:
    async with a_service() as service:
        answer, full = await service.ask("HEAD", path), await service.ask("GET", path)
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["Content-Type"] == full.headers["Content-Type"]
    assert answer.headers["Content-Length"] == str(len(full.body))


async def test_head_when_of_a_stream_ends_at_once() -> None:
    async with a_service() as service, asyncio.timeout(60):
        answer = await service.ask("HEAD", "/api/v1/events?watch=true")
        assert (answer.status, answer.body) == (200, b"")
        assert (await service.ask("GET", "/healthz")).status == 200


async def test_connections_when_there_are_too_many_then_the_longest_waiting_is_told_so_and_closed() -> None:
    async with a_service(limits=CallerLimits(connections=3)) as service, AsyncExitStack() as stack, asyncio.timeout(60):
        waiting = [await stack.enter_async_context(connected(service.url)) for _ in range(3)]
        assert (await service.ask("GET", "/healthz")).status == 200
        told = await until_closed(waiting[0][0])
        assert told.startswith(b"HTTP/1.1 503 ")
        assert b"application/problem+json" in told
        assert b"Retry-After: 1" in told
        reader, writer = waiting[1]
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.0 200")


async def test_operations_are_told_apart_by_name_and_all_have_a_summary() -> None:
    async with a_backend() as backend:
        found = operations(backend)
    assert {"submitJob", "listJobs", "getJob", "changeJob", "deleteJob", "reportProgress"} <= {
        one.name for one in found
    }
    assert len({(one.method, one.path) for one in found}) == len(found)
    assert all(one.summary and one.tag for one in found)


async def test_tls_when_a_certificate_is_given_is_spoken_from_version_1_2_on(tmp_path: Path) -> None:
    cert, key = a_certificate(tmp_path, "IP:127.0.0.1")
    async with a_backend() as backend, serving(application(backend), "127.0.0.1", 0, tls=(cert, key)) as url:
        assert url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(cert))
        async with aiohttp.ClientSession() as session:
            answer = await session.get(f"{url}/api/v1/jobs", ssl=trusting)
            assert answer.status == 200
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), ssl=old)


async def test_tls_when_the_files_are_no_certificate_is_one_clear_sentence(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    with pytest.raises(InvalidInput, match="not a certificate and its key"):
        async with serving(web.Application(), "127.0.0.1", 0, tls=(bad, bad)):
            pass
    with pytest.raises(InvalidInput, match="cannot be read"):
        async with serving(web.Application(), "127.0.0.1", 0, tls=(tmp_path / "none.pem", bad)):
            pass


async def test_url_when_listening_everywhere_is_one_that_can_be_asked() -> None:
    async with a_backend() as backend, serving(application(backend), "0.0.0.0", 0) as url:
        assert url.startswith("http://127.0.0.1:")
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60):
            pass


@pytest.mark.parametrize(
    "claim",
    [
        test_head_when_slow_after_a_good_request_is_cut_off,
        pytest.param(test_body_when_it_comes_slowly_is_a_problem_and_the_connection_ends, marks=pytest.mark.slow),
        test_connection_when_idle_is_closed,
        test_answer_when_nobody_takes_it_is_cut_off,
        test_connections_when_there_are_too_many_then_the_longest_waiting_is_told_so_and_closed,
    ],
)
def test_limits_when_served_as_voda_up_does_hold_too(claim: Callable[[], Coroutine[object, object, None]]) -> None:
    # Its transports are none of asyncio's classes.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(claim())

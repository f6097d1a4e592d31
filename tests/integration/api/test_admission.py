"""Callers who take more than their share of the server: they are bounded, and everybody else is served."""

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvloop

from tests.builders import a_spec
from tests.service import Service, a_manifest, a_service
from tests.waiting import until_it_is
from voda.api.admission import CallerLimits
from voda.auth.tokens import Authenticator
from voda.clock import SystemClock
from voda.events.types import JobSubmitted
from voda.wire.base import Problem

_STALLED, _HALF_OPEN, _UNFINISHED = 600, 900, 20
_WITHIN_S = 10.0
"""For an answer, on a busy machine; without bounds none ever comes."""


class Crowd:
    """Sockets that connect and say something, and never read."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._sockets: list[socket.socket] = []

    async def join(self, count: int, said: bytes) -> None:
        """Connect as many more, each saying the same."""
        loop = asyncio.get_running_loop()
        for _ in range(count):
            one = socket.socket()
            one.setblocking(False)
            self._sockets.append(one)
            await loop.sock_connect(one, ("127.0.0.1", self._port))
            await loop.sock_sendall(one, said)

    def answers(self) -> list[bytes]:
        """Return what each was told so far."""
        return [_told(one) for one in self._sockets]

    def close(self) -> None:
        for one in self._sockets:
            one.close()


def _told(one: socket.socket) -> bytes:
    try:
        return one.recv(4_096, socket.MSG_PEEK)
    except BlockingIOError:
        return b""
    except ConnectionError:
        return b"reset"


@asynccontextmanager
async def crowded(
    tmp_path: Path, limits: CallerLimits | None = None
) -> AsyncIterator[tuple[Service, Authenticator, Crowd]]:
    """Yield a service with tokens, and a crowd that is closed at the end."""
    access = Authenticator.open(tmp_path, SystemClock())
    async with a_service(access=access, limits=limits) as service:
        crowd = Crowd(service.url)
        try:
            yield service, access, crowd
        finally:
            crowd.close()


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _admin(tmp_path: Path) -> dict[str, str]:
    return _bearer((tmp_path / "admin.token").read_text().strip())


async def _is_served(service: Service, headers: dict[str, str]) -> bool:
    async with asyncio.timeout(_WITHIN_S):
        ready = await service.ask("GET", "/readyz")
        answer = await service.ask("GET", "/api/v1/jobs", headers=headers)
    return (ready.status, answer.status) == (200, 200)


@pytest.mark.parametrize(
    "said", [b"", b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX-", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"]
)
async def test_connections_when_most_are_never_used_then_others_are_served(said: bytes, tmp_path: Path) -> None:
    async with crowded(tmp_path) as (service, access, crowd):
        ann = _bearer(access.add("ann", "user"))
        await crowd.join(_HALF_OPEN, said)
        assert await _is_served(service, ann)
        assert await _is_served(service, _admin(tmp_path))
        closed = [told for told in crowd.answers() if told.startswith((b"HTTP/1.1 503 ", b"reset"))]
        assert said.endswith(b"\r\n\r\n") or len(closed) >= _HALF_OPEN - CallerLimits().connections


@contextmanager
def no_collection() -> Iterator[None]:
    """Leave garbage that refers to itself where it is, as it stays for long in a service that has much to do."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


async def test_bodies_that_do_not_end_are_given_back_with_their_connections(tmp_path: Path) -> None:
    async with crowded(tmp_path) as (service, access, _):
        address = urlsplit(service.url)
        head = (
            f"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {access.add('ann', 'user')}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
        )
        assert await _is_served(service, _admin(tmp_path))
        with no_collection():
            for _ in range(_UNFINISHED):
                _, writer = await asyncio.open_connection(address.hostname, address.port)
                writer.write(head.encode() + b"x" * 900_000)
                await writer.drain()
                writer.close()
                await writer.wait_closed()

            async def are_given_back() -> bool:
                held, _ = tracemalloc.get_traced_memory()
                return held < _UNFINISHED * 20_000

            await until_it_is(are_given_back, within_s=10)


@pytest.mark.parametrize("is_admin", [False, True])
async def test_streams_when_a_user_stalls_too_many_then_more_are_refused(is_admin: bool, tmp_path: Path) -> None:
    async with crowded(tmp_path) as (service, access, crowd):
        ann, bob = _bearer(access.add("ann", "user")), _bearer(access.add("bob", "user"))
        greedy = _admin(tmp_path) if is_admin else ann
        line = f"GET /api/v1/events?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: {greedy['Authorization']}\r\n\r\n"
        await crowd.join(_STALLED, line.encode())

        async def are_answered() -> bool:
            # Those that are refused give way, the longest waiting first.
            told = crowd.answers()
            return sum(one.startswith(b"HTTP/1.1 200 ") for one in told) == most and b"" not in told

        most = CallerLimits().streams_per_user
        await until_it_is(are_answered, within_s=30)
        for headers in (greedy, bob, _admin(tmp_path)):
            assert await _is_served(service, headers)
        refused = await service.ask("GET", "/api/v1/events?watch=true", headers=greedy)
        assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        assert f"follows {most} streams" in refused.as_a(Problem).detail
        async with service.session.get(f"{service.url}/api/v1/events?watch=true", headers=bob) as stream:
            assert stream.status == 200


async def test_stream_when_its_reader_leaves_then_another_may_come(tmp_path: Path) -> None:
    limits = CallerLimits(streams_per_user=1, heartbeat_s=3_600)
    async with crowded(tmp_path, limits) as (service, _, _):
        url, headers = f"{service.url}/api/v1/events?watch=true", _admin(tmp_path)
        for _ in range(3):

            async def is_open() -> bool:
                stream = await service.session.get(url, headers=headers)
                stream.close()
                return stream.status == 200

            await until_it_is(is_open, within_s=30)
        assert (await service.session.get(f"{service.url}/readyz")).status == 200


async def test_requests_when_users_hold_all_they_may_then_admins_and_probes_are_served(tmp_path: Path) -> None:
    limits = CallerLimits(connections=20, reserved=5, requests_per_user=10, request_s=600)
    async with crowded(tmp_path, limits) as (service, access, crowd):
        tokens = {name: _bearer(access.add(name, "user")) for name in ("ann", "bob", "eve")}
        for name, count in (("ann", 20), ("bob", 20)):
            await crowd.join(count, _slow_body(tokens[name]))

        async def eve_is_refused() -> bool:
            return (await service.ask("GET", "/api/v1/jobs", headers=tokens["eve"])).status == 503

        await until_it_is(eve_is_refused, within_s=30)
        answer = await service.ask("GET", "/api/v1/jobs", headers=tokens["eve"])
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert "busy" in answer.as_a(Problem).detail
        assert await _is_served(service, _admin(tmp_path))


async def test_jobs_of_one_user_share_one_bound_and_leave_the_user_alone(tmp_path: Path) -> None:
    limits = CallerLimits(requests_per_user=3, request_s=600)
    async with crowded(tmp_path, limits) as (service, access, crowd):
        ann = _bearer(access.add("ann", "user"))
        for job_id in ("a", "b"):
            await service.happens(JobSubmitted(spec=a_spec(job_id, name=job_id, user="ann")))
            path = f"/api/v1/jobs/{job_id}/progress"
            await crowd.join(3, _slow_body(_bearer(access.job_token(job_id)), path))

        async def b_is_refused() -> bool:
            return sum(told.startswith(b"HTTP/1.1 429 ") for told in crowd.answers()) == 3

        await until_it_is(b_is_refused, within_s=30)
        assert await _is_served(service, ann)


def _slow_body(headers: dict[str, str], path: str = "/api/v1/jobs") -> bytes:
    shown = f"Authorization: {headers['Authorization']}\r\nContent-Type: application/json"
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{shown}\r\nContent-Length: 100\r\n\r\n{{".encode()


@pytest.mark.parametrize(
    "claim",
    [
        test_requests_when_users_hold_all_they_may_then_admins_and_probes_are_served,
        test_stream_when_its_reader_leaves_then_another_may_come,
    ],
)
def test_bounds_when_served_as_voda_up_does_hold_too(
    claim: Callable[[Path], Coroutine[object, object, None]], tmp_path: Path
) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(claim(tmp_path))


async def test_priority_beyond_what_the_pool_lets_users_give_is_for_admins_alone(tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, SystemClock())
    ada, root = access.add("ada", "user"), access.add("root", "admin")
    async with a_service(access=access) as service:

        async def status(token: str, method: str, path: str, **body: object) -> tuple[int, str]:
            answer = await service.ask(method, path, token=token, body=body)
            return answer.status, answer.as_a(Problem).detail if answer.status >= 400 else ""

        async def submitted(token: str, name: str, priority: int) -> tuple[int, str]:
            return await status(token, "POST", "/api/v1/jobs", **a_manifest(name, priority=priority))

        for name, priority in (("a", 1_000), ("b", -1_000)):
            assert (await submitted(ada, name, priority))[0] == 201
        for priority in (1_001, -1_001, 1_000_000_000):
            assert await submitted(ada, "c", priority) == (
                422,
                "metadata.annotations[voda.dev/priority]: expected -1,000 to 1,000, which is what the pool lets users"
                f" give, got {priority:,}: choose another, or ask an admin",
            )
        assert (await status(ada, "PATCH", "/api/v1/jobs/a", priority=1_001))[0] == 422
        assert (await submitted(root, "d", 1_000_000_000))[0] == 201
        assert (await status(root, "PATCH", "/api/v1/jobs/a", priority=5_000))[0] == 200
        # What an admin gave it stays, whatever else its user changes.
        assert (await status(ada, "PATCH", "/api/v1/jobs/a", epochs=7))[0] == 200
        settings = "/api/v1/pools/default/settings"
        assert (await status(ada, "PATCH", settings, most_user_priority=10**9))[0] == 403
        assert (await status(root, "PATCH", settings, most_user_priority=10))[0] == 200
        assert [(await submitted(ada, f"e{priority}", priority))[0] for priority in (10, 11)] == [201, 422]

"""The Unix socket, asked by processes of real accounts."""

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.accounts import as_account, as_ids, passable_folder
from tests.service import START, a_backend, a_manifest
from voda.accounts import Account, Accounts, account_of, account_of_uid
from voda.api.admission import CallerLimits
from voda.api.backend import Backend
from voda.api.listener import serving, serving_socket
from voda.api.server import application
from voda.api.sockets import bound_socket
from voda.auth.callers import Caller
from voda.auth.local_users import LocalUsers
from voda.auth.tokens import Authenticator
from voda.cli.options import ServerOptions
from voda.client.errors import ServerUnreachable
from voda.client.http import HttpClient
from voda.clock import VirtualClock
from voda.domain.errors import AlreadyExists, InvalidInput
from voda.report import _SocketConnection

NO_ACCOUNT = 54_321
HASTY = CallerLimits(request_s=0.5)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all users reach."""
    with passable_folder() as made:
        yield made


@dataclass(frozen=True, slots=True)
class Socket:
    """A served socket, and requests to it as processes of other users."""

    path: Path
    backend: Backend
    url: str

    async def ask(self, account: str, method: str, path: str, *, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Return status and body of the answer to a process of the account."""
        content = b"" if body is None else json.dumps(body).encode()
        said = await asyncio.to_thread(as_account, account, lambda: exchange(self.path, method, path, content, headers))
        return answer_of(said)


def exchange(where: Path, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> str:
    """Send a request over a Unix socket and return everything that comes back."""
    shown = {"Host": "localhost", "Connection": "close", "Content-Type": "application/json", **headers}
    shown = {name.replace("_", "-"): value for name, value in shown.items()} | {"Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in shown.items())
    with socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(20)
        connected.connect(str(where))
        connected.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        return b"".join(iter(lambda: connected.recv(65_536), b"")).decode()


def answer_of(said: str) -> tuple[int, Any]:
    """Return status and decoded body."""
    head, _, body = said.partition("\r\n\r\n")
    return int(head.split()[1]), json.loads(body) if body else None


class Names:
    """The accounts of this machine, of which `bin` is in the group of admins."""

    def account_of(self, name: str) -> Account | None:
        return account_of(name)

    def account_of_uid(self, uid: int) -> Account | None:
        return account_of_uid(uid)

    def group_id(self, name: str) -> int | None:
        found = account_of("bin")
        return found.gid if name == "voda-admin" and found else None


@asynccontextmanager
async def a_socket(folder: Path, limits: CallerLimits | None = None) -> AsyncIterator[Socket]:
    """Serve a backend with tokens at a socket in the folder, and over TCP."""
    (secrets := folder / "home").mkdir(mode=0o711)
    access, users = Authenticator.open(secrets, VirtualClock(START)), LocalUsers(Accounts(Names()))
    path = folder / "run" / "voda.sock"
    async with a_backend(access=access, local_users=users, limits=limits or CallerLimits()) as backend:
        app = application(backend)
        async with serving(app, "127.0.0.1", 0, limits=limits) as url, serving_socket(app, path):
            yield Socket(path, backend, url)


async def test_callers_are_told_by_their_accounts_without_a_token(folder: Path) -> None:
    async with a_socket(folder) as served:
        expected = {"root": "admin", "daemon": "user", "nobody": "user", "bin": "admin"}
        for name, role in expected.items():
            status, caller = await served.ask(name, "GET", "/api/v1/whoami")
            assert (status, caller) == (
                200,
                {"user": name, "role": role, "job_id": "", "found_by": "socket", "warning": ""},
            )


@pytest.mark.parametrize(
    ("user", "status", "role"),
    [("root", 200, "admin"), ("bin", 200, "admin"), ("daemon", 200, "user"), ("gone", 401, "")],
)
async def test_session_begun_at_the_socket_by_an_admin_may_what_the_socket_would_let_its_user_now(
    folder: Path, user: str, status: int, role: str
) -> None:
    async with a_socket(folder) as served:
        access = served.backend.access
        code, _ = access.login(Caller(user=user, role="admin", found_by="socket"))
        session, _ = access.begin_session(code)
        answered, caller = await served.ask("nobody", "GET", "/api/v1/whoami", Authorization=f"Bearer {session}")
        assert (answered, caller.get("role", "")) == (status, role)


async def test_session_begun_with_a_token_has_the_role_of_the_token(folder: Path) -> None:
    async with a_socket(folder) as served:
        access = served.backend.access
        access.add("daemon", "admin")
        code, _ = access.login(Caller(user="daemon", role="admin"))
        session, _ = access.begin_session(code)
        _, caller = await served.ask("nobody", "GET", "/api/v1/whoami", Authorization=f"Bearer {session}")
        assert (caller["user"], caller["role"], caller["found_by"]) == ("daemon", "admin", "session")


async def test_caller_cannot_be_another_by_what_it_sends(folder: Path) -> None:
    async with a_socket(folder) as served:
        forged = {
            "X_Forwarded_User": "root",
            "X_Remote_User": "root",
            "Remote_User": "root",
            "X_Forwarded_For": "127.0.0.1",
            "Forwarded": "for=root;by=root",
            "X_Peer_Uid": "0",
            "Cookie": "user=root",
        }
        _, caller = await served.ask("daemon", "GET", "/api/v1/whoami", **forged)
        assert (caller["user"], caller["role"]) == ("daemon", "user")
        status, _ = await served.ask("daemon", "GET", "/api/v1/whoami?user=root")
        assert status == 422
        status, made = await served.ask("daemon", "POST", "/api/v1/jobs", body=a_manifest(), **forged)
        assert (status, made["job"]["user"]) == (201, "daemon")


async def test_group_of_admins_when_a_process_takes_it_on_makes_no_admin(folder: Path) -> None:
    daemon, admins = account_of("daemon"), account_of("bin")
    assert daemon is not None
    assert admins is not None
    async with a_socket(folder) as served:
        said = await asyncio.to_thread(
            as_ids,
            daemon.uid,
            admins.gid,
            lambda: exchange(served.path, "GET", "/api/v1/whoami", b"", {}),
        )
        assert answer_of(said)[1]["role"] == "user"


async def test_process_whose_user_has_no_account_is_refused_but_its_token_counts(folder: Path) -> None:
    async with a_socket(folder) as served:
        bearer = f"Bearer {served.backend.access.add('ann', 'viewer')}"

        def ask(headers: Mapping[str, str]) -> str:
            return as_ids(NO_ACCOUNT, NO_ACCOUNT, lambda: exchange(served.path, "GET", "/api/v1/whoami", b"", headers))

        status, problem = answer_of(await asyncio.to_thread(ask, {}))
        assert (status, problem["detail"].partition(" on this")[0]) == (403, f"user id {NO_ACCOUNT} has no account")
        status, caller = answer_of(await asyncio.to_thread(ask, {"Authorization": bearer}))
        assert (status, caller["user"], caller["role"], caller["found_by"]) == (200, "ann", "viewer", "token")


async def test_token_when_one_is_sent_says_who_asks_and_a_wrong_one_is_refused(folder: Path) -> None:
    async with a_socket(folder) as served:
        jobs = served.backend.access.job_token("digits")
        forged = f"vjob_other.{jobs.rpartition('.')[2]}"
        _, caller = await served.ask("daemon", "GET", "/api/v1/whoami", Authorization=f"Bearer {jobs}")
        assert (caller["role"], caller["job_id"], caller["found_by"]) == ("job", "digits", "token")
        for wrong in (f"Bearer {forged}", "Bearer voda_x", "Bearer ", "Basic cm9vdDo="):
            status, _ = await served.ask("root", "GET", "/api/v1/whoami", Authorization=wrong)
            assert status == 401, wrong


async def test_job_of_another_user_is_neither_canceled_nor_read(folder: Path) -> None:
    async with a_socket(folder) as served:
        status, _ = await served.ask("daemon", "POST", "/api/v1/jobs", body=a_manifest())
        assert status == 201
        for method, path in (
            ("DELETE", "/api/v1/jobs/digits"),
            ("GET", "/api/v1/jobs/digits/manifest"),
            ("GET", "/api/v1/jobs/digits/logs"),
        ):
            status, problem = await served.ask("nobody", method, path)
            assert (status, problem["title"]) == (403, "Forbidden"), path
        for path, body in (("/api/v1/jobs/digits", {"max_replicas": 4}), ("/api/v1/pools/default/settings", {})):
            assert (await served.ask("nobody", "PATCH", path, body=body))[0] == 403
        assert (await served.ask("bin", "GET", "/api/v1/jobs/digits/manifest"))[0] == 200
        assert (await served.ask("daemon", "DELETE", "/api/v1/jobs/digits"))[0] in (200, 202)


async def test_requests_over_tcp_still_need_a_token(folder: Path) -> None:
    async with a_socket(folder) as served:
        host, _, port = served.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /api/v1/whoami HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
        writer.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost"}, 200),
        ({"Host": "rebound.example"}, 403),
        ({"Host": "localhost:8080", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost:8080", "Origin": "null"}, 403),
        ({"Host": "localhost:8080", "Origin": "http://localhost:8080"}, 200),
    ],
)
async def test_page_from_elsewhere_that_reaches_the_socket_through_a_forwarded_port_is_refused(
    folder: Path, headers: dict[str, str], status: int
) -> None:
    async with a_socket(folder) as served:
        assert (await served.ask("daemon", "GET", "/api/v1/jobs", **headers))[0] == status


async def test_clients_that_stall_hold_nobody_up_and_are_cut_off(folder: Path) -> None:
    async with a_socket(folder, HASTY) as served:
        silent = [await asyncio.open_unix_connection(str(served.path)) for _ in range(100)]
        for _, writer in silent[50:]:
            writer.write(b"GET /api/v1/jobs HTTP/1.1\r\nHost: ")
        async with asyncio.timeout(5):
            assert (await served.ask("daemon", "GET", "/api/v1/whoami"))[0] == 200
        async with asyncio.timeout(20):
            for reader, writer in silent:
                # It is cut off, whichever way the kernel tells.
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()


async def test_user_with_many_connections_takes_no_other_user_the_place(folder: Path) -> None:
    limits = CallerLimits(connections=20, connections_per_address=5, reserved=1)
    async with a_socket(folder, limits) as served:
        greedy = [await asyncio.open_unix_connection(str(served.path)) for _ in range(40)]
        for _ in range(3):
            assert (await served.ask("daemon", "GET", "/api/v1/whoami"))[0] == 200
        for _, writer in greedy:
            writer.close()


async def test_socket_when_served_is_for_all_and_gone_afterwards(folder: Path) -> None:
    async with a_socket(folder) as served:
        assert stat.S_IMODE(served.path.stat().st_mode) == 0o666
        assert stat.S_IMODE(served.path.parent.stat().st_mode) == 0o755
    assert not served.path.exists()


def test_socket_that_a_killed_process_left_is_replaced(folder: Path) -> None:
    path = folder / "voda.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with bound_socket(path) as bound:
        bound.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert not path.exists()


def test_socket_that_another_process_listens_at_is_left_alone(folder: Path) -> None:
    path = folder / "voda.sock"
    with bound_socket(path) as bound:
        bound.listen()
        with pytest.raises(AlreadyExists, match="another process listens there"), bound_socket(path):
            pass
        assert path.is_socket()


def test_socket_at_a_path_that_cannot_be_used_is_refused_in_a_sentence(folder: Path) -> None:
    (folder / "file").write_text("keep me")
    (folder / "link").symlink_to(folder / "file")
    (folder / "open").mkdir()
    (folder / "open" / "inner").mkdir()
    (folder / "open").chmod(0o777)
    (folder / "group").mkdir()
    (folder / "group").chmod(0o775)
    (folder / "others").mkdir()
    os.chown(folder / "others", 12_345, -1)
    for path, reason in (
        (folder / "file", "something else is there"),
        (folder / "link", "something else is there"),
        (folder / "none" / "deep" / "voda.sock", "No such file or directory"),
        (folder / "file" / "voda.sock", "Not a directory|File exists"),
        (folder / ("x" * 120), "at most 107 bytes"),
        (folder / "open" / "voda.sock", r"own or may write the folder .*/open, and could put another socket"),
        (folder / "open" / "inner" / "voda.sock", r"own or may write the folder .*/open, and could"),
        (folder / "group" / "voda.sock", r"own or may write the folder .*/group, and could"),
        (folder / "others" / "voda.sock", r"own or may write the folder .*/others, and could"),
    ):
        with pytest.raises(InvalidInput, match=reason), bound_socket(path):
            pass
    assert (folder / "file").read_text() == "keep me"


def fill_backlog(path: Path, crowd: ExitStack) -> None:
    """Connect until nobody else can; the stack closes them."""
    with suppress(BlockingIOError):
        while True:
            one = crowd.enter_context(socket.socket(socket.AF_UNIX))
            one.setblocking(False)
            one.connect(str(path))


def asked_by_a_client(path: Path) -> bytes:
    return HttpClient(ServerOptions(server=f"unix://{path}")).get("/whoami")


def asked_by_a_report(path: Path) -> bytes:
    with closing(_SocketConnection(str(path))) as connection:
        connection.request("POST", "/")
        return connection.getresponse().read()


@pytest.mark.parametrize("ask", [asked_by_a_client, asked_by_a_report])
def test_client_when_others_fill_the_backlog_waits_for_its_place(folder: Path, ask: Callable[[Path], bytes]) -> None:
    path = folder / "voda.sock"
    with bound_socket(path) as bound, ExitStack() as crowd, ThreadPoolExecutor() as pool:
        bound.settimeout(0.2)
        bound.listen(1)
        fill_backlog(path, crowd)
        answer = pool.submit(ask, path)
        # It waits in the kernel, so that nothing tells: most often it does by now, and the claim holds if it does not.
        with suppress(FutureTimeout):
            answer.result(timeout=0.5)
        while not answer.done():
            with suppress(TimeoutError), bound.accept()[0] as accepted:
                accepted.settimeout(0.2)
                if accepted.recv(65_536):
                    accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        assert answer.result() == b"{}"


def test_client_when_the_backlog_stays_full_says_in_time_that_nobody_answers(folder: Path) -> None:
    path = folder / "voda.sock"
    with bound_socket(path) as bound, ExitStack() as crowd:
        bound.listen(1)
        fill_backlog(path, crowd)
        with pytest.raises(ServerUnreachable, match="does not answer in time"):
            HttpClient(ServerOptions(server=f"unix://{path}"), timeout_s=0.2).get("/whoami")
        with pytest.raises(AlreadyExists, match="another process listens there"), bound_socket(path):
            pass

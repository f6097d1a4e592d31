"""Commands beside replicas, over a real WebSocket: the client of voda, and callers that mean harm."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import WSMsgType

from tests.builders import a_spec
from tests.kube.memory_api import MemoryApi
from tests.kube.memory_server import MemoryServer
from tests.local_jobs import FOREVER, Ground, a_ground, a_torch_job
from tests.service import START, Service, a_service
from tests.waiting import DEADLINE_S, is_alive, until, until_it_is
from voda.api.admission import CallerLimits
from voda.api.streams import command_session
from voda.auth.tokens import Authenticator, Role
from voda.client import AsyncClient, ExecResult, InvalidInput, NotAllowed, NotFound, PermanentError, WaitTimeout
from voda.client.errors import RetryLater
from voda.client.exec.session import PROTOCOL, WINDOW_BYTES
from voda.clock import SystemClock
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.pod_logs import KubernetesOutputs
from voda.cluster.local.exec.commands import LocalCommands
from voda.domain.errors import AlreadyExists
from voda.events.types import JobCompleted, JobSubmitted, WorkerStarted


@dataclass
class Scene:
    """A served backend, the real job a of ann's, and who asks."""

    service: Service
    ground: Ground

    def client(self, token: str = "") -> AsyncClient:
        return AsyncClient(self.service.url, token or "any")

    @asynccontextmanager
    async def socket(self, **start: Any) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket by hand, and say what to run unless nothing is given."""
        url = f"{self.service.url}/api/v1/jobs/a/exec"
        async with (
            asyncio.timeout(DEADLINE_S),
            self.service.session.ws_connect(url, protocols=[PROTOCOL], autoping=False) as opened,
        ):
            if start:
                await opened.send_json(start)
            yield opened

    async def pid(self) -> int:
        """Return the id that a command has written into the job's folder."""
        path = self.ground.folder / "a" / "pid"
        await until(lambda: path.exists() and path.read_text() != "")
        return int(path.read_text())


@asynccontextmanager
async def a_scene(folder: Path, **fields: Any) -> AsyncIterator[Scene]:
    async with a_ground(folder) as ground:
        await ground.start(a_torch_job("a", FOREVER, min_replicas=1))
        commands = LocalCommands(lambda: [ground.cluster])
        async with a_service(commands=commands, **fields) as service:
            await service.happens(JobSubmitted(spec=a_spec("a", user="ann")))
            await service.happens(WorkerStarted(job_id="a", workers={0: "n1"}))
            yield Scene(service, ground)


async def the_end(opened: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
    """Return the last that the server says, which closes then."""
    said: dict[str, Any] = {}
    while (message := await opened.receive()).type not in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING):
        if message.type == WSMsgType.TEXT:
            said = json.loads(message.data)
    return said


async def test_command_when_run_by_the_client_returns_status_output_and_errors(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        script = "cat; echo err >&2; exit 3"
        result = await scene.client().exec("a", ["sh", "-c", script], stdin=b"x" * 1_000_000, replica="worker-0")
        assert result == ExecResult(status=3, stdout=b"x" * 1_000_000, stderr=b"err\n")
        missing = await scene.client().exec("a", ["no-such-program"], replica="0")
        assert (missing.status, missing.stderr) == (127, b"voda: command no-such-program: not found\n")


async def test_command_when_it_takes_too_long_is_ended(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        with pytest.raises(WaitTimeout, match=r"has not ended within 0.5 s, and was ended"):
            await scene.client().exec("a", ["sh", "-c", "echo $$ > pid; exec sleep 1000"], timeout_s=0.5)
        pid = await scene.pid()
        await until(lambda: not is_alive(pid))


async def test_command_when_its_task_is_canceled_is_ended(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        running = asyncio.create_task(scene.client().exec("a", ["sh", "-c", "echo $$ > pid; exec sleep 1000"]))
        pid = await scene.pid()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: not is_alive(pid))


async def test_command_is_for_the_owner_and_admins_alone_and_is_said_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access = Authenticator.open(tmp_path, SystemClock())
    roles: dict[str, Role] = {"ann": "user", "bob": "user", "eve": "viewer", "root": "admin"}
    tokens = {user: access.add(user, role) for user, role in roles.items()}
    tokens["job"] = access.job_token("a")
    async with a_scene(tmp_path, access=access) as scene:
        for user in ("bob", "eve", "job"):
            with pytest.raises(NotAllowed):
                await scene.client(tokens[user]).exec("a", ["true"])
        with caplog.at_level(logging.INFO, "voda.audit"):
            for user in ("ann", "root"):
                assert (await scene.client(tokens[user]).exec("a", ["false", "secret"])).status == 1
    said = [record.getMessage() for record in caplog.records if record.name == "voda.audit"]
    assert [re.sub(r"\d+\.\d$", "S", line) for line in said] == [
        f"exec {which}job_id=a replica=worker-0 user={user!r} role={roles[user]} by='token' command='false'{end}"
        for user in ("ann", "root")
        for which, end in (("", ""), ("ended ", " status=1 seconds=S"))
    ]


async def test_command_when_nothing_runs_says_what_to_do(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        with pytest.raises(NotFound, match="job a runs no replica '3'; there is: worker-0"):
            await scene.client().exec("a", ["true"], replica="3")
        with pytest.raises(NotFound, match="'b' is not known"):
            await scene.client().exec("b", ["true"])
        await scene.service.happens(JobSubmitted(spec=a_spec("b")))
        with pytest.raises(AlreadyExists, match="no replica of it runs at this moment; wait b --for running waits"):
            await scene.client().exec("b", ["true"])
        await scene.service.happens(JobCompleted(job_id="a"))
        with pytest.raises(AlreadyExists, match="job a is Completed: commands run beside replicas that run"):
            await scene.client().exec("a", ["true"])


async def test_command_asked_for_without_an_upgrade_or_by_a_foreign_page_is_refused(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        answer = await scene.service.ask("GET", "/api/v1/jobs/a/exec")
        assert (answer.status, answer.headers["Upgrade"]) == (426, "websocket")
        assert "is a WebSocket" in answer.json()["detail"]
        url = f"{scene.service.url}/api/v1/jobs/a/exec"
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await scene.service.session.ws_connect(url, origin="https://evil.example")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("{", "what to run is not understood"),
        ("{}", "what to run is not understood: Object missing required field `argv`"),
        ('{"argv": []}', "length >= 1"),
        ('{"argv": ["a"], "user": "root"}', "unknown field `user`"),
        ('{"argv": [""]}', "the command is empty"),
        ('{"argv": ["a", "b\\u0000"]}', "holds a NUL"),
        ('{"argv": ["a"], "terminal": {"columns": 0, "rows": 1}}', "columns"),
        (b"\0", "the first message has to say as JSON what to run"),
        ("[" * 100_000, "what to run is not understood"),
        ('{"argv": ["' + "\\ud800" + '"]}', "what to run is not understood"),
    ],
    ids=["no json", "nothing", "no words", "unknown", "empty", "nul", "size", "binary", "deep", "surrogate"],
)
async def test_request_that_is_wrong_is_answered_with_one_sentence(
    tmp_path: Path, said: str | bytes, problem: str
) -> None:
    async with a_scene(tmp_path) as scene, scene.socket() as opened:
        await (opened.send_str(said) if isinstance(said, str) else opened.send_bytes(said))
        ended = await the_end(opened)
        assert ended["status"] is None
        assert problem in ended["problem"]


async def test_output_that_nobody_takes_waits_in_the_job_and_not_in_the_server(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene, scene.socket(argv=["sh", "-c", "echo $$ > pid; yes"]) as opened:
        received = 0
        while received < WINDOW_BYTES:
            message = await opened.receive()
            received += len(message.data) - 1 if message.type == WSMsgType.BINARY else 0
        assert received == WINDOW_BYTES
        await opened.ping()
        assert (await opened.receive()).type == WSMsgType.PONG
        await opened.send_json({"taken": 10})
        assert len((await opened.receive()).data) == 11


async def test_input_beyond_the_window_ends_the_command(tmp_path: Path) -> None:
    async with (
        a_scene(tmp_path) as scene,
        scene.socket(argv=["sh", "-c", "echo $$ > pid; exec sleep 1000"], has_input=True) as opened,
    ):
        pid = await scene.pid()
        for _ in range(2 * WINDOW_BYTES // 60_000 + 1):
            await opened.send_bytes(b"x" * 60_000)
        assert "ahead of what the command reads" in (await the_end(opened))["problem"]
        await until(lambda: not is_alive(pid))


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (CallerLimits(command_idle_s=0.3), "it was ended after 0.3 s without input or output"),
        (CallerLimits(command_s=0.3), "it was ended after 0.3 s, the longest that this voda lets a command take"),
    ],
    ids=["idle", "whole"],
)
async def test_command_when_it_is_over_a_limit_is_ended_with_a_sentence(
    tmp_path: Path, limits: CallerLimits, problem: str
) -> None:
    async with a_scene(tmp_path, limits=limits) as scene:
        with pytest.raises(PermanentError, match=problem):
            await scene.client().exec("a", ["sleep", "1000"])


async def test_caller_that_answers_no_sign_of_life_is_gone(tmp_path: Path) -> None:
    async with (
        a_scene(tmp_path, limits=CallerLimits(heartbeat_s=0.05)) as scene,
        scene.socket(argv=["sh", "-c", "echo $$ > pid; exec sleep 1000"]),
    ):
        pid = await scene.pid()
        await until(lambda: not is_alive(pid))


async def test_caller_that_takes_nothing_any_more_keeps_neither_command_nor_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_session, "_GOODBYE_S", 0.3)
    limits = CallerLimits(heartbeat_s=3600.0, request_s=3600.0)
    async with (
        a_scene(tmp_path, limits=limits) as scene,
        scene.socket(argv=["sh", "-c", "echo $$ > pid; exec yes"]) as opened,
    ):
        pid = await scene.pid()
        # Its output fills what the kernel keeps for a connection, so that the server can say nothing more.
        before = -1
        while before < (before := _written_bytes(pid)):
            for _ in range(20):
                await opened.send_json({"taken": WINDOW_BYTES})
                await asyncio.sleep(0.02)
        await opened.send_str("nonsense")
        await until(lambda: not is_alive(pid))

        async def is_cut() -> bool:
            try:
                await opened.send_str("?")
            except ConnectionError:
                return True
            return False

        # A caller that reads no farther sees an end of the connection by what it sends alone.
        await until_it_is(is_cut, what="the server cuts the connection")


def _written_bytes(pid: int) -> int:
    found = re.search(r"wchar: (\d+)", Path(f"/proc/{pid}/io").read_text())
    assert found is not None
    return int(found[1])


async def test_caller_that_says_nothing_is_asked_to_leave(tmp_path: Path) -> None:
    async with a_scene(tmp_path, limits=CallerLimits(request_s=0.2)) as scene, scene.socket() as opened:
        assert "nothing was said" in (await the_end(opened))["problem"]


async def test_commands_of_one_user_are_bounded(tmp_path: Path) -> None:
    limits = CallerLimits(streams_per_user=1)
    async with a_scene(tmp_path, limits=limits) as scene, scene.socket(argv=["sleep", "1000"]):
        with pytest.raises(RetryLater, match="follows 1 streams"):
            await scene.client().exec("a", ["true"])


async def test_output_that_is_too_much_for_a_result_ends_the_command(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        with pytest.raises(InvalidInput, match="printed more than 64 MiB"):
            await scene.client().exec("a", ["head", "-c", "100000000", "/dev/zero"])


@pytest.mark.parametrize(("query", "pod"), [("", "a-worker-0"), ("?replica=1", "a-worker-1"), ("?replica=5", "POD")])
async def test_cluster_that_runs_no_commands_says_what_to_type(query: str, pod: str) -> None:
    pods = [msgspec.convert({"metadata": {"name": f"a-worker-{number}"}}, Pod) for number in range(2)]
    api = MemoryApi(MemoryServer(lambda: START, []))
    outputs = KubernetesOutputs(api, pods=lambda _job: pods, has_ended=lambda _job: False)
    async with a_service(outputs=outputs) as service:
        await service.happens(JobSubmitted(spec=a_spec("a", namespace="team")))
        answer = await service.ask("GET", f"/api/v1/jobs/a/exec{query}")
        assert answer.status == 404
        assert answer.json()["detail"].endswith(f"kubectl does: kubectl exec -n team {pod} -- COMMAND")

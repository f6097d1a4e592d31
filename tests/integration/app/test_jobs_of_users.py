"""`voda up` as root: who asks at the socket is whose job runs, with the ids of the account."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.accounts import as_account, passable_folder
from tests.needs import needs
from tests.waiting import until_it_is
from voda.accounts import account_of
from voda.app.machine import MachineOptions
from voda.app.service import MachineService, running
from voda.concurrency import single_error

ANN, BOB = "games", "daemon"

pytestmark = needs(os.geteuid() == 0, "only root starts processes of other users")


@dataclass
class Up:
    service: MachineService
    path: Path

    async def ask(self, user: str, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
        """Return status and body of the answer to a process of this user."""
        sent = b"" if body is None else json.dumps(body).encode()
        return await asyncio.to_thread(self._ask, user, f"{method} {path}", sent, token)

    def _ask(self, user: str, line: str, body: bytes, token: str) -> tuple[int, Any]:
        head = f"{line} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        head += f"Authorization: Bearer {token}\r\n" if token else ""

        def exchange() -> str:
            with socket.socket(socket.AF_UNIX) as connected:
                connected.settimeout(20)
                connected.connect(str(self.path))
                connected.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                return b"".join(iter(lambda: connected.recv(65_536), b"")).decode()

        head_back, _, content = as_account(user, exchange).partition("\r\n\r\n")
        is_json = "json" in head_back
        return int(head_back.split()[1]), json.loads(content) if is_json and content else content

    async def until_phase(self, job_id: str, phase: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        async def reached() -> bool:
            nonlocal found
            _, found = await self.ask("root", "GET", f"/api/v1/jobs/{job_id}")
            return str(found["phase"]).lower() == phase

        await until_it_is(reached, within_s=60)
        return found


@asynccontextmanager
async def an_up(home: Path | None = None, port: int = 0) -> AsyncIterator[Up]:
    with passable_folder() as folder:
        options = MachineOptions(
            home=home or folder / "home",
            environment={"PATH": os.defpath, "AWS_SECRET_ACCESS_KEY": "leaks", "VODA_TOKEN": "leaks"},
            port=port,
            slots=4,
            is_multi_user=True,
            settings={"ratelimit_s": 0.0},
        )
        async with running(options) as service:
            assert service.socket is not None
            yield Up(service, service.socket)


def a_manifest(name: str, script: str) -> dict[str, Any]:
    container = {"name": "pytorch", "command": ["sh", "-c", script]}
    role = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"runPolicy": {"backoffLimit": 0}, "pytorchReplicaSpecs": {"Worker": role}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}


async def test_job_runs_as_who_submits_it_and_sees_nothing_of_vodas_environment() -> None:
    async with an_up() as up:
        status, _ = await up.ask(ANN, "POST", "/api/v1/jobs", a_manifest("mine", "id -un; env"))
        assert status == 201
        await up.until_phase("mine", "completed")
        status, printed = await up.ask(ANN, "GET", "/api/v1/jobs/mine/logs")
        account = account_of(ANN)
        assert account is not None
        assert (status, printed.splitlines()[0]) == (200, ANN)
        assert f"HOME={account.home}" in printed.splitlines()
        assert "leaks" not in printed
        assert (await up.ask(BOB, "GET", "/api/v1/jobs/mine/logs"))[0] == 403


async def test_job_that_hangs_while_it_is_canceled_is_ended_by_an_admin_and_its_slots_are_free() -> None:
    manifest = a_manifest("mine", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    role = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    role["template"]["spec"]["terminationGracePeriodSeconds"] = 1_000_000_000
    async with an_up() as up:
        status, made = await up.ask(ANN, "POST", "/api/v1/jobs", manifest)
        assert status == 201
        assert any("it is killed 600 s after it is told to end" in each["message"] for each in made["warnings"])
        await up.until_phase("mine", "running")
        assert (await up.ask(ANN, "DELETE", "/api/v1/jobs/mine"))[0] == 202
        for user in (ANN, BOB):
            assert (await up.ask(user, "DELETE", "/api/v1/jobs/mine?now=true"))[0] == 403
        assert (await up.ask("root", "DELETE", "/api/v1/jobs/mine?now=true"))[0] == 202

        async def is_gone() -> bool:
            _, pools = await up.ask("root", "GET", "/api/v1/pools")
            return all(pool["used_gpus"] == 0 for pool in pools["items"])

        await until_it_is(is_gone, within_s=10)
        assert (await up.until_phase("mine", "canceled"))["phase"] == "Canceled"


async def test_job_that_took_vodas_port_gets_no_report_and_keeps_nobody_from_their_voda() -> None:
    report = "from voda.report import flush, report; report(7); print(flush(30))"
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        impostor.setblocking(False)
        port = impostor.getsockname()[1]
        async with an_up(port=port) as up:
            assert up.service.url == f"unix://{up.path}"
            assert f"(process {os.getpid()}) listens there" in "".join(up.service.description())
            script = f"echo $VODA_API_URL; /usr/bin/python3 -c '{report}'"
            assert (await up.ask(ANN, "POST", "/api/v1/jobs", a_manifest("mine", script)))[0] == 201
            await up.until_phase("mine", "completed")
            _, reports = await up.ask(ANN, "GET", "/api/v1/jobs/mine/progress")
            assert [each["epochs_done"] for each in reports["items"]] == [7]
            _, printed = await up.ask(ANN, "GET", "/api/v1/jobs/mine/logs")
            assert printed.splitlines() == [f"unix://{up.path}", "True"]
            _, ready = await up.ask(BOB, "GET", "/readyz")
            assert f"warning: only the socket {up.path} is asked: 127.0.0.1, port {port}: " in ready
            with pytest.raises(BlockingIOError):
                impostor.accept()
            impostor.close()

            async def listens() -> bool:
                published = json.loads((up.path.parent / "server.json").read_text())["url"]
                return {up.service.url, published} == {f"http://127.0.0.1:{port}"}

            await until_it_is(listens)
            assert "warning" not in (await up.ask(BOB, "GET", "/readyz"))[1]


async def test_jobs_of_users_when_voda_comes_back_for_one_user_are_not_run_as_root() -> None:
    with passable_folder() as folder:
        home = folder / "home"
        async with an_up(home) as up:
            assert (await up.ask(ANN, "POST", "/api/v1/jobs", a_manifest("mine", "id -u; exec sleep 100")))[0] == 201
            await up.until_phase("mine", "running")
            assert (await up.ask(ANN, "POST", "/api/v1/jobs/mine/halt"))[0] == 200
        options = MachineOptions(home=home, environment={"PATH": os.defpath}, port=0, slots=4)
        with pytest.raises(ExceptionGroup) as refused:
            async with running(options):
                pass
        assert f"live jobs of other users ({ANN}) would run as root" in str(single_error(refused.value))
        async with an_up(home) as up:
            assert (await up.ask(ANN, "DELETE", "/api/v1/jobs/mine"))[0] in (200, 202)
            await up.until_phase("mine", "canceled")
        async with running(options):
            pass


async def test_job_of_an_owner_without_an_account_is_refused_with_what_to_do() -> None:
    async with an_up() as up:
        token = up.service.access.add("ghost", "user")
        for query in ("", "?dry_run=true"):
            status, problem = await up.ask(BOB, "POST", f"/api/v1/jobs{query}", a_manifest("a", "true"), token)
            assert status == 422
            assert "user 'ghost' has no account on this machine, and jobs here run as their users: make one" in str(
                problem
            )


async def test_token_that_a_job_forges_from_its_own_is_refused() -> None:
    script = 'echo "$VODA_JOB_TOKEN"; echo $VODA_JOB_ID'
    async with an_up() as up:
        for name, user in (("mine", ANN), ("theirs", BOB)):
            assert (await up.ask(user, "POST", "/api/v1/jobs", a_manifest(name, script)))[0] == 201
            await up.until_phase(name, "completed")
        _, printed = await up.ask(ANN, "GET", "/api/v1/jobs/mine/logs")
        own, job_id = printed.split()
        forged = own.replace(job_id, "theirs")
        assert forged != own
        status, _ = await up.ask(ANN, "POST", "/api/v1/jobs/theirs/progress", {"epochs_done": 1}, forged)
        assert status == 401


async def test_folder_of_an_ended_job_when_deleted_by_its_user_is_gone_with_vodas_records() -> None:
    async with an_up() as up:
        script = "cd $VODA_JOB_DIR; mkdir -m 0 closed; mkdir open; touch open/file; echo printed"
        assert (await up.ask(ANN, "POST", "/api/v1/jobs", a_manifest("mine", script)))[0] == 201
        await up.until_phase("mine", "completed")
        assert (await up.ask(BOB, "DELETE", "/api/v1/jobs/mine/folder"))[0] == 403

        async def deleted() -> bool:
            # 409 while its processes end.
            return (await up.ask(ANN, "DELETE", "/api/v1/jobs/mine/folder"))[0] == 200

        await until_it_is(deleted)
        assert _left(up.service.home.jobs) == [".records", ".records/.agent"]
        status, problem = await up.ask(ANN, "GET", "/api/v1/jobs/mine/logs")
        assert (status, f"by {ANN}" in problem["detail"]) == (410, True)
        assert [row["key"] for row in (await up.ask(ANN, "GET", "/api/v1/usage"))[1]["rows"]] == [ANN]


def _left(jobs: Path) -> list[str]:
    """Return the folders of jobs that are left, voda's records of them too."""
    found = [*jobs.iterdir(), *(jobs / ".records").iterdir()]
    return sorted(str(path.relative_to(jobs)) for path in found if path.name not in {".leaders", ".python"})

"""`voda up` as root on a machine with several users: real processes of real accounts."""

import http.client
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.served import Served, command, environment, manifest, start
from tests.accounts import as_account, passable_folder
from tests.waiting import wait_until
from voda.client import Client, NotAllowed

pytestmark = pytest.mark.slow
WAIT_S = 60.0
PRIVATE = ("voda.db", "voda.db-wal", "voda.db-shm", "admin.token", "secret", "tokens.json", "lock", "log.place")


class SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=WAIT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(str(self._path))


class Machine:
    """A voda of root and its users."""

    def __init__(self, home: Path, served: Served) -> None:
        self.home = home
        self.served = served

    def ask(self, account: str, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Return status and body of the answer to a user at the socket."""
        content = None if body is None else json.dumps(body)

        def ask() -> str:
            connection = SocketConnection(self.home / "voda.sock")
            connection.request(method, path, content, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return json.dumps([answer.status, answer.read().decode()])

        status, said = json.loads(as_account(account, ask))
        return status, json.loads(said) if said.startswith(("{", "[")) else said

    def voda(self, *arguments: str) -> str:
        """Return what a command of root prints."""
        ended = subprocess.run(
            command(*arguments), env=environment(self.home), capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A running voda in a folder that all users reach."""
    with passable_folder() as folder:
        served = start(folder, "--port", "0", "--ratelimit", "0", "--slots", "2", "--halt-on-exit")
        made = Machine(folder, served)
        try:
            yield made
        finally:
            made.served.stop()


def outcome(path: Path) -> str:
    """Return what comes of opening a file, or of listing a folder."""
    try:
        return str(os.listdir(path)) if path.is_dir() else repr(path.read_bytes()[:40])
    except PermissionError:
        return "refused"
    except FileNotFoundError:
        return "not there"


def test_users_read_nothing_of_voda_in_its_folder(machine: Machine) -> None:
    home = machine.home
    machine.voda("token", "create", "ada")
    machine.voda("log", "copy", str(home / "voda.db"), str(home / "backup"))
    segments = sorted((home / "backup").iterdir())
    assert segments
    paths = [
        home,
        home / "jobs",
        *(home / name for name in PRIVATE),
        home / "backup",
        *segments,
    ]
    assert all(path.exists() for path in paths), paths
    for name in ("daemon", "nobody"):
        read = as_account(name, lambda: json.dumps({str(path): outcome(path) for path in paths}))
        assert set(json.loads(read).values()) == {"refused"}, read
    # Where voda is, everybody may know.
    assert machine.served.url.encode() in as_account("nobody", lambda: outcome(home / "server.json")).encode()


def test_user_cannot_cancel_or_read_the_job_of_another_nor_report_for_it(machine: Machine) -> None:
    body = manifest("mine", "sleep 600")
    status, made = machine.ask("daemon", "POST", "/api/v1/jobs", body)
    assert (status, made["job"]["user"]) == (201, "daemon")
    for method, path in (
        ("DELETE", "/api/v1/jobs/mine"),
        ("GET", "/api/v1/jobs/mine/logs"),
        ("GET", "/api/v1/jobs/mine/manifest"),
    ):
        assert machine.ask("nobody", method, path)[0] == 403, path
    for token in ("vjob_mine.", "vjob_mine." + "0" * 64, "vjob_."):
        forged = {"Authorization": f"Bearer {token}"}
        status, problem = machine.ask("nobody", "POST", "/api/v1/jobs/mine/progress", {"epochs_done": 9}, **forged)
        assert (status, problem["detail"][:25]) == (401, "this job token is unknown")
    assert machine.ask("nobody", "POST", "/api/v1/jobs/mine/progress", {"epochs_done": 9})[0] == 403
    assert machine.ask("nobody", "PATCH", "/api/v1/pools/default/settings", {"ratelimit_s": 9})[0] == 403
    assert machine.ask("daemon", "DELETE", "/api/v1/jobs/mine")[0] in (200, 202)


def test_job_runs_as_its_user_and_reaches_neither_token_nor_log_nor_the_rights_of_others(machine: Machine) -> None:
    tries = f"id -un; for file in admin.token voda.db secret; do cat {machine.home}/$file || echo $file is shut; done"
    token = f'printf "%s" "$VODA_JOB_TOKEN" | head -c 11; echo; touch {machine.home}/mine || echo nothing is made'
    assert machine.ask("daemon", "POST", "/api/v1/jobs", manifest("tries", f"{tries}; {token}"))[0] == 201
    wait_until(
        lambda: machine.ask("daemon", "GET", "/api/v1/jobs/tries")[1]["phase"] == "Completed", lambda: "the job to end"
    )
    _, printed = machine.ask("daemon", "GET", "/api/v1/jobs/tries/logs")
    lines = [line for line in str(printed).splitlines() if "Permission denied" not in line]
    shut = ["admin.token is shut", "voda.db is shut", "secret is shut"]
    assert lines == ["daemon", *shut, "vjob_tries.", "nothing is made"], printed


def test_command_beside_a_job_runs_as_the_jobs_user_and_for_nobody_else(machine: Machine) -> None:
    assert machine.ask("daemon", "POST", "/api/v1/jobs", manifest("mine", "sleep 600"))[0] == 201
    wait_until(
        lambda: machine.ask("daemon", "GET", "/api/v1/jobs/mine")[1]["phase"] == "Running", lambda: "the job to run"
    )
    socket_url = f"unix://{machine.home}/voda.sock"
    who = ["sh", "-c", f"id -un; pwd; cat {machine.home}/admin.token || echo shut"]

    def run() -> str:
        result = Client(socket_url).exec("mine", who)
        return f"{result.status}\n{result.stdout.decode()}"

    def refused() -> str:
        with pytest.raises(NotAllowed, match="belongs to daemon: only they and admins may run commands beside it"):
            Client(socket_url).exec("mine", who)
        return "refused"

    expected = ["0", "daemon", str(machine.home / "jobs" / "mine"), "shut"]
    assert as_account("daemon", run).splitlines() == expected
    # Root runs it as the job's user too.
    assert run().splitlines() == expected
    assert as_account("nobody", refused) == "refused"


def test_command_line_of_root_asks_at_the_socket_and_says_so(machine: Machine) -> None:
    assert machine.voda("whoami").splitlines()[:3] == [
        "user    root",
        "role    admin",
        "known   by the account of this process (socket)",
    ]
    said = (machine.home / "up.log").read_text()
    assert f"multi-user: jobs run as their users, who ask without a token at {machine.home}/voda.sock" in said


def test_root_who_deletes_the_job_of_a_user_by_its_bare_name_is_told_whose_it_is(machine: Machine) -> None:
    assert machine.ask("daemon", "POST", "/api/v1/jobs", manifest("mine", "sleep 600"))[0] == 201
    refused = subprocess.run(
        command("delete", "mine"),
        env=environment(machine.home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "voda: job mine is daemon's, and you have none of that name: to delete it, name it daemon/mine or @mine,"
        " or give --yes\n"
    )
    assert machine.voda("delete", "daemon/mine") == "mine is being canceled\n"
    wait_until(
        lambda: machine.ask("daemon", "GET", "/api/v1/jobs/mine")[1]["phase"] == "Canceled", lambda: "the job to end"
    )
    # A name means one's own job first: that of daemon, though nobody's is live.
    assert machine.ask("nobody", "POST", "/api/v1/jobs", manifest("mine", "sleep 600"))[1]["job"]["job_id"] == "mine-2"
    owned = [machine.ask(user, "GET", "/api/v1/jobs/mine")[1]["job_id"] for user in ("daemon", "nobody")]
    assert owned == ["mine", "mine-2"]


def test_socket_of_a_killed_voda_is_taken_over_by_the_next(machine: Machine) -> None:
    os.kill(machine.served.pid, signal.SIGKILL)
    machine.served.process.wait(30)
    assert (machine.home / "voda.sock").is_socket()
    machine.served = start(machine.home, "--port", "0", "--halt-on-exit", "--slots", "2")
    assert machine.ask("daemon", "GET", "/api/v1/whoami")[1]["user"] == "daemon"


def test_voda_of_a_single_user_has_no_socket_and_says_what_that_means(tmp_path: Path) -> None:
    served = start(tmp_path, "--port", "0", "--single-user", "--slots", "1")
    try:
        said = (tmp_path / "up.log").read_text()
        assert (
            "single-user: all jobs run as root, with an admin's rights; started without --single-user, voda keeps"
            " users apart" in said
        )
        assert not (tmp_path / "voda.sock").exists()
        root = {"user": "root", "role": "admin", "job_id": "", "found_by": "token", "warning": ""}
        assert served.get("/api/v1/whoami") == root
        served.ask("POST", "/api/v1/jobs", manifest("mine", "true"))
        assert served.get("/api/v1/jobs/mine")["user"] == "root"
        assert tmp_path.stat().st_mode & 0o077 == 0
    finally:
        served.stop()

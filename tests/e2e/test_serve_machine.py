"""`voda serve --cluster machine`: replicas on one machine, one folder and one log, as processes of their own."""

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.served import manifest
from tests.postgres import Server as PostgresServer
from tests.served_process import ServedProcess

pytestmark = pytest.mark.slow

WAIT_S = 120.0
COUNTING = """
cd "$VODA_JOB_DIR"; n=$(cat count 2>/dev/null || echo 0)
echo "started at $n" >> starts
while [ ! -e enough ]; do sleep 0.1; n=$((n + 1)); echo $n > count; done
"""


class Replicas:
    """Replicas on one folder; nothing outlives the test."""

    def __init__(self, folder: Path, log: str) -> None:
        self.folder = folder
        self.log = log
        self.all: list[ServedProcess] = []

    def start(self) -> ServedProcess:
        options = ["--home", str(self.folder), "--port", "0", "--slots", "2", "--verbose"]
        options += ["--log", self.log] if self.log else []
        said = self.folder.parent / f"said.{len(self.all)}"
        made = ServedProcess(said, ["serve", "--cluster", "machine", *options])
        self.all.append(made)
        until(lambda: made.url or made.is_over(), "the replica to serve")
        assert made.url, made.text
        return made

    def leader(self) -> ServedProcess:
        return next(each for each in self.all if not each.is_over() and each.leads)

    def until_led(self) -> ServedProcess:
        until(lambda: any(each.leads and not each.is_over() for each in self.all), "a replica to lead")
        return self.leader()

    def ask(self, of: ServedProcess, method: str, path: str, body: object = None) -> Any:
        return self.answer(of, method, path, body)[0]

    def answer(self, of: ServedProcess, method: str, path: str, body: object = None) -> tuple[Any, int]:
        """Return what is answered, and the position of the log that it shows."""
        token = (self.folder / "admin.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(of.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null"), int(answer.headers["Voda-Position"])

    def phase(self, of: ServedProcess, job_id: str) -> str:
        return str(self.ask(of, "GET", f"/api/v1/jobs/{job_id}")["phase"])

    def end(self) -> None:
        for job in (self.folder / "jobs").glob("*"):
            (job / "enough").touch()
        living = [each for each in self.all if not each.is_over()]
        for each in living:
            each.terminate()
        for each in living:
            os.kill(each.process.pid, signal.SIGCONT)
            each.process.wait(WAIT_S)


@pytest.fixture(params=["", pytest.param("postgres", marks=pytest.mark.postgres)], ids=["sqlite", "postgres"])
def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replicas]:
    log = ""
    if request.param:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        log = server.create_database()
        migrated = ServedProcess(tmp_path / "migrated", ["log", "migrate", log])
        assert migrated.process.wait(WAIT_S) == 0, migrated.text
    made = Replicas(tmp_path / "home", log)
    yield made
    made.end()


def until(is_so: Callable[[], Any], what: str) -> None:
    deadline = time.perf_counter() + WAIT_S
    while not is_so():
        assert time.perf_counter() < deadline, f"waited {WAIT_S:.0f} s for {what}"
        time.sleep(0.05)


def starts(replicas: Replicas, job_id: str) -> Sequence[str]:
    return (replicas.folder / "jobs" / job_id / "starts").read_text().splitlines()


def test_job_when_the_leader_is_killed_trains_on_under_the_next(replicas: Replicas) -> None:
    first = replicas.start()
    assert replicas.until_led() is first
    second = replicas.start()
    # Otherwise every plan is half a minute apart from the next.
    replicas.ask(second, "PATCH", "/api/v1/pools/default/settings", {"ratelimit_s": 0.0})
    # A follower takes intent; the leader acts on it, and the follower shows it.
    replicas.ask(second, "POST", "/api/v1/jobs", manifest("a", COUNTING))
    count = replicas.folder / "jobs" / "a" / "count"
    until(count.exists, "the job to count")
    until(lambda: replicas.phase(second, "a") == "Running", "the follower to see it run")
    first.kill()
    until(lambda: second.leads, "the follower to lead")
    replicas.ask(second, "POST", "/api/v1/jobs", manifest("b", "exit 0"))
    until(lambda: replicas.phase(second, "b") == "Completed", "a job of the new leader to end")
    (count.parent / "enough").touch()
    until(lambda: replicas.phase(second, "a") == "Completed", "the job of the former leader to end")
    assert starts(replicas, "a") == ["started at 0"]


def test_leader_that_is_told_to_end_hands_over_and_ends_well(replicas: Replicas) -> None:
    first, second = replicas.start(), replicas.start()
    leader = replicas.until_led()
    other = second if leader is first else first
    leader.terminate()
    until(lambda: other.leads, "the other one to lead")
    assert leader.process.wait(WAIT_S) == 0


def test_replica_of_another_folder_is_refused_the_log(replicas: Replicas, tmp_path: Path) -> None:
    replicas.start()
    replicas.until_led()
    log = replicas.log or str(replicas.folder / "voda.db")
    stranger = Replicas(tmp_path / "elsewhere", log)
    replicas.leader().terminate()
    made = ServedProcess(
        tmp_path / "stranger",
        ["serve", "--cluster", "machine", "--home", str(stranger.folder), "--port", "0", "--log", log],
    )
    assert made.process.wait(WAIT_S) != 0
    assert "the log belongs to another cluster" in made.text


def test_what_one_replica_acknowledged_another_one_shows(replicas: Replicas) -> None:
    first, second = replicas.start(), replicas.start()
    replicas.until_led()
    for number in range(10):
        _, position = replicas.answer(first, "POST", "/api/v1/jobs", manifest(f"job-{number}", "exit 0"))
        seen = replicas.ask(second, "GET", f"/api/v1/jobs/job-{number}?after={position}")
        assert seen["job_id"] == f"job-{number}"

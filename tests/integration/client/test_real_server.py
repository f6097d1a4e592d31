"""The Python client against a real `voda up`, as a user's program or notebook uses it."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.served import Served, start
from tests.ports import free_port
from tests.waiting import DEADLINE_S
from voda.client import AsyncClient, Client, NotAllowed, Program, ServerUnreachable, WrongState

pytestmark = pytest.mark.slow
TRAIN = """
import os, sys, time
print("seed", os.environ["SEED"], "in", os.getcwd(), flush=True)
for epoch in range(40):
    time.sleep(0.05)
    print("epoch", epoch, flush=True)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a voda that a program finds by itself, and the folder of a training program beside it."""
    for variable in ("VODA_SERVER", "VODA_TOKEN", "VODA_CA"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(TRAIN)
    monkeypatch.setenv("VODA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def up(home: Path, port: int) -> Served:
    return start(home, "--port", str(port), "--ratelimit", "0", "--slots", "2", "--halt-on-exit")


@pytest.fixture
def port(home: Path) -> Iterator[int]:
    """The port of a voda that runs, and may be started again."""
    port = free_port()
    served = up(home, port)
    yield port
    served.stop()


def test_program_is_submitted_followed_and_done(home: Path, port: int) -> None:
    client = Client()
    job = client.submit(Program(["python", "train.py"], env={"SEED": 7}, time="10m")).job
    lines = list(client.logs(job, follow=True))
    assert lines == [f"seed 7 in {Path.cwd()}", *(f"epoch {number}" for number in range(40))]
    done = client.wait(job, for_="completed", timeout_s=DEADLINE_S)
    assert (done.name, done.has_completed, done.started_at is not None) == ("train", True, True)
    assert client.whoami().role == "admin"
    with pytest.raises(NotAllowed):
        Client(client.server, token="wrong").list()


async def test_jobs_are_watched_from_asyncio_side_by_side(home: Path, port: int) -> None:
    client = AsyncClient()
    jobs = [(await client.submit(Program(["python", "train.py"], env={"SEED": seed}))).job for seed in (1, 2)]
    assert [job.name for job in jobs] == ["train", "train-2"]
    ends: list[str] = []

    async def watch() -> None:
        async for event in client.events(types=["job.completed"], after=0):
            ends.append(str(event.data["job_id"]))
            if len(ends) == len(jobs):
                return

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        group.create_task(watch())
        waits = [group.create_task(client.wait(job)) for job in jobs]
    assert sorted(ends) == sorted(job.job_id for job in jobs)
    assert all(wait.result().has_completed for wait in waits)


def test_server_when_it_restarts_is_waited_for(home: Path) -> None:
    port = free_port()
    served = up(home, port)
    client, impatient = Client(retry_s=DEADLINE_S), Client(retry_s=0)
    job = client.submit(Program(["sleep", "600"], name="long")).job
    client.wait(job, for_="running", timeout_s=DEADLINE_S)
    seen: list[str] = []

    def watch() -> None:
        for event in client.events(job=job, after=0):
            seen.append(event.type)
            if event.type == "job.canceled":
                return

    watching = threading.Thread(target=watch)
    watching.start()
    served.stop()
    with pytest.raises(ServerUnreachable):
        impatient.list()
    served = up(home, port)
    try:
        assert client.cancel(job).job_id == job.job_id
        with pytest.raises(WrongState, match="has ended"):
            client.wait(job, for_="completed", timeout_s=DEADLINE_S)
        watching.join(DEADLINE_S)
        assert (seen[0], seen[-1], seen.count("job.submitted")) == ("job.submitted", "job.canceled", 1)
    finally:
        served.stop()

"""`voda up` as a user runs it: a process of its own, real training processes, real kills."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from benchmarks.served import Served, command, environment, manifest, start
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WAIT_S = 120.0
# Counts to a number, a line each; goes on where it was when it is started again.
COUNTING = """
cd "$VODA_JOB_DIR"; n=$(cat count 2>/dev/null || echo 0)
echo "started at $n" >> starts
while [ "$n" -lt {most} ]; do sleep 0.1; n=$((n + 1)); echo $n > count.new; mv count.new count; done
"""


class Home:
    """A folder and whatever voda runs on it; nothing outlives the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Of its own, and not any that is free: a restart keeps it, as with the default one, for jobs report to it.
        self.port = str(free_port())
        self._running: list[Served] = []
        self._options: tuple[str, ...] = ()

    def up(self, *options: str) -> Served:
        self._options = options
        served = start(self.folder, "--port", self.port, "--ratelimit", "0", "--slots", "2", *options)
        self._running.append(served)
        return served

    def voda(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command(*arguments),
            env=environment(self.folder),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def end(self) -> None:
        if not self._running:
            return
        self._running[-1].kill()
        start(self.folder, "--port", self.port, *self._options, "--halt-on-exit").stop()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.end()


def submit(served: Served, name: str, script: str, **sizes: int) -> None:
    served.ask("POST", "/api/v1/jobs", manifest(name, script, **sizes))


def phase(served: Served, job_id: str) -> str:
    return str(served.get(f"/api/v1/jobs/{job_id}")["phase"])


def types(home: Home, job_id: str) -> list[str]:
    with sqlite3.connect(home.folder / "voda.db") as log:
        rows = log.execute("SELECT type FROM events WHERE stream = ? ORDER BY position", (f"job.{job_id}",))
        return [row[0] for row in rows]


def until_told(home: Home, job_id: str, *expected: str) -> None:
    """Wait until the log has these events of a job and no others: its worker's exit follows its end in a moment."""
    wait_until(lambda: types(home, job_id) == list(expected), lambda: f"{expected} of {job_id}")


def test_job_when_submitted_runs_to_its_end(home: Home) -> None:
    served = home.up()
    submit(served, "hello", "echo hello from $VODA_JOB_ID")
    wait_until(lambda: phase(served, "hello") == "Completed", lambda: "the job to complete")
    logs = served.ask("GET", "/api/v1/jobs/hello/logs")
    assert b"hello from hello" in logs
    until_told(home, "hello", "job.submitted", "worker.started", "job.completed", "worker.exited")


def test_job_when_voda_is_killed_goes_on_and_is_taken_over(home: Home) -> None:
    served = home.up()
    submit(served, "long", COUNTING.format(most=60))
    count = home.folder / "jobs" / "long" / "count"
    wait_until(lambda: count.exists(), lambda: "the job to count")
    served.kill()
    seen = int(count.read_text())
    wait_until(lambda: int(count.read_text() or seen) > seen + 3, lambda: "the job to go on without voda")
    served = home.up()
    wait_until(lambda: phase(served, "long") == "Completed", lambda: "the job to complete")
    assert (home.folder / "jobs" / "long" / "starts").read_text() == "started at 0\n"
    until_told(home, "long", "job.submitted", "worker.started", "job.completed", "worker.exited")


def test_job_when_it_ends_while_voda_is_dead_is_known_to_have_ended(home: Home) -> None:
    served = home.up()
    submit(served, "short", "sleep 1; echo done > $VODA_JOB_DIR/done")
    submit(served, "broken", "sleep 1; exit 3")
    wait_until(lambda: phase(served, "short") == phase(served, "broken") == "Running", lambda: "both jobs to start")
    served.kill()
    wait_until((home.folder / "jobs" / "short" / "done").exists, lambda: "the job to end")
    served = home.up()
    wait_until(lambda: phase(served, "short") == "Completed", lambda: "the end to be known")
    assert types(home, "short").count("worker.started") == 1


def test_halted_job_when_voda_starts_again_resumes_from_its_folder(home: Home) -> None:
    served = home.up("--halt-on-exit")
    submit(served, "halted", COUNTING.format(most=40))
    count = home.folder / "jobs" / "halted" / "count"
    wait_until(lambda: count.exists() and int(count.read_text() or 0) > 3, lambda: "the job to count")
    served.stop()
    stood_at = int(count.read_text())
    served = home.up()
    wait_until(lambda: phase(served, "halted") == "Completed", lambda: "the job to complete")
    starts = (home.folder / "jobs" / "halted" / "starts").read_text().splitlines()
    assert len(starts) == 2
    assert int(starts[1].removeprefix("started at ")) >= stood_at > 0


def test_second_voda_when_the_folder_is_in_use_refuses_in_one_sentence(home: Home) -> None:
    served = home.up()
    refused = home.voda("up", "--port", "0")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"voda: a voda (process {served.pid}) works on {home.folder} already")
    assert refused.stderr.count("\n") == 1


def test_submit_when_voda_is_killed_in_the_middle_gives_one_job_to_the_retry(home: Home) -> None:
    served = home.up()
    body = manifest("once", "true", least=3, most=3)
    for attempt in range(3):
        # Killed at another moment each time: before the append, around it, after it.
        killer = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.00{attempt * 2}; kill -9 {served.pid}"])
        with contextlib.suppress(OSError):
            served.ask("POST", "/api/v1/jobs", body, **{"Idempotency-Key": "the-same"})
        killer.wait(timeout=WAIT_S)
        served.process.wait(timeout=WAIT_S)
        served = home.up()
    answer = served.ask("POST", "/api/v1/jobs", body, **{"Idempotency-Key": "the-same"})
    assert answer["job"]["job_id"] == "once"
    assert [job["job_id"] for job in served.get("/api/v1/jobs")["items"]] == ["once"]
    assert types(home, "once").count("job.submitted") == 1


def test_voda_when_told_to_end_leaves_the_jobs_at_work(home: Home) -> None:
    served = home.up()
    submit(served, "stays", COUNTING.format(most=50))
    count = home.folder / "jobs" / "stays" / "count"
    wait_until(lambda: count.exists(), lambda: "the job to count")
    served.stop()
    assert served.process.returncode == 0
    assert "the next `voda up` takes them over" in (home.folder / "up.log").read_text()
    seen = int(count.read_text())
    wait_until(lambda: int(count.read_text() or seen) > seen, lambda: "the job to go on")


def test_ends_of_jobs_when_a_job_cannot_start_name_the_command(home: Home) -> None:
    served = home.up()
    body = manifest("nowhere", "")
    body["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"] = ["/no/such/program"]
    body["spec"]["runPolicy"] = {"backoffLimit": 0}
    served.ask("POST", "/api/v1/jobs", body)
    wait_until(lambda: phase(served, "nowhere") == "Failed", lambda: "the job to fail")
    assert "/no/such/program" in served.get("/api/v1/jobs/nowhere")["message"]


def test_log_when_jobs_came_and_went_verifies(home: Home) -> None:
    served = home.up()
    for number in range(3):
        submit(served, f"job-{number}", COUNTING.format(most=5), least=1, most=2)
    wait_until(lambda: all(phase(served, f"job-{n}") == "Completed" for n in range(3)), lambda: "the jobs to complete")
    served.stop()
    verified = home.voda("replay", str(home.folder / "voda.db"), "--verify", "-o", "json")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_answer_when_the_token_is_foreign_is_refused(home: Home) -> None:
    served = home.up()
    with pytest.raises(HTTPError) as refused:
        served.ask("GET", "/api/v1/jobs", Authorization="Bearer voda_foreign")
    assert refused.value.code == 401
    assert json.loads(refused.value.read())["status"] == 401
    private = ["admin.token", "secret", "voda.db", "voda.db-wal"]
    assert {name: oct((home.folder / name).stat().st_mode & 0o777) for name in private} == dict.fromkeys(
        private, "0o600"
    )


def test_voda_when_asked_to_listen_to_the_network_without_tokens_refuses(home: Home) -> None:
    refused = home.voda("up", "--host", "0.0.0.0", "--no-tokens", "--port", "0")
    assert refused.returncode == 2
    assert "--open-to-everybody" in refused.stderr


def test_training_process_when_voda_dies_keeps_no_lock_of_it(home: Home) -> None:
    served = home.up()
    submit(served, "keeper", "sleep 60")
    wait_until(lambda: phase(served, "keeper") == "Running", lambda: "the job to start")
    os.kill(served.pid, signal.SIGKILL)
    served.process.wait(timeout=WAIT_S)
    served = home.up()
    served.ask("DELETE", "/api/v1/jobs/keeper")
    wait_until(lambda: phase(served, "keeper") == "Canceled", lambda: "the job to be canceled")


@pytest.mark.postgres
def test_log_when_kept_in_postgres_serves_as_well(home: Home, postgres_database: str) -> None:
    migrated = home.voda("log", "migrate", postgres_database)
    assert migrated.returncode == 0, migrated.stderr
    served = home.up("--log", postgres_database)
    submit(served, "hello", "echo hello")
    wait_until(lambda: phase(served, "hello") == "Completed", lambda: "the job to complete")
    assert not (home.folder / "voda.db").exists()
    served.stop()


def test_program_when_submitted_without_a_manifest_runs_with_the_words_as_they_were_given(home: Home) -> None:
    served = home.up()
    script = home.folder / "fit.py"
    script.write_text("import os, sys\nprint(sys.argv[1:], os.environ['X'], os.getcwd(), flush=True)\n")
    words = ["--lr", "$(HOME)", "a\nb", "é", "no"]
    options = ["--workdir", str(home.folder), "--env", 'X=$(HOME) "x"', "--time", "5m", "-w"]
    told = home.voda("submit", *options, "--", "python", "fit.py", *words)
    assert told.returncode == 0, told.stderr
    assert "runs fit.py" not in told.stderr
    assert home.voda("logs", "fit").stdout == f'{words} $(HOME) "x" {home.folder}\n'
    assert served.get("/api/v1/jobs/fit")["phase"] == "Completed"


def test_program_when_its_folder_is_not_there_is_refused_and_fails_where_it_went_since(home: Home) -> None:
    served = home.up()
    gone = home.folder / "gone"
    words = ["--workdir", str(gone), "--", "sh", "-c", "pwd"]
    refused = home.voda("submit", *words)
    assert refused.returncode == 2
    assert f"it would begin in {gone}, which is no folder that the user who runs this voda" in refused.stderr
    assert served.get("/api/v1/jobs")["total"] == 0
    gone.mkdir()
    blocker = home.voda("submit", "--name", "first", "--", "sleep", "60")
    assert blocker.returncode == 0, blocker.stderr
    held = home.voda("submit", "--name", "second", "--after", "first:any", *words)
    assert held.returncode == 0, held.stderr
    gone.rmdir()
    home.voda("delete", "first")
    wait_until(lambda: phase(served, "second") == "Failed", lambda: "the job to fail")
    assert f"working directory {gone}: not found" in home.voda("describe", "second").stdout


def test_program_when_it_imports_mpi_is_started_on_all_its_workers(home: Home) -> None:
    home.up()
    script = home.folder / "ranks.py"
    script.write_text("from mpi4py import MPI\nprint(f'of {MPI.COMM_WORLD.size}', flush=True)\n")
    told = home.voda("submit", "--workers", "1-2", "-w", "--", "python", str(script))
    assert told.returncode == 0, told.stderr
    assert "with mpirun, because it imports mpi4py" in told.stderr
    assert home.voda("logs", "ranks").stdout.count("of 2") == 2

"""What runs is what was submitted; an ended job goes on where it was, with its program as it is then."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.served import Served, command, environment, start
from tests.accounts import as_account, passable_folder
from tests.needs import needs
from tests.waiting import wait_until
from voda.client import Client, Program
from voda.programs.kept_code import MOST_KEPT

pytestmark = pytest.mark.slow
WAIT_S = 120.0
SCRIPT = """
import os, pathlib, time
import said
count = pathlib.Path(os.environ["VODA_JOB_DIR"], "count")
begins = int(count.read_text()) if count.exists() else 0
print(said.WORD, "from", begins, "in", os.getcwd(), flush=True)
count.write_text(str(begins + 1))
while not os.path.exists("go"): time.sleep(0.05)
raise SystemExit(said.CODE)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program that fails."""
    made = tmp_path / "work"
    made.mkdir()
    (made / "train.py").write_text(SCRIPT)
    (made / "said.py").write_text("WORD, CODE = 'first', 3\n")
    return made


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A voda of one user."""
    home = tmp_path / "home"
    home.mkdir()
    running = start(home, "--port", "0", "--ratelimit", "0", "--slots", "2", "--single-user", "--halt-on-exit")
    yield running
    running.stop()


def voda(served: Served, folder: Path, *words: str, code: int = 0) -> str:
    """Return what a command prints that is called in a folder."""
    done = subprocess.run(
        command(*words),
        env=environment(served.home),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def phase(served: Served, job_id: str) -> str:
    return str(served.get(f"/api/v1/jobs/{job_id}")["phase"])


def until(served: Served, job_id: str, wanted: str) -> None:
    wait_until(lambda: phase(served, job_id) == wanted, lambda: f"{job_id} is {wanted}")


def until_printed(served: Served, folder: Path, job_id: str, text: str) -> None:
    wait_until(lambda: text in voda(served, folder, "logs", job_id), lambda: f"{job_id} prints {text}")


def test_program_that_is_changed_before_it_starts_again_runs_as_it_was_submitted(served: Served, folder: Path) -> None:
    first = ["--retries", "0", "--", "python3", "train.py"]
    voda(served, folder, "submit", "--name", "kept", *first)
    voda(served, folder, "submit", "--name", "live", "--live", *first)
    for job_id in ("kept", "live"):
        until_printed(served, folder, job_id, "from 0")
        voda(served, folder, "halt", job_id)
        until(served, job_id, "Waiting")
    (folder / "said.py").write_text("WORD, CODE = 'second', 0\n")
    (folder / "go").write_text("")
    for job_id in ("kept", "live"):
        voda(served, folder, "resume", job_id)
    until(served, "kept", "Failed")
    until(served, "live", "Completed")
    assert f"first from 1 in {folder}" in voda(served, folder, "logs", "kept")
    assert f"second from 1 in {folder}" in voda(served, folder, "logs", "live")


def test_job_that_failed_goes_on_in_its_folder_with_the_program_as_it_is_now(served: Served, folder: Path) -> None:
    (folder / "go").write_text("")
    voda(served, folder, "submit", "--retries", "0", "--", "python3", "train.py")
    until(served, "train", "Failed")
    assert "voda rerun --continue train" in voda(served, folder, "describe", "train")
    (folder / "said.py").write_text("WORD, CODE = 'second', 3\n")
    assert "train-2 submitted: goes on in the folder of train" in voda(served, folder, "rerun", "--continue", "train")
    until(served, "train-2", "Failed")
    assert f"second from 1 in {folder}" in voda(served, folder, "logs", "@train-2")
    (folder / "said.py").write_text("WORD, CODE = 'third', 0\n")
    with Client(home=served.home) as client:
        os.chdir(folder)
        third = client.rerun("train-2", goes_on=True).job
        assert (third.job_id, third.continues) == ("train-3", "train")
    until(served, "train-3", "Completed")
    assert "third from 2" in voda(served, folder, "logs", "@train-3")
    voda(served, folder, "rerun", "@train")
    until(served, "train-4", "Failed")
    assert "first from 0" in voda(served, folder, "logs", "@train-4")


def test_code_beyond_the_bound_goes_the_oldest_first(served: Served, folder: Path) -> None:
    store = served.home / "code"
    for number in range(MOST_KEPT + 2):
        (store / f"old-{number}").mkdir(parents=True)
        (store / f"old-{number}" / ".kept").write_text('{"folder":"/","files":[]}')
        os.utime(store / f"old-{number}", (number, number))
    voda(served, folder, "submit", "--retries", "0", "--", "python3", "train.py")
    assert len(list(store.iterdir())) == MOST_KEPT
    assert not (store / "old-2").exists()
    assert (store / "old-3").exists()


def test_job_that_cannot_go_on_is_refused_with_the_reason(served: Served, folder: Path) -> None:
    voda(served, folder, "submit", "--retries", "0", "--", "python3", "train.py")
    until(served, "train", "Running")
    assert "job train is live" in voda(served, folder, "rerun", "--continue", "train", code=2)
    (folder / "go").write_text("")
    until(served, "train", "Failed")
    (folder / "go").unlink()
    voda(served, folder, "rerun", "--continue", "train")
    said = voda(served, folder, "prune", "--older-than", "0s", "--yes")
    assert "train" not in said
    assert (served.home / "jobs" / "train" / "count").exists()
    (folder / "go").write_text("")
    until(served, "train-2", "Failed")
    wait_until(lambda: "deleted 2" in voda(served, folder, "prune", "--older-than", "0s", "--yes"), lambda: "deleted")
    refused = voda(served, folder, "rerun", "--continue", "@train-2", code=2)
    assert "the folder of job train was deleted by " in refused
    assert "nothing is left to go on from" in refused


@needs(os.geteuid() == 0, "only root starts processes of other users")
def test_code_of_a_user_of_the_machine_is_kept_by_them_and_root_goes_on_with_it_as_it_is() -> None:
    with passable_folder() as place:
        running = start(place, "--port", "0", "--ratelimit", "0", "--slots", "2", "--halt-on-exit")
        try:
            _keeps_for_its_user(running, place / "ada")
        finally:
            running.stop()


def _keeps_for_its_user(running: Served, home: Path) -> None:
    work = home / "work"
    work.mkdir(parents=True)
    for name, text in (("train.py", SCRIPT), ("said.py", "WORD, CODE = 'hers', 3\n"), ("go", "")):
        (work / name).write_text(text)
    as_root = Client(f"unix://{running.home}/voda.sock")
    for path in (home, work, *work.iterdir()):
        os.chown(path, 1, 1)
    work.chmod(0o700)

    def submit() -> str:
        os.environ["VODA_HOME"] = str(home)  # noqa: TID251 - of a process of its own
        os.chdir(work)
        program = Program(["/usr/bin/python3", "train.py"], name="hers", retries=0)
        with Client(f"unix://{running.home}/voda.sock") as client:
            job = client.submit(program).job
            return f"{client.wait(job, for_='failed').job_id} {job.kept_script}"

    job_id, kept = as_account("daemon", submit).split()
    assert Path(kept).is_relative_to(home / "code")
    assert {path.lstat().st_uid for path in (home / "code").rglob("*")} == {1}
    assert "hers from 0" in "\n".join(as_root.logs(job_id))
    (work / "said.py").write_text("WORD, CODE = 'now', 0\n")
    again = as_root.rerun(job_id, goes_on=True).job
    assert (again.user, again.kept_script) == ("daemon", "")
    as_root.wait(again)
    assert "now from 1" in "\n".join(as_root.logs(again))
    as_root.close()

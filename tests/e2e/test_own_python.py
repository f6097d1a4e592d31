"""`voda submit -- python train.py` by somebody whose PyTorch is in a venv of their own: it runs with that, as them."""

import os
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.served import Served, command, environment, start
from tests.accounts import as_account, passable_folder
from tests.needs import TORCH_VENV, needs, needs_torch_venv
from voda.cli import build_app

pytestmark = pytest.mark.slow
WAIT_S = 240.0
PLAIN = """\
import sys
import {library}
import voda.callbacks.keras
from voda.report import report
report(1)
print("plain", sys.executable, "voda" in sys.modules)
"""
SPREAD = """\
import sys
import torch.distributed as dist
dist.init_process_group("gloo")
print("rank", dist.get_rank(), sys.executable, flush=True)
"""


def submitted(served: Served, folder: Path, python: Path, *words: str) -> tuple[str, str]:
    """Return what a submit says with this Python first on the PATH, and what the job prints until it has completed."""
    path = f"{python.parent}{os.pathsep}{os.defpath}"
    environ = {**environment(served.home), "PATH": path, "VIRTUAL_ENV": str(python.parents[1])}

    def voda(*arguments: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            command(*arguments), env=environ, cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    done = voda("submit", "-o", "name", *words)
    name = done.stdout.strip()
    voda("wait", name, "--for", "completed", "--timeout", f"{WAIT_S:.0f}s")
    assert str(python) in voda("describe", name).stdout
    return done.stderr, voda("logs", name).stdout


@needs_torch_venv()
def test_program_runs_with_the_python_of_its_users_venv_and_imports_report_from_nowhere(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN.format(library="torch"))
    (tmp_path / "spread.py").write_text(SPREAD)
    # With voda's own environment: its Python is first on its PATH, and has no torch.
    served = start(tmp_path, "--port", "0", "--single-user", "--slots", "2", "--halt-on-exit")
    python = TORCH_VENV / "bin" / "python"
    try:
        said, printed = submitted(served, tmp_path, python, "--", "python", "plain.py")
        assert said == f"voda: runs with {python}\n"
        assert printed == f"plain {python} True\n"
        said, printed = submitted(served, tmp_path, python, "--workers", "1-2", "--", "python", "spread.py")
        assert f"voda: runs with {python}\n" in said
        assert f"rank 0 {python}\n" in printed
        assert served.get("/api/v1/jobs/plain")["progress"]["epochs_done"] == 1
    finally:
        served.stop()


@pytest.fixture
def machine() -> Iterator[Served]:
    """A voda that root runs for all users, in a folder that they reach."""
    with passable_folder() as folder:
        served = start(folder, "--port", "0", "--slots", "2", "--halt-on-exit")
        try:
            yield served
        finally:
            served.stop()


def a_venv(folder: Path) -> Path:
    """Return the Python of a new venv, without voda; users can read it where they can reach the folder."""
    # Not of the Python that runs the tests, which may be one that users cannot reach.
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    return folder / "venv" / "bin" / "python"


def cli(folder: Path, env: Mapping[str, str], *arguments: str) -> str:
    """Return what a command prints, called in a folder, in this process."""
    os.chdir(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CliRunner().invoke(build_app(), [*arguments], env={**env, "COLUMNS": "80"}).output


@needs(os.geteuid() == 0, "only root starts processes of other users")
def test_program_of_a_user_runs_as_them_with_their_python(machine: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = machine.home / "ada"
    folder.mkdir(mode=0o755)
    python = a_venv(folder)
    (folder / "plain.py").write_text(PLAIN.format(library="os"))
    monkeypatch.chdir(folder)
    env = {
        "VODA_HOME": str(folder),
        "VODA_SERVER": f"unix://{machine.home}/voda.sock",
        "VODA_TOKEN": "",
        "PATH": f"{python.parent}{os.pathsep}{os.defpath}",
    }
    words = ("submit", "--name", "mine", "--", "python", "plain.py")
    # So that a user who cannot read the Python of the tests need not import anything.
    assert "mine would be submitted" in cli(folder, env, words[0], "--dry-run", *words[1:])
    cli(folder, env, "wait", "nothing", "--timeout", "1s")
    cli(folder, env, "logs", "nothing")
    said = as_account("daemon", lambda: cli(folder, env, *words))
    assert f"voda: runs with {python}\n" in said
    as_account("daemon", lambda: cli(folder, env, "wait", "mine", "--timeout", f"{WAIT_S:.0f}s"))
    assert as_account("daemon", lambda: cli(folder, env, "logs", "mine")) == f"plain {python} True\n"


@needs(os.geteuid() == 0, "only root starts processes of other users")
def test_python_that_the_jobs_user_may_not_run_is_refused_with_what_to_add(
    machine: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = machine.home / "shut"
    folder.mkdir(mode=0o700)
    python = a_venv(folder)
    (folder / "plain.py").write_text("")
    monkeypatch.chdir(folder)
    created = subprocess.run(
        command("token", "create", "daemon", "--role", "user"),
        env=environment(machine.home),
        capture_output=True,
        text=True,
        check=True,
    )
    token = next(word for word in created.stdout.split() if word.startswith("voda_"))
    env = {**environment(machine.home), "VODA_TOKEN": token, "PATH": f"{python.parent}{os.pathsep}{os.defpath}"}
    for words in (["--", "python", "plain.py"], ["--dry-run", "--", "python", "plain.py"]):
        done = subprocess.run(
            command("submit", *words), env=env, cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == (
            f"voda: plain.py: it would run with {python}, which daemon, as whom it runs, may not execute: add"
            " --env PATH=... with a Python of daemon's, or name that Python by its whole path"
            " (voda submit -- /path/to/bin/python ...)"
        )
    # What root keeps of a program is not for daemon to read: it runs as it is at its start.
    words = ["--live", "--env", f"PATH={os.defpath}", "-o", "name", "--", "python3", "plain.py"]
    done = subprocess.run(
        command("submit", *words), env=env, cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert f"it would begin in {folder}, which is no folder that daemon, as whom it runs, may enter" in done.stderr
    folder.chmod(0o711)
    done = subprocess.run(
        command("submit", *words), env=env, cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert done.stdout == "plain\n"

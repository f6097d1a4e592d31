"""Programs that are held up between the moment when they belong to their user and the moment when they begin."""

import os
import pwd
import py_compile
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.accounts import as_account
from tests.needs import needs
from tests.waiting import DEADLINE_S, wait_until
from voda.cluster.local.processes import shim
from voda.cluster.local.processes.replica import compiled

_MANY_FOLDERS = 500_000
"""None of which is there: to look for them takes a second, in which the program belongs to its user already."""
_START = (
    "import sys; sys.path.append(sys.argv[1]); import shim; shim.START_S = float(sys.argv[2])\n"
    "sys.exit(shim.main(sys.argv[3:]))"
)


class Ended(msgspec.Struct):
    run: int
    code: int
    signal: int
    was_told: bool
    problem: str


@contextmanager
def a_slow_start(
    folder: Path, user: str | None = None, *, start_s: float = DEADLINE_S
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the shim of a program that takes long to begin, as that user."""
    (folder / "grant").write_text("1\n")
    account = pwd.getpwnam(user) if user else None
    parts: dict[str, list[str]] = {
        "argv": ["/bin/sleep", "1000"],
        "folders": ["x"] * _MANY_FOLDERS + ["/"],
        "user": [str(account.pw_uid), str(account.pw_gid)] if account else [],
        **{name: [] for name in ("env", "files", "cgroups", "limits")},
    }
    words = [word for name, part in parts.items() for word in (name, str(len(part)), *part)]
    with (folder / "program").open("w+b") as program, (folder / "output").open("a+b") as output:
        program.write("\0".join((*words, "")).encode())
        program.seek(0)
        argv = [sys.executable, "-I", "-S", "-c", _START, os.path.dirname(shim.__file__), str(start_s)]
        argv += [str(folder), "1", "0.5", str(1 << 20)]
        with subprocess.Popen(argv, stdin=program, stdout=output, stderr=output) as started:
            try:
                yield started
            finally:
                for pid in child_of(started.pid):
                    os.kill(pid, signal.SIGKILL)
                started.kill()


def child_of(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def status_of(pid: int, name: str) -> str:
    """Return the first word of a line of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def stop_once_allowed(pid: int) -> str:
    def is_stopped() -> bool:
        try:
            os.kill(pid, signal.SIGSTOP)
        except PermissionError:
            return False
        return True

    wait_until(is_stopped)
    return "stopped"


def end_of(folder: Path, started: subprocess.Popen[bytes]) -> Ended:
    assert started.wait(DEADLINE_S) == 0
    return msgspec.json.decode((folder / "exit.json").read_bytes(), type=Ended)


@needs(os.geteuid() == 0, "only root starts processes of other users")
def test_program_that_its_user_stops_before_it_begins_can_be_told_to_end(tmp_path: Path) -> None:
    with a_slow_start(tmp_path, "games") as started:
        wait_until(lambda: child_of(started.pid))
        [child] = child_of(started.pid)
        as_account("games", lambda: stop_once_allowed(child))
        wait_until(lambda: status_of(child, "State") == "T")
        assert b"shim" in Path(f"/proc/{child}/cmdline").read_bytes()
        os.kill(started.pid, signal.SIGTERM)
        assert end_of(tmp_path, started).was_told


def test_program_that_does_not_begin_in_time_is_killed_and_its_end_says_so(tmp_path: Path) -> None:
    with a_slow_start(tmp_path, start_s=0.1) as started:
        ended = end_of(tmp_path, started)
        assert (ended.signal, ended.was_told, ended.problem) == (
            signal.SIGKILL,
            False,
            "it did not begin within 0 s, and was killed",
        )
        assert child_of(started.pid) == []


def test_program_that_takes_a_while_to_begin_runs_then(tmp_path: Path) -> None:
    with a_slow_start(tmp_path) as started:
        wait_until(lambda: any(status_of(pid, "Name") == "sleep" for pid in child_of(started.pid)))
        os.kill(started.pid, signal.SIGTERM)
        ended = end_of(tmp_path, started)
        assert (ended.signal, ended.was_told, ended.problem) == (signal.SIGTERM, True, "")


def test_compiled_shim_of_another_version_is_not_run(tmp_path: Path) -> None:
    source = tmp_path / "shim.py"
    source.write_text("old = 1\n")
    assert compiled(str(source)) == str(source)
    cached = py_compile.compile(str(source), doraise=True)
    assert compiled(str(source)) == cached
    # As after an upgrade where Python may not write beside its sources.
    source.write_text("new_and_longer = 1\n")
    assert compiled(str(source)) == str(source)
    py_compile.compile(str(source), doraise=True)
    Path(cached).write_bytes(Path(cached).read_bytes()[:7])
    assert compiled(str(source)) == str(source)

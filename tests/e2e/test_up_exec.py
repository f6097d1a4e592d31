"""`voda exec` as a user runs it: a real `voda up`, real terminals, real kills."""

import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.served import Served, command, environment, manifest, start
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
WAIT_S = 60.0
HOLD = "echo $$ > $VODA_JOB_DIR/pid; exec sleep 1000"


class Machine:
    """A voda with a job `held` that runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.served: Served = start(home, "--port", "0", "--ratelimit", "0", "--slots", "2", "--halt-on-exit")
        self.served.ask("POST", "/api/v1/jobs", manifest("held", "sleep 1000"))
        assert self.run("wait", "held", "--for", "running", "--timeout", "60s")[0] == 0

    def run(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """Return exit status, output and errors of a command of voda."""
        ended = subprocess.run(
            command(*arguments),
            env=environment(self.home),
            input=stdin,
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )
        return ended.returncode, ended.stdout.decode(), ended.stderr.decode()

    def begin(self, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self.home / "errors").open("wb") as errors:
            # Whoever runs the tests in the background has SIGINT ignored.
            words, env = ["env", "--default-signal=INT", *command(*arguments)], environment(self.home)
            return subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=errors)

    def pid(self) -> int:
        """Return the id of the process that HOLD becomes."""
        path = self.home / "jobs" / "held" / "pid"
        wait_until(lambda: path.exists() and path.read_text().strip(), lambda: "the command to begin")
        return int(path.read_text())


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    try:
        yield made
    finally:
        made.served.stop()


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_exit_status_and_output_are_those_of_the_command_and_failures_have_their_own(machine: Machine) -> None:
    folder = machine.home / "jobs" / "held"
    assert machine.run("exec", "@held", "--", "sh", "-c", "pwd; cat; exit 7") == (7, f"{folder}\n", "")
    assert machine.run("exec", "@held", "-i", "--", "cat", stdin=b"x" * 300_000) == (0, "x" * 300_000, "")
    assert machine.run("exec", "@held", "--", "sh", "-c", "kill -9 $$")[0] == 137
    status, _, errors = machine.run("exec", "@held", "--", "no-such-program")
    assert (status, "command no-such-program: not found" in errors) == (127, True)
    for arguments, sentence in (
        (("exec", "nobody", "--", "true"), "job 'nobody' is not known"),
        (("exec", "@held", "--replica", "5", "--", "true"), "job held runs no replica '5'; there is: launcher"),
        (("exec", "@held", "-t", "--", "true"), "--tty needs a terminal here"),
    ):
        status, out, errors = machine.run(*arguments)
        assert (status, out, sentence in errors, errors.count("\n")) == (125, "", True, 1), errors
    assert machine.run("exec", "@held") == (
        2,
        "",
        "voda: which command? say it after --, as in `voda exec @held -- nvidia-smi`; `voda exec -it @held` opens a"
        " shell, which needs both -i and -t\n",
    )


def test_command_ends_with_control_c_with_its_job_and_with_voda_itself(machine: Machine) -> None:
    running = machine.begin("exec", "@held", "--", "sh", "-c", HOLD)
    pid = machine.pid()
    running.send_signal(signal.SIGINT)
    assert running.wait(WAIT_S) == 130
    wait_until(lambda: is_gone(pid), lambda: "the command to end")

    (machine.home / "jobs" / "held" / "pid").unlink()
    running = machine.begin("exec", "@held", "--", "sh", "-c", HOLD)
    pid = machine.pid()
    machine.served.kill()
    assert running.wait(WAIT_S) == 125
    assert "was lost" in (machine.home / "errors").read_text()
    wait_until(lambda: is_gone(pid), lambda: "the command to end")
    machine.served = start(machine.home, "--port", "0", "--ratelimit", "0", "--slots", "2", "--halt-on-exit")

    wait_until(lambda: machine.run("exec", "@held", "--", "true")[0] == 0, lambda: "the job to be taken over")
    (machine.home / "jobs" / "held" / "pid").unlink()
    running = machine.begin("exec", "@held", "--", "sh", "-c", HOLD)
    pid = machine.pid()
    machine.served.ask("DELETE", "/api/v1/jobs/held")
    assert running.wait(WAIT_S) != 0
    wait_until(lambda: is_gone(pid), lambda: "the command to end")
    status, _, errors = machine.run("exec", "@held", "--", "true")
    assert (status, "job held is Canceled" in errors) == (125, True), errors


def test_terminal_takes_keys_and_sizes_and_is_put_right_at_the_end(machine: Machine) -> None:
    ours, theirs = pty.openpty()
    words = command("exec", "@held", "-it", "--", "sh", "-c", "stty size; read line; echo got $line; exit 4")
    running = subprocess.Popen(
        words, env=environment(machine.home), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    while b"24 80" not in seen:
        seen += os.read(ours, 4096)
    os.write(ours, b"keys\r")
    while b"got keys" not in seen:
        seen += os.read(ours, 4096)
    assert running.wait(WAIT_S) == 4
    os.close(ours)


def test_terminal_without_a_command_is_the_users_shell(machine: Machine) -> None:
    ours, theirs = pty.openpty()
    words = command("exec", "-it", "@held")
    running = subprocess.Popen(
        words, env=environment(machine.home), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    # Before there is a prompt.
    os.write(ours, b"echo shell=$0 of=$VODA_JOB_NAME\r")
    while not re.search(rb"shell=\S*sh of=held", seen):
        seen += os.read(ours, 4096)
    os.write(ours, b"exit 3\r")
    assert running.wait(WAIT_S) == 3
    os.close(ours)

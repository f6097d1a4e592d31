"""The parent of one command that runs beside a replica: starts it as the job's user, and ends it with all it started.

Started by session.py, which hands it the program on standard input as the shim gets it, and the descriptors below. It
is the shim's smaller sister, and shares its functions; both run on the standard library alone. Rules: the command ends
when voda closes CONTROL, on purpose or because voda died, or writes to it, as the replica is told to stop; and it is
killed at once when the shim of the replica ends, since its devices are another's then. Nothing is left.
The command leads a session of its own, where neither its user nor its terminal can stop this process.
"""

import fcntl
import json
import os
import select
import signal
import termios
import time
from contextlib import suppress

from voda.cluster.local.processes import shim

CONTROL, REPLICA, STDIN, STDOUT, STDERR = range(3, 8)
"""Descriptors: voda's end of the line, the replica's shim (pidfd), and those of the command."""
GRACE_S = 5.0
"""From SIGTERM to SIGKILL."""
LOOK_S = 1.0
"""Between two looks for orphans that have ended."""
REPORT_BYTES = 8192


def main(words: list[str]) -> int:
    """Run one command to its end, and tell voda how it ended; `words` has `terminal` where STDIN is one."""
    # What voda was started with is nothing for its users.
    os.closerange(STDERR + 1, shim.MOST_DESCRIPTORS)
    program = shim.program_to_start()
    for descriptor in (CONTROL, REPLICA, STDIN, STDOUT, STDERR):
        os.set_inheritable(descriptor, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, shim.SIGNALS)
    shim.prctl(shim.PR_SET_CHILD_SUBREAPER, 1)
    pid, problems = start(program, has_terminal="terminal" in words)
    for descriptor in (STDIN, STDOUT, STDERR):
        os.close(descriptor)
    ending, problem = watch(pid, problems)
    shim.kill_descendants()
    code = 128 + os.WTERMSIG(ending) if os.WIFSIGNALED(ending) else os.waitstatus_to_exitcode(ending)
    # voda may be gone.
    with suppress(OSError):
        os.write(CONTROL, json.dumps({"status": code, "problem": problem}).encode())
    return 0


def start(program: dict[str, list[str]], *, has_terminal: bool) -> tuple[int, int]:
    """Start the command; return its pid, and where it says why it could not run."""
    problems, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            if has_terminal:
                fcntl.ioctl(STDIN, termios.TIOCSCTTY, 0)
            for number, descriptor in enumerate((STDIN, STDOUT, STDERR)):
                os.dup2(descriptor, number)
            shim.become(program, write_end, parent)
        finally:
            os._exit(shim.NOT_RUNNABLE)
    os.close(write_end)
    return pid, problems


def watch(pid: int, problems: int) -> tuple[int, str]:
    """Return the command's wait status, once it has ended or was ended, and why it could not run."""
    poll, is_over = select.poll(), os.pidfd_open(pid)
    for descriptor in (CONTROL, REPLICA, problems, is_over):
        poll.register(descriptor, select.POLLIN)
    problem, is_told = "", False
    kill_at = time.monotonic() + shim.START_S  # noqa: TID251 - stands alone
    while (ended := shim.reaped(pid)) is None:
        ready = {descriptor for descriptor, _ in poll.poll(LOOK_S * 1000)}
        if problems in ready:
            # Its end alone says that the command has begun.
            problem = os.read(problems, shim.PROBLEM_BYTES).decode("utf-8", "replace")
            poll.unregister(problems)
            kill_at = kill_at if is_told else float("inf")
        if CONTROL in ready:
            is_told, kill_at = True, time.monotonic() + GRACE_S  # noqa: TID251 - stands alone
            poll.unregister(CONTROL)
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGCONT):
                shim.kill(-pid, number)
        if REPLICA in ready:
            is_told, kill_at = True, 0.0
            poll.unregister(REPLICA)
        if time.monotonic() >= kill_at:  # noqa: TID251 - stands alone
            if not is_told:
                problem = f"it did not begin within {shim.START_S:.0f} s, and was killed"
            for descendant in shim.descendants(os.getpid()):
                shim.kill(descendant)
    if not problem:
        # It may have said so and ended since the last look.
        with suppress(OSError):
            problem = os.read(problems, shim.PROBLEM_BYTES).decode("utf-8", "replace")
    return ended, problem

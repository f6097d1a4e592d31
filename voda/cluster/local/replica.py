"""One replica: a program under its shim, which this voda started or an earlier one.

Rule: nothing waits here; the kernel reports a replica's end (pidfd), once, on the event loop.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from voda.cluster.local import shim
from voda.cluster.local.folder import Exit, JobFolder, log_path
from voda.process_table import REPLICA_MARK, exit_status, kill_marked, open_process, send_signal


class ReplicaCommand(Struct, frozen=True, kw_only=True):
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    grace_s: float
    log_bytes: int


class ReplicaProcess:
    """A running shim."""

    def __init__(self, name: str, run: int, pidfd: int) -> None:
        self.name = name
        self.run = run
        self.is_stopping = False
        self._pidfd = pidfd

    def watch(self, ended: Callable[["ReplicaProcess", int | None], None]) -> None:
        """Call `ended` once the shim ends, with its exit status; None where it is not our child."""

        def read() -> None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            status = exit_status(self._pidfd)
            self.close()
            ended(self, status)

        asyncio.get_running_loop().add_reader(self._pidfd, read)

    def stop(self) -> None:
        """Tell the program to end; its shim kills what is left once the grace is over."""
        if not self.is_stopping and self._pidfd >= 0:
            self.is_stopping = True
            send_signal(self._pidfd, signal.SIGTERM)

    def close(self) -> None:
        """Stop watching; the replica goes on."""
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


def start_replica(folder: JobFolder, name: str, run: int, command: ReplicaCommand) -> ReplicaProcess:
    """Start a replica's shim; a program that cannot be started shows in its exit.

    Raises:
        UnsafeFile: its output is no regular file.
        OSError: the system refuses another process, or so long a command line.
    """
    home = folder.replicas / name
    words = [str(home), str(run), str(command.grace_s), str(command.log_bytes), str(command.cwd)]
    # The shim also reads it: it cuts an output that outgrew its limit, wherever the job has moved it.
    with folder.files.opened(log_path(name), os.O_RDWR | os.O_CREAT | os.O_APPEND) as output:
        os.set_blocking(output, True)
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", shim.__file__, *words, "--", *command.argv],
            {**command.env, REPLICA_MARK: str(home)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsid=True,
            # Blocked from its first instruction on, so that a stop that comes early is not lost.
            setsigmask=shim.SIGNALS,
            setsigdef=(signal.SIGPIPE, signal.SIGINT, *shim.SIGNALS),
        )
    # Nothing has waited for it yet, so the id is still its own.
    return ReplicaProcess(name, run, os.pidfd_open(pid))


class ReplicaStateUnknown(Exception):
    """A shim runs and has not written itself down yet: look again in a moment."""


def find_replica(folder: JobFolder, name: str, run: int, status: int | None = None) -> ReplicaProcess | Exit | None:
    """Return what became of a run: it goes on, it ended, or (None) it never began.

    Args:
        folder: of the job.
        name: of the replica.
        run: number of its newest start; 0 = none.
        status: exit status of the shim, where it was our child.

    Raises:
        ReplicaStateUnknown: look again in a moment.
    """
    home = folder.replicas / name
    alive = folder.alive(name, run)
    if folder.is_locked(name):
        pidfd = open_process(alive.pid, alive.start) if alive is not None else None
        if pidfd is None:
            raise ReplicaStateUnknown
        return ReplicaProcess(name, run, pidfd)
    if run == 0:
        return None
    if (ended := folder.exit(name, run)) is not None:
        return ended
    if status == shim.CANNOT_WRITE:
        return Exit(run=run, code=shim.CANNOT_WRITE, problem=f"{home} cannot be written, perhaps the disk is full")
    if alive is None and status in (None, shim.NOT_MINE):
        # Perhaps its shim is just starting: it goes by itself once the grant is another's, and was no failure.
        return None
    # The shim was killed; the program went with it, but not what the program had started. Or the job removed what its
    # shim wrote, and runs on.
    kill_marked(home)
    return Exit(run=run, code=-1, signal=signal.SIGKILL, problem="its shim was killed, so its exit is not known")

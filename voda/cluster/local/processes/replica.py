"""One replica: a program under its shim, started here or found at work.

Rule: nothing waits here; a replica's end is told by the kernel (pidfd), once, on the event loop.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from voda.cluster.local.processes import shim
from voda.cluster.local.processes.folder import Folder
from voda.cluster.local.processes.process_table import collect, is_locked, kill_marked, opened, tell
from voda.cluster.local.processes.record import Exit

MARK: Final = "VODA_REPLICA"


class Command(Struct, frozen=True, kw_only=True):
    """What to run, and how."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    grace_s: float
    log_bytes: int


class Replica:
    """A running shim."""

    def __init__(self, name: str, run: int, pidfd: int) -> None:
        self.name = name
        self.run = run
        self.is_stopping = False
        self._pidfd = pidfd

    def watch(self, ended: Callable[["Replica", int | None], None]) -> None:
        """Have the end told, with the shim's own exit status; None where it is not our child."""

        def read() -> None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            status = collect(self._pidfd)
            self.close()
            ended(self, status)

        asyncio.get_running_loop().add_reader(self._pidfd, read)

    def stop(self) -> None:
        """Ask the program to end; its shim kills all that is left once the grace is over."""
        if not self.is_stopping and self._pidfd >= 0:
            self.is_stopping = True
            tell(self._pidfd, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the program and all its descendants."""
        if self._pidfd >= 0:
            tell(self._pidfd, signal.SIGUSR1)

    def close(self) -> None:
        """Look no longer; the replica goes on."""
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


def start(folder: Folder, name: str, run: int, command: Command) -> Replica:
    """Start a replica's shim; whether the program itself starts is told by its end.

    Raises:
        OSError: the system refuses another process, or so long a command line.
    """
    home = folder.replicas / name
    log = folder.log(name)
    words = [str(home), str(run), str(command.grace_s), str(log), str(command.log_bytes), str(command.cwd)]
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", shim.__file__, *words, "--", *command.argv],
            {**command.env, MARK: str(home)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsid=True,
            # Blocked from its first instruction on, so that a stop that comes early is not lost.
            setsigmask=shim.HEARD,
            setsigdef=(signal.SIGPIPE, signal.SIGINT, *shim.HEARD),
        )
    finally:
        os.close(output)
    # It cannot have been collected by anybody yet, so the id is its own.
    return Replica(name, run, os.pidfd_open(pid))


class Unclear(Exception):
    """A shim is at work and has not written itself down yet: look again in a moment."""


def found(folder: Folder, name: str, run: int, status: int | None = None) -> Replica | Exit | None:
    """Return what became of a run: it is at work, it ended, or (None) it never began.

    Args:
        folder: of the job.
        name: of the replica.
        run: number of its newest start; 0 = none.
        status: exit status of the shim, where it was our child.

    Raises:
        Unclear: it cannot be told yet.
    """
    home = folder.replicas / name
    alive = folder.alive(name, run)
    if is_locked(home / "lock"):
        pidfd = opened(alive.pid, alive.start) if alive is not None else None
        if pidfd is None:
            raise Unclear
        return Replica(name, run, pidfd)
    if run == 0:
        return None
    if (ended := folder.exit(name, run)) is not None:
        return ended
    if status == shim.CANNOT_WRITE:
        return Exit(run=run, code=shim.CANNOT_WRITE, problem=f"{home} cannot be written, perhaps the disk is full")
    if alive is None and status in (None, shim.NOT_MINE):
        return None
    # The shim was killed; the program went with it, but not what the program had started.
    kill_marked(home)
    return Exit(run=run, code=-1, signal=signal.SIGKILL, problem="its shim was killed, so its exit is not known")

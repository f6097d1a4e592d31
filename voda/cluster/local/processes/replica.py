"""One replica: a program under its shim, which this voda started or an earlier one.

Rule: nothing waits here; the kernel reports a replica's end (pidfd), once, on the event loop.
"""

import asyncio
import os
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from msgspec import Struct

from voda.accounts import Account
from voda.cluster.local.folder import JobFolder
from voda.cluster.local.processes import shim
from voda.cluster.local.processes.replica_folder import Exit
from voda.process_table import REPLICA_MARK, exit_status, limits_at_login, open_process, send_signal

RESET_SIGNALS: Final = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
"""What voda was started with ignored, such as SIGQUIT in the background of a shell, no program of a job ignores."""
SCHEDULER: Final = os.SCHED_OTHER, os.sched_param(0)
"""Of a program, whatever voda itself was started with."""
_STAMP: Final = struct.Struct("<4xIII")
"""Of a compiled file after its magic number: flags, then the instant and the size of its source."""


def compiled(source: str) -> str:
    """Return the compiled file of a Python file where it was made of it as it is now, else the file itself.

    To compile takes as long as all the rest of a start. Where Python may not write beside its sources, a compiled file
    of an older version stays there.
    """
    path = cache_from_source(source)
    try:
        with open(path, "rb") as file:
            flags, changed_at, size = _STAMP.unpack(file.read(_STAMP.size))
        status = os.stat(source)
    except (OSError, struct.error):
        return source
    is_of_it = (changed_at, size) == (int(status.st_mtime) & 0xFFFF_FFFF, status.st_size & 0xFFFF_FFFF)
    return path if flags == 0 and is_of_it else source


_SHIM: Final = compiled(shim.__file__)


class ReplicaCommand(Struct, frozen=True, kw_only=True):
    argv: Sequence[str]
    env: Mapping[str, str]
    folders: Sequence[Path]
    """The program begins in the first one that its user can enter; that the last one can be is expected."""
    grace_s: float
    log_bytes: int
    files: Mapping[str, str] = {}
    """Variable -> the file of the job's user that holds its value."""
    nice: int = 0
    """How much it gives way for CPUs."""
    account: Account | None = None
    """None: it runs as the user who runs voda."""
    cgroups: Sequence[Path] = ()


class ReplicaProcess:
    """A running shim, and the commands beside it; it has ended once they are gone, too."""

    def __init__(self, name: str, run: int, pidfd: int) -> None:
        self.name = name
        self.run = run
        self.is_stopping = False
        self._pidfd = pidfd
        self._commands: dict[int, Callable[[], None]] = {}
        """pid of a command's supervisor -> tells the command to end."""
        self._ended: Callable[[], None] | None = None
        """Called once the last command is gone; None as long as the shim runs."""

    def watch(self, ended: Callable[["ReplicaProcess", int | None], None]) -> None:
        """Call `ended` once the shim has ended and no command beside it is left, with the exit status of the shim;
        None where it is not our child.
        """

        def read() -> None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            status = exit_status(self._pidfd)
            self.close()
            self._ended = lambda: ended(self, status)
            self._look_for_end()

        asyncio.get_running_loop().add_reader(self._pidfd, read)

    def add_command(self, supervisor: int, end: Callable[[], None]) -> None:
        """Note a command beside it by the pid of its supervisor; `end` tells it to end."""
        self._commands[supervisor] = end

    def remove_command(self, supervisor: int) -> None:
        """Note that nothing of a command is left."""
        del self._commands[supervisor]
        self._look_for_end()

    def _look_for_end(self) -> None:
        if self._ended is not None and not self._commands:
            ended, self._ended = self._ended, None
            ended()

    @contextmanager
    def descriptor(self) -> Iterator[int]:
        """Keep a descriptor of the shim for the block, readable once it has ended; ProcessLookupError: it has, or is
        told to.
        """
        if self._pidfd < 0 or self.is_stopping:
            raise ProcessLookupError
        handle = os.dup(self._pidfd)
        try:
            yield handle
        finally:
            os.close(handle)

    def stop(self) -> None:
        """Tell the program and the commands beside it to end; its shim kills what is left once the grace is over."""
        if not self.is_stopping and self._pidfd >= 0:
            self.is_stopping = True
            send_signal(self._pidfd, signal.SIGTERM)
            for end in self._commands.values():
                end()

    def kill(self) -> None:
        """Let its shim kill at once all that the program started; to be called once it was told to end."""
        if self._pidfd >= 0:
            send_signal(self._pidfd, shim.KILL)

    def close(self) -> None:
        """Stop watching; the replica goes on."""
        self._ended = None
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


def start_replica(folder: JobFolder, name: str, run: int, command: ReplicaCommand, *, now: float) -> ReplicaProcess:
    """Start a replica's shim, at an instant; a program that cannot be started shows in its exit.

    Raises:
        UnsafeFile: its output is no regular file.
        ValueError: its command line or environment is not valid.
        OSError: the system refuses another process.
    """
    home = str(folder.replicas / name)
    words = [home, str(run), str(command.grace_s), str(command.log_bytes)]
    content = start_instructions(command, {**command.env, REPLICA_MARK: home})
    with ExitStack() as stack:
        program = os.memfd_create("program")
        stack.callback(os.close, program)
        with os.fdopen(os.dup(program), "wb") as file:
            file.write(content)
        os.lseek(program, 0, os.SEEK_SET)
        # The shim cuts an output that outgrew its limit, wherever the job has moved it: by a descriptor of its own, as
        # a program may change the flags and the place of what it shares.
        output, shared = folder.replica(name).open_log(), folder.replica(name).open_log()
        for opened in (output, shared):
            stack.callback(os.close, opened)
        _part_from_earlier_run(output, now)
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", _SHIM, *words],
            # By which it is found; the program's own environment does not touch it.
            {REPLICA_MARK: home},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, program, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, shared, 2),
            ],
            setsid=True,
            scheduler=SCHEDULER,
            # Blocked from its first instruction on, so that a stop that comes early is not lost.
            setsigmask=shim.SIGNALS,
            setsigdef=RESET_SIGNALS,
        )
    _give_way(pid, command.nice)
    # Nothing has waited for it yet, so the id is still its own.
    return ReplicaProcess(name, run, os.pidfd_open(pid))


def _give_way(pid: int, nice: int) -> None:
    """Let a shim, and so its program, give way for CPUs, in its session too where the kernel shares among these."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, nice)
    with suppress(OSError), open(f"/proc/{pid}/autogroup", "w", encoding="ascii") as file:
        file.write(str(nice))


def _part_from_earlier_run(output: int, now: float) -> None:
    """Write a line behind what an earlier run has printed; a full disk leaves it out."""
    with suppress(OSError):
        if size := os.fstat(output).st_size:
            line_end = "" if os.pread(output, 1, size - 1) == b"\n" else "\n"
            at = datetime.fromtimestamp(now, UTC)
            os.write(output, f"{line_end}[voda: started again at {at:%Y-%m-%dT%H:%M:%SZ}]\n".encode())


def start_instructions(command: ReplicaCommand, env: Mapping[str, str]) -> bytes:
    """Return what the shim reads from its standard input; see `program_to_start` there."""
    account = command.account
    if wrong := next((name for name in env if not name or "=" in name), None):
        raise ValueError(f"illegal name of a variable: {wrong!r}")
    parts: dict[str, Iterable[str]] = {
        "argv": command.argv,
        "env": [f"{name}={value}" for name, value in env.items()],
        "folders": map(str, command.folders),
        "files": [f"{name}={path}" for name, path in command.files.items()],
        "cgroups": map(str, command.cgroups),
        "user": map(str, (account.uid, account.gid, *account.groups) if account else ()),
        "limits": [f"{number}:{soft}:{hard}" for number, (soft, hard) in limits_at_login().items()] if account else (),
    }
    found: list[bytes] = []
    for name, words in parts.items():
        encoded = [os.fsencode(word) for word in words]
        if any(b"\0" in word for word in encoded):
            raise ValueError(f"embedded null byte in {name}")
        found += [name.encode(), str(len(encoded)).encode(), *encoded]
    return b"\0".join((*found, b""))


class ReplicaStateUnknown(Exception):
    """A shim runs and has not written itself down yet: look again in a moment."""


class LostExit(Exit, frozen=True, kw_only=True):
    """That of a replica whose shim was killed: what its program had started may still run."""


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
    home, own = folder.replicas / name, folder.replica(name)
    alive = own.alive(run)
    if own.is_locked():
        pidfd = open_process(alive.pid, alive.start) if alive is not None else None
        if pidfd is None:
            raise ReplicaStateUnknown
        return ReplicaProcess(name, run, pidfd)
    if run == 0:
        return None
    if (ended := own.exit(run)) is not None:
        return ended
    if status == shim.CANNOT_WRITE:
        return Exit(run=run, code=shim.CANNOT_WRITE, problem=f"{home} cannot be written, perhaps the disk is full")
    if alive is None and status in (None, shim.NOT_MINE):
        # Perhaps its shim is just starting: it goes by itself once the grant is another's, and was no failure.
        return None
    # The shim was killed; the program went with it, but not what the program had started. Or the job removed what its
    # shim wrote, and runs on.
    return LostExit(run=run, code=-1, signal=signal.SIGKILL, problem="its shim was killed, so its exit is not known")

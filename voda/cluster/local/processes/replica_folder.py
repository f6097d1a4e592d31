"""What lies of one replica in its job's folder: its output, and how its processes may start, run and end.

Rule: see `folder`; the job can write all of it.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from voda.cluster.local.processes.marked import MarkedProcess
from voda.process_table import lock_holders, start_of, try_lock
from voda.untrusted_files import UnsafeFile, UntrustedFolder

REPLICAS: Final = ".voda/replicas"
_TRACE_BYTES: Final = 4_096
"""Most that a shim writes of itself or of an end: twice what it reserves. Such files are read between other work, so
they are small."""
# A RecursionError: brackets in brackets, as only a job that means harm writes them.
UNREADABLE: Final = (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError)

Record = TypeVar("Record")


class Exit(Struct, frozen=True, kw_only=True):
    """How a replica's program ended, as its shim wrote it."""

    run: int
    code: int = 0
    """-1 where a signal ended it."""
    signal: int = 0
    was_told: bool = False
    """It was told to end: by voda, or by a machine that shuts down."""
    ended_at: float = 0.0
    problem: str = ""
    """Why the program could not be started, one sentence."""
    memory_limit_bytes: int | None = None
    """The limit of its control group, where the kernel killed processes in it for memory; 0: not known."""
    rank_code: int | None = None
    """Of the rank that failed first, where its launcher said so, whose own code says nothing; negative: the signal."""

    @property
    def exit_code(self) -> int:
        """As a shell and Kubernetes count it: 128 + the signal."""
        return 128 + self.signal if self.signal else self.code

    @property
    def is_success(self) -> bool:
        return self.exit_code == 0


class ShimProcess(Struct, frozen=True, kw_only=True):
    """The shim of a replica, as it describes itself."""

    run: int
    pid: int
    start: int
    """Ticks since boot."""
    log_at: int = 0
    """Size of the output when this run began."""


class ReplicaFolder:
    """What lies of one replica, in the files of a job whose user has that uid; None: the user who runs voda."""

    def __init__(self, files: UntrustedFolder, name: str, uid: int | None) -> None:
        self.log = f"logs/{name}.log"
        """Path of its output in the job's folder."""
        self.times = f"{REPLICAS}/{name}/times"
        """Path of the instants at which it printed, which its shim notes."""
        self.name = name
        self._files = files
        self._uid = uid
        self._home = f"{REPLICAS}/{name}"
        self._lock = f"{self._home}/lock"

    def grant(self, run: int, devices: Sequence[str]) -> None:
        """Let its processes start, on these devices; those of run 0 enter by themselves (see rsh_agent.py)."""
        self._files.make(self._home, mode=(0o700 if run else 0o711) if self._uid is not None else None)
        if self._uid is not None and run == 0:
            with self._files.opened(f"{self._home}/lock", os.O_RDWR | os.O_CREAT) as file:
                os.fchown(file, self._uid, -1)
                os.fchmod(file, 0o600)
        content = f"{run}\n{','.join(devices) or '-'}\n".encode()
        self._files.write(f"{self._home}/grant", content, mode=0o644 if self._uid is not None else None)

    def revoke(self) -> None:
        """Let no more of its processes start."""
        self._files.remove(f"{self._home}/grant")

    def is_locked(self) -> bool:
        """Return whether a process holds its lock; nobody holds one that cannot be opened."""
        with suppress(FileNotFoundError, UnsafeFile), self._files.opened(self._lock) as file:
            return not try_lock(file)
        return False

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold its lock during the block; yield False if another process has it."""
        self._files.make(self._home)
        with self._files.opened(self._lock, os.O_RDWR | os.O_CREAT) as file:
            yield try_lock(file)

    def alive(self, run: int) -> ShimProcess | None:
        """Return the shim of a run; None before it has written itself down."""
        alive = read_record(self._files, f"{self._home}/process.json", ShimProcess)
        return alive if alive is not None and alive.run == run else None

    def exit(self, run: int) -> Exit | None:
        """Return how a run ended; None if it runs, or its shim was killed."""
        ended = read_record(self._files, f"{self._home}/exit.json", Exit)
        return ended if ended is not None and ended.run == run else None

    def last_run(self) -> int:
        """Return the number of the newest start that left a trace; 0 if none did."""
        traces = (
            read_record(self._files, f"{self._home}/process.json", ShimProcess),
            read_record(self._files, f"{self._home}/exit.json", Exit),
        )
        return max((trace.run for trace in traces if trace is not None), default=0)

    def was_cut(self) -> bool:
        """Return whether the beginning of its output was dropped."""
        return self._files.exists(f"{self._home}/cut")

    def open_log(self) -> int:
        """Return a descriptor of its output, to append to and to cut; the job's user may read it.

        Raises:
            UnsafeFile: it is no regular file.
        """
        handle = self._files.open(self.log, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        if self._uid is not None:
            os.fchown(handle, self._uid, -1)
            os.fchmod(handle, 0o600)
        os.set_blocking(handle, True)
        return handle

    def is_lock_users(self) -> bool:
        """Return whether the job's user may take its lock, so that it says nothing of the replica's processes."""
        with suppress(OSError), self._files.opened(self._lock) as file:
            return self._uid is not None and os.fstat(file).st_uid != os.geteuid()
        return False

    def find_users_lock_holders(self) -> tuple[MarkedProcess, ...]:
        """Return the processes of the job's user that hold its lock, marked or not; in a thread, as the user may have
        very many files open.
        """
        with suppress(OSError), self._files.opened(self._lock) as file:
            holders = lock_holders(file, self._uid) if self._uid else ()
            started = ((pid, start_of(pid)) for pid in holders)
            return tuple(
                MarkedProcess(pid, start, self.name, frozenset()) for pid, start in started if start is not None
            )
        return ()


def read_record(
    files: UntrustedFolder, path: str, kind: type[Record], *, most_bytes: int = _TRACE_BYTES
) -> Record | None:
    """Return a record of JSON; None if there is none, or none that can be read."""
    try:
        return msgspec.json.decode(files.read(path, most_bytes), type=kind)
    except UNREADABLE:
        return None

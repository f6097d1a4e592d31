"""What the kernel knows of processes: their starts and ends, who holds a lock, which have a mark in their environment.

Rules: a process is named by its id and its start, since ids are used again. What /proc shows of a process is read
within bounds: its environment is wherever it says, and as large. Locks are plain flock and not filelock's: shim and
agent run without packages, and the program that an agent becomes inherits its shared lock.
"""

import fcntl
import os
import resource
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

REPLICA_MARK: Final = "VODA_REPLICA"
"""Names the folder of a local replica in the environment of all its processes."""
_FILE_BYTES: Final = 4096
"""Of a file of /proc whose lines the kernel writes; what matters here comes first."""
_ENVIRONMENT_BYTES: Final = 2 << 20
"""Of one process: as much as Linux gives to one that starts, unless its stack may be larger than usual."""
_ENVIRONMENTS_BYTES: Final = 64 << 20
"""Of all together; once they are read, less is read of each."""
_LITTLE_BYTES: Final = 32 << 10
_MOST_PROCESSES: Final = 65_536
"""Whose environments are read: four replicas at the default limit of their processes."""
_MOST_DESCRIPTORS: Final = 4_096
_DESCRIPTOR_BYTES: Final = 1_024
"""Of what the kernel says of a descriptor: its flock is in the first lines."""
_LIMIT_NAME: Final = 26
"""Letters of a limit's name in /proc/PID/limits."""
_LIMITS: Final = {
    "Max cpu time": resource.RLIMIT_CPU,
    "Max file size": resource.RLIMIT_FSIZE,
    "Max data size": resource.RLIMIT_DATA,
    "Max stack size": resource.RLIMIT_STACK,
    "Max core file size": resource.RLIMIT_CORE,
    "Max resident set": resource.RLIMIT_RSS,
    "Max processes": resource.RLIMIT_NPROC,
    "Max open files": resource.RLIMIT_NOFILE,
    "Max locked memory": resource.RLIMIT_MEMLOCK,
    "Max address space": resource.RLIMIT_AS,
    "Max pending signals": resource.RLIMIT_SIGPENDING,
    "Max msgqueue size": resource.RLIMIT_MSGQUEUE,
    "Max nice priority": resource.RLIMIT_NICE,
    "Max realtime priority": resource.RLIMIT_RTPRIO,
    "Max realtime timeout": resource.RLIMIT_RTTIME,
}
_LISTENS: Final = "0A"
"""State of a socket, as /proc/net/tcp has it."""


def boot_id() -> str:
    """Return what changes with every boot of this machine; no process is older."""
    return _read("/proc/sys/kernel/random/boot_id").decode("ascii").strip()


def most_processes() -> int:
    """Return how many processes and threads there may be at a time."""
    return int(_read("/proc/sys/kernel/pid_max"))


def start_of(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None if there is none of that id."""
    try:
        stat = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The program's name, in parentheses, may hold anything.
    return int(stat.rpartition(b")")[2].split()[19])


def command_name(pid: int, processes: Path = Path("/proc")) -> str:
    """Return the name of a process as the kernel keeps it, its first 15 characters; empty if there is no such one."""
    try:
        return _read(processes / str(pid) / "comm").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def limits_at_login(processes: Path = Path("/proc")) -> Mapping[int, tuple[int, int]]:
    """Return resource (as `resource` numbers it) -> its soft and hard limit, as the first process has them: what a
    login begins with; at most what this process may have.
    """
    lines = _read(processes / "1" / "limits").decode("ascii", "replace").splitlines()
    rows = {line[:_LIMIT_NAME].rstrip(): line[_LIMIT_NAME:].split()[:2] for line in lines[1:]}
    found = {}
    for name, number in _LIMITS.items():
        own = resource.getrlimit(number)[1]
        soft, hard = (_least(word, own) for word in rows.get(name, ("unlimited", "unlimited")))
        found[number] = soft, hard
    return found


def _least(word: str, own: int) -> int:
    """Return the smaller one of two limits; no limit is below 0, as the kernel writes it for programs."""
    if word == "unlimited":
        return own
    return int(word) if own == resource.RLIM_INFINITY else min(int(word), own)


def user_of(pid: int) -> int | None:
    """Return the real uid of a process, None if it is gone."""
    try:
        status = _read(f"/proc/{pid}/status")
    except OSError:
        return None
    # The program's name, in the first line, may hold all that ends a line elsewhere; the kernel escapes this alone.
    line = next(line for line in status.split(b"\n") if line.startswith(b"Uid:"))
    return int(line.split()[1])


def open_process(pid: int, start: int) -> int | None:
    """Return a descriptor of the process of that id and start, readable once it ended; None if it is gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    # Checked last: the descriptor is of the process that has the id at this moment.
    if start_of(pid) == start:
        return pidfd
    os.close(pidfd)
    return None


def send_signal(pidfd: int, number: signal.Signals) -> None:
    """Signal a process, if it is still there."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def exit_status(pidfd: int) -> int | None:
    """Return the exit status of an ended process (minus the signal that killed it); None if it is no child of ours."""
    with suppress(ChildProcessError):
        if found := os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG):
            return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
    return None


def try_lock(file: int) -> bool:
    """Take the lock on an open file until it is closed; return False if another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_holders(file: int, uid: int) -> set[int]:
    """Return the processes of a user that hold a lock (see `try_lock`) on an open file, also one that they inherited.

    Of a user with very many open files one may be left out.
    """
    status = os.fstat(file)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino} ".encode()
    return {pid for pid, lock in islice(_descriptors(uid), _MOST_DESCRIPTORS) if place in lock}


def _descriptors(uid: int) -> Iterator[tuple[int, bytes]]:
    """Yield process and flock, empty where it holds none, of each descriptor of a user's processes.

    The kernel tells this without asking the file system, which may be one of the user's that never answers.
    """
    for name in filter(str.isdigit, os.listdir("/proc")):
        if user_of(int(name)) != uid:
            continue
        with suppress(OSError):
            for number in os.listdir(f"/proc/{name}/fdinfo"):
                lines: list[bytes] = []
                with suppress(OSError), open(f"/proc/{name}/fdinfo/{number}", "rb", buffering=0) as file:
                    lines = file.read(_DESCRIPTOR_BYTES).splitlines()
                yield int(name), next((line for line in lines if line.startswith(b"lock:") and b"FLOCK" in line), b"")


def listener_on(port: int) -> tuple[int, str] | None:
    """Return id and program of a process that listens on a TCP port; None if the kernel does not tell us.

    It tells of the processes of one's own user, and root of all.
    """
    sockets = {f"socket:[{inode}]" for inode in _listening_sockets(port)}
    for name in filter(str.isdigit, os.listdir("/proc")) if sockets else ():
        with suppress(OSError), os.scandir(f"/proc/{name}/fd") as files:
            for file in files:
                if os.readlink(file.path) in sockets:
                    return int(name), "".join(filter(str.isprintable, command_name(int(name))))
    return None


def is_listened_at(port: int) -> bool:
    """Return whether anybody listens on a TCP port of this machine."""
    return any(True for _ in _listening_sockets(port))


def _listening_sockets(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(table, encoding="ascii") as lines:
            for line in lines:
                match line.split():
                    case [_, local, _, state, _, _, _, _, _, inode, *_] if state == _LISTENS and local.endswith(
                        f":{port:04X}"
                    ):
                        yield inode


def marked_processes(folder: Path, mark: str = REPLICA_MARK, *, uid: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield id and environment of every process whose variable `mark` is a folder or lies below it.

    With a `uid`, processes of any other user than that one and root are left out. The environment of a zombie is empty,
    and one that is too large is not whole: a process with its mark beyond the bound has none. Of very many processes
    not all are looked at.
    """
    wanted, left = os.fsencode(folder), _ENVIRONMENTS_BYTES
    for name in islice(_processes_of(uid), _MOST_PROCESSES):
        try:
            environment = _read(f"/proc/{name}/environ", min(_ENVIRONMENT_BYTES, max(left, _LITTLE_BYTES)))
        except OSError:
            continue
        left -= len(environment)
        value = variable(environment, mark)
        is_marked = value == wanted or value.startswith(wanted + b"/")
        if is_marked and (uid is None or user_of(int(name)) in (uid, 0)):
            yield int(name), environment


def _processes_of(uid: int | None) -> Iterator[str]:
    """Yield the ids of the processes of a user and of root, None = of all."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if uid is None or os.stat(f"/proc/{name}").st_uid in (uid, 0):
                yield name


def variable(environment: bytes, name: str) -> bytes:
    """Return the value of a variable in an environment as the kernel shows it; empty if there is none.

    It is not split: it may consist of two million empty words.
    """
    beginning = f"\0{name}=".encode()
    _, _, rest = (b"\0" + environment).partition(beginning)
    return rest.partition(b"\0")[0]


def kill_marked(folder: Path, mark: str = REPLICA_MARK, *, uid: int | None = None) -> list[int]:
    """Kill every process that `marked_processes` yields, and return their ids."""
    killed = []
    for pid, _ in marked_processes(folder, mark, uid=uid):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
    return killed


def _read(path: str | Path, most_bytes: int = _FILE_BYTES) -> bytes:
    """Return what a file of /proc holds, no more than so much of it, which the kernel gives at once."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, most_bytes)
    finally:
        os.close(file)

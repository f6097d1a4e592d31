"""What mpirun runs in place of ssh or of a rank, so that the rank runs on its worker's devices.

Run as `python -I -S rsh_agent.py remote REPLICAS [OPTIONS] HOST COMMAND...` in place of ssh, or as
`python -I -S rsh_agent.py rank REPLICAS SLOTS ARGV...` in place of a rank. It stands alone (standard library only).
Rules: it takes the shared lock on the worker's folder first and reads the grant second; voda takes a worker away in the
other order, so that it either finds this process or has it refused. The program that this process becomes inherits the
lock, and its processes have the worker's folder in VODA_REPLICA.
"""

import ctypes
import fcntl
import os
import re
import sys

CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
_HOST = re.compile(r"[a-z0-9-]*worker-(\d+)(\.\S*)?")


def main(words: list[str]) -> int:
    """Become the worker's process, or return why not as an exit status."""
    mode, replicas, *rest = words
    if mode == "remote":
        while rest and not _HOST.fullmatch(rest[0]):
            rest.pop(0)
        if not rest:
            return refuse("no worker's name among the arguments")
        host = rest.pop(0)
        found = _HOST.fullmatch(host)
        name = f"worker-{found[1]}" if found else ""
        enter(os.path.join(replicas, name))
        set_hostname(host.partition(".")[0])
        os.execv("/bin/sh", ["sh", "-c", " ".join(rest)])
    slots = int(rest.pop(0))
    rank = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or os.environ.get("PMIX_RANK") or 0)  # noqa: TID251
    workers = granted(replicas)
    if not workers:
        return refuse("the job has no worker left")
    enter(os.path.join(replicas, workers[rank // slots % len(workers)]))
    os.execvp(rest[0], rest)


def enter(folder: str) -> None:
    """Claim the worker, or end this process."""
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    os.set_inheritable(lock, True)
    try:
        with open(os.path.join(folder, "grant"), encoding="utf-8") as file:
            devices = file.read().splitlines()[1]
    except (OSError, IndexError):
        sys.exit(refuse(f"{os.path.basename(folder)} was taken away"))
    os.environ["VODA_REPLICA"] = folder  # noqa: TID251 - stands alone
    if devices != "-":
        os.environ["CUDA_VISIBLE_DEVICES"] = devices  # noqa: TID251 - stands alone


def granted(replicas: str) -> list[str]:
    """Return the names of the workers that are granted, in the order of their indices."""
    names = [name for name in os.listdir(replicas) if re.fullmatch(r"worker-\d+", name)]
    there = [name for name in names if os.path.exists(os.path.join(replicas, name, "grant"))]
    return sorted(there, key=lambda name: int(name.rpartition("-")[2]))


def set_hostname(name: str) -> None:
    """Give this process and what it starts a hostname of their own: the daemons of one mpirun must differ in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWUTS) != 0:
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWUTS) != 0:
            sys.exit(refuse(f"no hostname of its own: {os.strerror(ctypes.get_errno())}"))
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{user} {user} 1")
        write("/proc/self/gid_map", f"{group} {group} 1")
    word = name.encode()[:64]
    if libc.sethostname(word, len(word)) != 0:
        sys.exit(refuse(f"no hostname of its own: {os.strerror(ctypes.get_errno())}"))


def write(path: str, text: str) -> None:
    """Write a file of /proc, where it takes it."""
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    except OSError:
        return


def refuse(reason: str) -> int:
    """Say why, and return the exit status for it."""
    os.write(2, f"voda: {reason}\n".encode())
    return 75


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What mpirun runs in place of ssh and of each rank, so that the rank runs on its worker's devices and can be halted.

Run as `python -I -S rsh_agent.py remote REPLICAS [OPTIONS] HOST COMMAND...` in place of ssh (`proxy` of MPICH, which
needs no hostnames), or as `python -I -S rsh_agent.py rank REPLICAS SLOTS ARGV...` in place of a rank of Open MPI. It
stands alone (standard library only). Rules: it takes the shared lock on the worker's folder first and reads the grant
second; voda takes a worker away in the other order, so that it either finds this process or has it refused. What it
starts inherits the lock, and has the worker's folder in VODA_REPLICA. A rank ends as its program does; but once the
shim has told it to end, mpirun does not see its end, for which it would kill ranks that still write their checkpoints.
"""

import ctypes
import fcntl
import os
import re
import resource
import signal
import sys
from contextlib import suppress

COMM = "voda-rank"  # name of this process as long as its rank runs, by which the shim finds it
TELL = signal.SIGRTMIN + 7  # by which the shim tells it to end; no launcher passes this signal on
RUN_DIR = "VODA_RUN_DIR"  # in the environment of ranks that `voda run` halts itself
PR_SET_PDEATHSIG = 1
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
_HOST = re.compile(r"[a-z0-9-]*worker-(\d+)(\.\S*)?")


def main(words: list[str]) -> int:
    """Become the worker's process, or return why not as an exit status."""
    mode, replicas, *rest = words
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and what it becomes would too
        signal.signal(number, signal.SIG_DFL)
    if mode in ("remote", "proxy"):
        while rest and not _HOST.fullmatch(rest[0]):
            rest.pop(0)
        if not rest:
            return refuse("no worker's name among the arguments")
        host = rest.pop(0)
        found = _HOST.fullmatch(host)
        name = f"worker-{found[1]}" if found else ""
        enter(os.path.join(replicas, name))
        if mode == "remote":
            set_hostname(host.partition(".")[0])
        os.execv("/bin/sh", ["sh", "-c", " ".join(rest)])
    slots = int(rest.pop(0))
    if not re.search(r"/worker-\d+$", os.environ.get("VODA_REPLICA", "")):  # noqa: TID251 - no daemon of a worker's
        enter_by_rank(replicas, slots)
    if RUN_DIR in os.environ:  # noqa: TID251 - stands alone
        os.execvp(rest[0], rest)
    return run_rank(rest)


def enter_by_rank(replicas: str, slots: int) -> None:
    """Claim the worker that this rank of localhost belongs to, or end this process."""
    rank = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or os.environ.get("PMIX_RANK") or 0)  # noqa: TID251
    workers = granted(replicas)
    if not workers:
        sys.exit(refuse("the job has no worker left"))
    enter(os.path.join(replicas, workers[rank // slots % len(workers)]))


def run_rank(argv: list[str]) -> int:
    """Run a rank's program, and end as it does.

    Signals of a launcher go to the process group, so that they are not passed on here.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    with suppress(PermissionError):
        os.setpgid(0, 0)
    pid, is_told, status = start(argv, mask), False, None
    write("/proc/self/comm", COMM)
    while status is None:
        if signal.sigwaitinfo(signal.valid_signals()).si_signo == TELL and not is_told:
            is_told = True
            os.killpg(0, signal.SIGTERM)
            os.killpg(0, signal.SIGCONT)
        ended, found = os.waitpid(pid, os.WNOHANG)
        status = found if ended else None
    if is_told:
        write("/proc/self/comm", f"{COMM}-done")
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid == os.getpid():
            pass
    return end_like(status)


def start(argv: list[str], mask: set[signal.Signals | int]) -> int:
    """Start a program, with a mask of signals, that dies with this process, and return its pid."""
    parent = os.getpid()
    if (pid := os.fork()) == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            if os.getppid() == parent:
                os.execvp(argv[0], argv)
        except OSError as error:
            os._exit(refuse(f"{argv[0]}: {error.strerror}", 127 if isinstance(error, FileNotFoundError) else 126))
        os._exit(refuse("the process before the rank was killed"))
    return pid


def end_like(status: int) -> int:
    """Return the exit status of a program that ended, or die of the signal that it died of, without a second core."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return 128 + number


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


def refuse(reason: str, status: int = 75) -> int:
    """Say why, and return the exit status for it."""
    os.write(2, f"voda: {reason}\n".encode())
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

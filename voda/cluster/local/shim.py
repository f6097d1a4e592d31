"""The parent of one replica's program: starts it, outlives voda, and writes down how the program ended.

Run as `python -I -S shim.py FOLDER RUN GRACE_S LOG LOG_BYTES CWD -- ARGV...` by replica.py. It stands alone (standard
library only, nothing of voda), so that it starts in milliseconds and no later voda can break it. Rules: it holds the
exclusive lock on FOLDER/lock for its whole life, and starts nothing unless FOLDER/grant names its RUN by then; when
the program ends it writes FOLDER/exit.json into a file whose blocks it reserved at the start (a full disk loses no
exit), kills what the program left behind, and only then exits.

SIGTERM: the same to the program's process group, after GRACE_S SIGKILL to every descendant.
"""

import ctypes
import fcntl
import os
import signal
import sys
import time

NOT_MINE = 75
"""Exit status of a shim that found another one at work, or its run taken back: it started nothing."""
CANNOT_WRITE = 74
NOT_FOUND = 127
NOT_RUNNABLE = 126
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
RESERVED_BYTES = 2048
KEPT_BYTES = 1 << 20
"""How much stays of an output that outgrew its limit."""
SIGNAL_LAG_S = 0.05
"""How much later than its program a shim may get the SIGTERM of a machine that shuts down."""
SIGNALS = frozenset({signal.SIGTERM, signal.SIGCHLD})


def main(words: list[str]) -> int:
    """Run one program to its end and return the shim's own exit status."""
    folder, run, grace_s, log, log_bytes, cwd = words[:6]
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return NOT_MINE
    if first_line(folder, "grant") != run or f'"run":{run},' in first_line(folder, "exit.json"):
        return NOT_MINE
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    log_at = size_of(log)
    # In ticks since boot: with the pid it names a process for good.
    began = int(stat_of(os.getpid())[19])
    note = f'{{"run":{run},"pid":{os.getpid()},"start":{began},"log_at":{log_at}}}\n'
    try:
        reserve(folder)
        replace(folder, "process.json", note.encode())
    except OSError as error:
        os.write(2, f"voda: {folder} cannot be written: {error.strerror}\n".encode())
        return CANNOT_WRITE
    pid, problem = start(words[words.index("--") + 1 :], cwd)
    ending, was_told = watch(pid, float(grace_s), log, int(log_bytes))
    code, killer = (os.waitstatus_to_exitcode(ending), 0) if not os.WIFSIGNALED(ending) else (-1, os.WTERMSIG(ending))
    was_told_json = "true" if was_told else "false"
    now = time.time()  # noqa: TID251 - stands alone
    ended = f'"code":{code},"signal":{killer},"was_told":{was_told_json},"ended_at":{now},"problem":"{problem}"'
    write_exit(folder, f'{{"run":{run},{ended}}}')
    kill_descendants()
    return 0


def start(argv: list[str], cwd: str) -> tuple[int, str]:
    """Start the program in a process group of its own; return its pid, and why it could not run, a sentence."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        become(argv, cwd, write_end, parent)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        problem = pipe.read().decode("utf-8", "replace")
    if problem:
        os.write(2, f"voda: {problem}\n".encode())
    return pid, "".join(char for char in problem if char.isprintable() and char not in '"\\')[:1000]


def become(argv: list[str], cwd: str, problems: int, parent: int) -> None:
    """Turn into the program, or write why not to a descriptor; never returns."""
    status, what = NOT_RUNNABLE, f"working directory {cwd}"
    try:
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(NOT_MINE)
        os.chdir(cwd)
        what = f"command {argv[0]}"
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(argv[0], argv)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        status = NOT_FOUND if missing else NOT_RUNNABLE
        os.write(problems, f"{what}: {'not found' if missing else os.strerror(error.errno or 0)}".encode())
    finally:
        os._exit(status)


def trim(path: str, most: int) -> None:
    """Cut an output that outgrew a size to its end; its writers append, so they go on at the new end."""
    size = size_of(path)
    if size <= most:
        return
    try:
        with open(path, "r+b") as file:
            file.seek(max(0, size - min(KEPT_BYTES, most // 2)))
            end = file.read()
            file.truncate(0)
        with open(path, "ab") as file:
            file.write(f"[voda: output before this was dropped, it outgrew {most} bytes]\n".encode() + end)
    except OSError:
        return


def watch(pid: int, grace_s: float, log: str, log_bytes: int) -> tuple[int, bool]:
    """Wait for the program's end and handle signals meanwhile; return its wait status, and if it was told to end."""
    kill_at = float("inf")
    while True:
        ended = reaped(pid)
        if ended is not None:
            # A machine that shuts down signals all processes at once, and the program may have got it first.
            return ended, kill_at < float("inf") or signal.sigtimedwait({signal.SIGTERM}, SIGNAL_LAG_S) is not None
        trim(log, log_bytes)
        received = signal.sigtimedwait(SIGNALS, max(0.0, min(1.0, kill_at - time.monotonic())))  # noqa: TID251 - stands alone
        if received and received.si_signo == signal.SIGTERM and kill_at == float("inf"):
            signal_group(pid, signal.SIGTERM)
            signal_group(pid, signal.SIGCONT)
            kill_at = time.monotonic() + grace_s  # noqa: TID251 - stands alone
        if time.monotonic() >= kill_at:  # noqa: TID251 - stands alone
            for descendant in descendants(os.getpid()):
                kill(descendant)


def reaped(main_pid: int) -> int | None:
    """Wait for every child that ended, and return the program's wait status if it was among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == main_pid:
            found = status


def kill_descendants() -> None:
    """Kill all descendants, and return when none is left."""
    while True:
        reaped(0)
        left = descendants(os.getpid())
        if not left:
            return
        for pid in left:
            kill(pid)
        signal.sigtimedwait({signal.SIGCHLD}, 0.02)


def descendants(ancestor: int) -> list[int]:
    """Return the ids of all processes below one, also of ended ones that were not waited for."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_of(int(name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    pending = [ancestor]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def stat_of(pid: int) -> list[str]:
    """Return /proc/PID/stat from its third field on (state, parent, ...); empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().decode("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def signal_group(pid: int, number: int) -> None:
    """Signal a process group, if it is still there."""
    try:
        os.killpg(pid, number)
    except OSError:
        return


def kill(pid: int) -> None:
    """Kill a process, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return


def reserve(folder: str) -> None:
    """Reserve the blocks that the exit will need."""
    with open(os.path.join(folder, "exit.tmp"), "wb") as file:
        file.write(b" " * RESERVED_BYTES)
        file.flush()
        os.fsync(file.fileno())


def write_exit(folder: str, text: str) -> None:
    """Write the exit into the reserved blocks and put it into its place, durably."""
    path = os.path.join(folder, "exit.tmp")
    with open(path, "r+b") as file:
        file.write(text.encode()[: RESERVED_BYTES - 1].ljust(RESERVED_BYTES - 1) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(path, os.path.join(folder, "exit.json"))
    opened = os.open(folder, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)


def replace(folder: str, name: str, content: bytes) -> None:
    """Write a small file whole or not at all."""
    path = os.path.join(folder, name)
    with open(path + ".tmp", "wb") as file:
        file.write(content)
    os.rename(path + ".tmp", path)


def first_line(folder: str, name: str) -> str:
    """Return a small file's first line; empty if it is not there."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return ""


def size_of(path: str) -> int:
    """Return a file's size; 0 if it is not there."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def prctl(option: int, value: int) -> None:
    """Ask the kernel for something about this process."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

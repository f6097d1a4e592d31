"""The parent of one replica's program: starts it, outlives voda, and writes down how the program ended.

Run as `python -I -S shim.py FOLDER RUN GRACE_S LOG_BYTES` by replica.py, which hands it the program on standard input:
nothing that a user chose is in its own environment. It needs the standard library alone: it starts in milliseconds, and
no later voda can break it. Rules: it holds the exclusive lock on FOLDER/lock for its life, and starts nothing unless
FOLDER/grant names its RUN by then; when the program ends it writes FOLDER/exit.json into blocks reserved at the start,
kills what is left, and only then exits. The program may write FOLDER too: only regular files are opened there, and the
output is cut by standard output: what the program prints to is standard error here. SIGTERM: the same to the ranks of
MPI first, then to the program's group; after GRACE_S, or on KILL, SIGKILL to every descendant.
"""

import ctypes
import errno
import fcntl
import os
import resource
import signal
import stat
import struct
import sys
import time
from contextlib import suppress

NOT_MINE, CANNOT_WRITE, NOT_FOUND, NOT_RUNNABLE = 75, 74, 127, 126  # the first: another is at work, or no run granted
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, JOIN_SESSION_KEYRING = 1, 36, 38, 1
# What prctl sets and programs inherit: securebits, timer slack (ns), bad memory, no huge pages, flushing, merging.
OF_KERNEL, MOST_DESCRIPTORS = ((28, 0), (29, 50_000), (33, 0), (41, 0), (57, 0), (67, 0)), 1 << 20
KEYCTL, IOPRIO_SET, SET_MEMPOLICY = {"x86_64": (250, 251, 238), "aarch64": (219, 30, 237)}.get(os.uname()[4], (-1,) * 3)
OOM_SCORE, CLEAR_TRIES = "500", 250  # programs are killed before voda and shims; of removing a group, 0.02 s apart
START_S = 60.0  # in which a program has begun, or is killed: its working directory may hang, or its user stop it
PROBLEM_BYTES, SECRET_BYTES = 4096, 64 << 10  # most that is said, which a pipe takes at once; of a variable's file
OUTPUT, KEPT_BYTES = 1, 1 << 20  # its descriptor, for reading and appending; what stays of one that is too long
RESERVED_BYTES, LINE_BYTES = 2048, 4096
INSTANT = struct.Struct("<Qd")  # in FOLDER/times: a size of the output, and when it had that size by
SHORTEST_PAUSE_S, LONGEST_PAUSE_S, SIGNAL_LAG_S = 0.05, 1.0, 0.05  # between looks; how late a shutdown's SIGTERM is
RANK, TELL_RANK = "voda-rank", signal.SIGRTMIN + 7  # name and signal of a process before a rank, see rsh_agent.py
SIGNALS = frozenset({signal.SIGTERM, signal.SIGCHLD, KILL := signal.SIGUSR2})  # the last one: no grace is left


def main(words: list[str]) -> int:
    """Run one program to its end and return the shim's own exit status."""
    folder, run, grace_s, log_bytes = words
    os.closerange(3, MOST_DESCRIPTORS)  # what voda was started with is nothing for its users
    program = program_to_start()
    try:
        lock = open_regular(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return NOT_MINE
    except OSError as error:
        return cannot_write(folder, error)
    if first_line(folder, "grant") != run or f'"run":{run},' in first_line(folder, "exit.json"):
        return NOT_MINE
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    began = int(stat_of(os.getpid())[19])  # in ticks since boot: with the pid it names a process for good
    note = f'{{"run":{run},"pid":{os.getpid()},"start":{began},"log_at":{os.fstat(OUTPUT).st_size}}}\n'
    try:
        write_durably(open_new(os.path.join(folder, "exit.tmp")), b" " * RESERVED_BYTES)  # what the exit will need
        replace(folder, "process.json", note.encode())
    except OSError as error:
        return cannot_write(folder, error)
    ending, was_told, problem = watch(folder, *start(program), float(grace_s), int(log_bytes))
    code, killer = (os.waitstatus_to_exitcode(ending), 0) if not os.WIFSIGNALED(ending) else (-1, os.WTERMSIG(ending))
    now, limit = time.time(), memory_limit(program["cgroups"])  # noqa: TID251 - stands alone
    ended = f'"code":{code},"signal":{killer},"was_told":{str(was_told).lower()},"ended_at":{now},"problem":"{problem}"'
    try:
        write_exit(folder, f'{{"run":{run},"memory_limit_bytes":{limit},{ended}}}')
    except OSError as error:
        return cannot_write(folder, error)
    finally:
        kill_descendants()
        for group in program["cgroups"]:
            clear(group)
        trim(folder, int(log_bytes), [-1.0, 0.0])  # a lot may have been printed since the last look
    return 0


def program_to_start() -> dict[str, list[str]]:
    """Read from standard input what to start, and close it; name -> words.

    argv; env (NAME=VALUE); folders: it begins in the first that is there; files (NAME=PATH): variables whose values lie
    in files of its user; cgroups: where it goes before it runs; user: uid, gid and groups, none where it runs as the
    user who runs this; limits (NUMBER:SOFT:HARD): of resources, for another user's.
    """
    with open(0, "rb", closefd=False) as file:
        words = [os.fsdecode(word) for word in file.read().split(b"\0")]
    os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
    found: dict[str, list[str]] = {}
    while len(words) > 1:
        name, count = words[0], int(words[1])
        found[name] = words[2 : 2 + count]
        del words[: 2 + count]
    return found


def start(program: dict[str, list[str]]) -> tuple[int, int]:
    """Start the program in a process group of its own; return its pid, and where it says why it could not run."""
    problems, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.dup2(2, OUTPUT)  # another open file: the program may change its flags, and where it writes
        become(program, write_end, parent)
    os.close(write_end)
    with suppress(OSError):  # nothing waits for it to begin: once it is its user's, that user can stop it
        os.setpgid(pid, pid)  # as it does itself: whoever is first, a signal to the group finds it
    return pid, problems


def told_problem(problems: int) -> str | None:
    """Return why the program could not run, a sentence, or "" where it began; None as long as it does neither."""
    try:
        problem = os.read(problems, PROBLEM_BYTES).decode("utf-8", "replace")
    except BlockingIOError:
        return None
    if problem:
        os.write(OUTPUT, f"voda: {problem}\n".encode())
    return "".join(char for char in problem if char.isprintable() and char not in '"\\')[:1000]


def become(program: dict[str, list[str]], problems: int, parent: int) -> None:
    """Turn into the program, or write why not to a descriptor; never returns."""
    status, argv, what = NOT_RUNNABLE, program["argv"], "its user and control groups"
    try:
        if os.getpgrp() != os.getpid():  # the leader of a session (see exec/supervisor.py) leads its group already
            os.setpgid(0, 0)
        for group in program["cgroups"]:
            with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as file:
                file.write("0")
        names, values = ("oom_score_adj", "coredump_filter", "loginuid"), (OOM_SCORE, "0x33", *program["user"][:1])
        for name, value in zip(names, values, strict=False):  # the last one: whom the kernel's audit names
            with suppress(OSError), open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(value)
        if program["user"]:
            change_user(program["limits"], *map(int, program["user"]))
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # which the kernel forgets when a process changes its user
        if os.getppid() != parent:
            os._exit(NOT_MINE)
        folders = program["folders"]
        folder = next((each for each in folders if os.path.isdir(each) and os.access(each, os.X_OK)), folders[-1])
        what = f"working directory {folder}"
        os.chdir(folder)
        env = dict(word.split("=", 1) for word in program["env"])
        for word in program["files"]:
            name, what = word.split("=", 1)
            what = f"the file {what} of the variable {name}"
            env[name] = secret(word.split("=", 1)[1])
        what = f"command {argv[0]}"
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        run(argv, env)
    except Exception as error:
        status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
        os.write(problems, f"{what}: {reason_of(error)}".encode("utf-8", "replace")[:PROBLEM_BYTES])
    finally:
        os._exit(status)


def run(argv: list[str], env: dict[str, str]) -> None:
    """Run a command, found by its own PATH; not by os.execvpe, which imports from where its user may not read."""
    if "/" in argv[0]:
        os.execve(argv[0], argv, env)
    problem: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        try:
            os.execve(os.path.join(folder, argv[0]), argv, env)
        except OSError as error:
            problem = problem if error.errno in (errno.ENOENT, errno.ENOTDIR) else error
    raise problem


def change_user(limits: list[str], uid: int, gid: int, *groups: int) -> None:
    """Become another user for good, who has nothing of the one before: rights, keys, limits, a place before others."""
    for number, soft, hard in (map(int, limit.split(":")) for limit in limits):
        resource.setrlimit(number, (soft, hard))
    os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))
    for option, value in OF_KERNEL:
        prctl(option, value)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(IOPRIO_SET, 1, 0, 0)
    libc.syscall(SET_MEMPOLICY, 0, None, 0)
    libc.personality(0)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    libc.capset(struct.pack("<Ii", 0x20080522, 0), bytes(24))  # those that could be inherited stay with the user
    os.umask(0o077)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if libc.syscall(KEYCTL, JOIN_SESSION_KEYRING, None) < 0 and ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):
        raise OSError(ctypes.get_errno(), f"no session keyring of its own ({os.strerror(ctypes.get_errno())})")


def clear(group: str) -> None:
    """Kill what is left in a control group, and remove it."""
    for _ in range(CLEAR_TRIES):
        for pid in lines_of(group, "cgroup.procs"):
            kill(int(pid))
        with suppress(OSError):
            return os.rmdir(group)
        reaped(0)
        signal.sigtimedwait({signal.SIGCHLD}, 0.02)


def memory_limit(groups: list[str]) -> str:
    """Return the limit of control groups in which the kernel killed for memory, and say so; null: it did not."""
    for group in groups:
        for file, limit in (("memory.events", "memory.max"), ("memory.oom_control", "memory.limit_in_bytes")):
            if any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines_of(group, file)):
                with suppress(OSError):  # a full disk; or the program moved the place where both write beyond all files
                    os.write(OUTPUT, b"voda: the kernel killed processes of it: its memory limit was reached\n")
                return next(filter(str.isdigit, lines_of(group, limit)), "0")
    return "null"


def lines_of(group: str, file: str) -> list[str]:
    """Return the lines of a file of a control group or of /proc, if it is there."""
    with suppress(OSError), open(os.path.join(group, file), encoding="ascii", errors="replace") as opened:
        return opened.read().splitlines()
    return []


def secret(path: str) -> str:
    """Return what a small file holds, without its last newline; OSError where others than its user may read it."""
    opened = open_regular(path, os.O_RDONLY)
    status = os.fstat(opened)
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"it belongs to uid {status.st_uid}, expected {os.geteuid()}, the job's user")
    if status.st_mode & 0o077:
        raise OSError(errno.EPERM, f"others may read it (mode {status.st_mode & 0o777:03o}): chmod 600 it")
    content = os.read(opened, SECRET_BYTES + 1)
    os.close(opened)
    if len(content) > SECRET_BYTES:
        raise OSError(errno.EFBIG, f"it holds more than {SECRET_BYTES} bytes")
    if b"\0" in content:
        raise OSError(errno.EINVAL, "it holds a NUL byte, which no variable can have")
    return os.fsdecode(content[:-1] if content.endswith(b"\n") else content)


def reason_of(error: Exception) -> str:
    """Return what went wrong, as the end of a sentence."""
    known = {errno.ENOENT: "not found", errno.E2BIG: "its command line or environment is too long"}
    known[errno.ELOOP] = "it is a symbolic link, which is not followed"
    return known.get(getattr(error, "errno", None) or 0) or getattr(error, "strerror", None) or str(error)


def trim(folder: str, most: int, noted: list[float]) -> int:
    """Cut an output that outgrew a size to its end, where its writers go on, and return its size; note when it grew."""
    with suppress(OSError):
        size, reserved = (status := os.fstat(OUTPUT)).st_size, 512 * status.st_blocks
        if size > most or reserved > 2 * most + KEPT_BYTES:  # file systems set aside as much again, programs any amount
            kept = min(KEPT_BYTES, most // 2, size)
            end = os.pread(OUTPUT, kept, size - kept)
            os.ftruncate(OUTPUT, 0)
            os.write(OUTPUT, b"[voda: output before this was dropped, it outgrew %d bytes]\n" % most + end)
            replace(folder, "cut", b"\n")  # what is printed meanwhile may come before the notice
        size = os.fstat(OUTPUT).st_size
        with open(open_regular(os.path.join(folder, "times"), os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as times:
            rarely_s = 1 << min(os.fstat(times.fileno()).st_size >> 17, 30)  # 1 s, and more the more is noted
            if size < noted[0] or (size > noted[0] and abs(time.time() - noted[1]) >= rarely_s):  # noqa: TID251 - stands alone
                noted[:] = size, time.time()  # noqa: TID251 - stands alone
                times.write(INSTANT.pack(size, noted[1]))
    return os.fstat(OUTPUT).st_size


def watch(folder: str, pid: int, problems: int, grace_s: float, log_bytes: int) -> tuple[int, bool, str]:
    """Handle signals until the program ends; return its wait status, if it was told to, and why it could not run."""
    problem, was_told, is_passed_on, kill_at = None, False, False, time.monotonic() + START_S  # noqa: TID251 - stands alone
    pause_s, size, noted = SHORTEST_PAUSE_S, os.fstat(OUTPUT).st_size, [-1.0, 0.0]
    while True:
        ended = reaped(pid)
        if problem is None and (problem := told_problem(problems)) is not None and not was_told:
            kill_at = float("inf")
        if ended is not None:
            was_told = was_told or signal.sigtimedwait({signal.SIGTERM}, SIGNAL_LAG_S) is not None
            return ended, was_told, problem or ""
        before, size = size, trim(folder, log_bytes, noted)
        full_in_s = (log_bytes - size) * pause_s / max(1, size - before)
        pause_s = min(LONGEST_PAUSE_S / (4 if was_told else 1), 2 * pause_s, max(SHORTEST_PAUSE_S, full_in_s / 2))
        received = signal.sigtimedwait(SIGNALS, min(pause_s, max(SHORTEST_PAUSE_S, kill_at - time.monotonic())))  # noqa: TID251 - stands alone
        if received and (received.si_signo == KILL or (received.si_signo == signal.SIGTERM and not was_told)):
            was_told, kill_at = True, time.monotonic() + (0 if received.si_signo == KILL else grace_s)  # noqa: TID251
        is_passed_on = is_passed_on or (was_told and tell(pid))
        if time.monotonic() >= kill_at:  # noqa: TID251 - stands alone
            if problem is None and not was_told:
                problem = f"it did not begin within {START_S:.0f} s, and was killed"
            for descendant in descendants(os.getpid()):
                kill(descendant)


def tell(pid: int) -> bool:
    """Tell the ranks to end, or where none is left the group of the mpirun that would kill them; return if that."""
    ranks = [each for each in descendants(os.getpid()) if lines_of(f"/proc/{each}", "comm") == [RANK]]
    for told, number in [(rank, TELL_RANK) for rank in ranks] or ((-pid, signal.SIGTERM), (-pid, signal.SIGCONT)):
        kill(told, number)
    return not ranks


def reaped(main_pid: int) -> int | None:
    """Wait for every child that ended, and return the program's wait status if it was among them."""
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == main_pid:
                found = ended[1]
    return found


def kill_descendants() -> None:
    """Kill all descendants, and return when none is left."""
    while not reaped(0) and (left := descendants(os.getpid())):
        for pid in left:
            kill(pid)
        signal.sigtimedwait({signal.SIGCHLD}, 0.02)


def descendants(ancestor: int) -> list[int]:
    """Return the ids of all processes below one, also of ended ones that were not waited for."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat_of(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    found = children.get(ancestor, [])
    for pid in found:  # which grows meanwhile
        found += children.get(pid, [])
    return found


def stat_of(pid: int) -> list[str]:
    """Return /proc/PID/stat from its third field on (state, parent, ...); empty if there is no such process."""
    return "\n".join(lines_of(f"/proc/{pid}", "stat")).rpartition(")")[2].split()


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Kill or signal a process, or with a negative id a process group, if it is still there."""
    with suppress(OSError):
        os.kill(pid, number)


def write_durably(opened: int, content: bytes) -> None:
    """Write to the beginning of an open file, close it, and return once what was written outlives a crash."""
    with open(opened, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_exit(folder: str, text: str) -> None:
    """Write the exit into the reserved blocks and put it into its place, durably."""
    path = os.path.join(folder, "exit.tmp")
    write_durably(open_regular(path, os.O_RDWR), text.encode()[: RESERVED_BYTES - 1].ljust(RESERVED_BYTES - 1) + b"\n")
    os.rename(path, os.path.join(folder, "exit.json"))
    os.fsync(os.open(folder, os.O_RDONLY))


def replace(folder: str, name: str, content: bytes) -> None:
    """Write a small file whole or not at all."""
    path = os.path.join(folder, name)
    with open(open_new(path + ".tmp"), "wb") as file:
        file.write(content)
    os.rename(path + ".tmp", path)


def first_line(folder: str, name: str) -> str:
    """Return a small file's first line; empty if it is not there."""
    with suppress(OSError), open(open_regular(os.path.join(folder, name), os.O_RDONLY), "rb") as file:
        return file.read(LINE_BYTES).decode("utf-8", "replace").partition("\n")[0].strip()
    return ""


def open_regular(path: str, flags: int) -> int:
    """Open a file of the folder; OSError where it is a link or no regular file, as a FIFO would block for ever."""
    opened = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "no regular file")
    return opened


def open_new(path: str) -> int:
    """Open a new file for writing, in place of whatever is there."""
    if os.path.lexists(path):
        os.unlink(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)


def cannot_write(folder: str, error: OSError) -> int:
    """Say in the output why the folder cannot be used, and return the exit status for it."""
    os.write(2, f"voda: {folder} cannot be written: {error.strerror}\n".encode())
    return CANNOT_WRITE


def prctl(option: int, value: int) -> None:
    """Ask the kernel for something about this process."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

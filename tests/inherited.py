"""What a process passes on to those that it starts (execve(2), fork(2)): root's own, and what a program sees of it.

Rule: what a test changes of its own process is as before after it, but for its session keyring, which is a new one.
"""

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from voda.process_table import limits_at_login

_KEYCTL: Final = {"x86_64": (250, 248), "aarch64": (219, 217)}[os.uname().machine]
"""The system calls keyctl and add_key."""
_JOIN_SESSION, _SEARCH, _SESSION, _SET_SLACK, _GET_SLACK = 1, 10, -3, 29, 30
_NAME: Final = b"voda-test-roots"
_DESCRIPTOR: Final = 63
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_SHOW: Final = f"""
import ctypes, os, resource
libc = ctypes.CDLL(None)
print("descriptors", *sorted(int(each) for each in os.listdir("/proc/self/fd") if int(each) != 3))
print("key", libc.syscall({_KEYCTL[0]}, {_SEARCH}, {_SESSION}, b"user", {_NAME!r}, 0) > 0)
print("limits", *(resource.getrlimit(number) for number in {sorted(limits_at_login())}))
print("nice", os.getpriority(os.PRIO_PROCESS, 0), "timer slack", libc.prctl({_GET_SLACK}, 0, 0, 0, 0))
print("scheduler", os.sched_getscheduler(0), "mask", oct(os.umask(0)))
"""


def showing(folder: Path) -> str:
    """Write a program that prints what it has from the process that started it, and return its command."""
    path = folder / "show.py"
    path.write_text(_SHOW)
    path.chmod(0o644)
    return f"/usr/bin/python3 -I {path}"


def nothing_of_roots(nice: int = 10) -> list[str]:
    """Return what the program prints that has nothing of what `roots_own` sets: all is as at a login, but `nice`."""
    limits = " ".join(str(limits) for _, limits in sorted(limits_at_login().items()))
    return [
        *("descriptors 0 1 2", "key False", f"limits {limits}"),
        *(f"nice {nice} timer slack 50000", f"scheduler {os.SCHED_OTHER} mask 0o77"),
    ]


@contextmanager
def roots_own(folder: Path) -> Iterator[None]:
    """Let this process have, for the block, what root's shell may have and no user's program should."""
    nofile, core = resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE)
    nice, slack = os.getpriority(os.PRIO_PROCESS, 0), _LIBC.prctl(_GET_SLACK, 0, 0, 0, 0)
    descriptor = os.open(folder / "roots", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(descriptor, _DESCRIPTOR, inheritable=True)
    os.close(descriptor)
    mask = os.umask(0o002)
    try:
        assert _LIBC.syscall(_KEYCTL[0], _JOIN_SESSION, None) > 0, "no session keyring can be made here"
        assert _LIBC.syscall(_KEYCTL[1], b"user", _NAME, b"secret", 6, _SESSION) > 0, "no key can be added here"
        resource.setrlimit(resource.RLIMIT_NOFILE, (nofile[0] - 1, nofile[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (4_096, core[1]))
        os.setpriority(os.PRIO_PROCESS, 0, -5)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        _LIBC.prctl(_SET_SLACK, 1_000_000, 0, 0, 0)
        yield
    finally:
        os.close(_DESCRIPTOR)
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_NOFILE, nofile)
        resource.setrlimit(resource.RLIMIT_CORE, core)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        _LIBC.prctl(_SET_SLACK, slack, 0, 0, 0)

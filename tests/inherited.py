"""What a process passes on to those that it starts (execve(2), fork(2)): root's own, and what a program sees of it.

Rule: what a test changes of its own process is as before after it, but for its session keyring, which is a new one.
"""

import ctypes
import os
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from voda.process_table import limits_at_login

_KEYCTL: Final = {"x86_64": (250, 248), "aarch64": (219, 217)}[os.uname().machine]
"""The system calls keyctl and add_key."""
_IO_PRIORITY: Final = {"x86_64": (251, 252), "aarch64": (30, 31)}[os.uname().machine]
"""The system calls that set and tell it."""
_MEMORY_POLICY: Final = {"x86_64": (238, 239), "aarch64": (237, 236)}[os.uname().machine]
"""The same for NUMA."""
_JOIN_SESSION, _SEARCH, _SESSION, _SET_SLACK, _GET_SLACK = 1, 10, -3, 29, 30
_SET_NO_HUGE_PAGES, _GET_NO_HUGE_PAGES, _SET_BAD_MEMORY, _GET_BAD_MEMORY, _KERNELS = 41, 42, 33, 34, 2
_IDLE, _LOCAL, _NO_RANDOM_ADDRESSES, _AMBIENT, _RAISE, _NET_RAW = 3 << 13, 4, 0x0040000, 47, 2, 13
_CAPABILITIES: Final = struct.pack("<Ii", 0x20080522, 0)
"""Header of capget and capset: 64 of them, of this thread."""
_DUMPED: Final = "/proc/self/coredump_filter"
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
print("input, output", libc.syscall({_IO_PRIORITY[1]}, 1, 0), "personality", hex(libc.personality(0xFFFFFFFF)))
mode = ctypes.c_int(-1)
libc.syscall({_MEMORY_POLICY[1]}, ctypes.byref(mode), None, 0, None, 0)
print("memory", mode.value, "dumped", open({_DUMPED!r}).read().strip())
print("huge pages", not libc.prctl({_GET_NO_HUGE_PAGES}, 0, 0, 0, 0), "bad", libc.prctl({_GET_BAD_MEMORY}, 0, 0, 0, 0))
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
print("capabilities", *(status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")))
"""


def showing(folder: Path) -> str:
    """Write a program that prints what it has from the process that started it, and return its command."""
    path = folder / "show.py"
    path.write_text(_SHOW)
    path.chmod(0o644)
    return f"/usr/bin/python3 -I {path}"


def nothing_of_roots(nice: int = 5) -> list[str]:
    """Return what the program prints that has nothing of what `roots_own` sets: all is as at a login, but `nice`."""
    limits = " ".join(str(limits) for _, limits in sorted(limits_at_login().items()))
    return [
        *("descriptors 0 1 2", "key False", f"limits {limits}"),
        *(f"nice {nice} timer slack 50000", f"scheduler {os.SCHED_OTHER} mask 0o77"),
        *("input, output 0 personality 0x0", "memory 0 dumped 00000033", f"huge pages True bad {_KERNELS}"),
        f"capabilities {' '.join(['0' * 16] * 4)}",
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
    capabilities = ctypes.create_string_buffer(24)
    _LIBC.capget(_CAPABILITIES, capabilities)
    try:
        assert _LIBC.syscall(_KEYCTL[0], _JOIN_SESSION, None) > 0, "no session keyring can be made here"
        assert _LIBC.syscall(_KEYCTL[1], b"user", _NAME, b"secret", 6, _SESSION) > 0, "no key can be added here"
        resource.setrlimit(resource.RLIMIT_NOFILE, (nofile[0] - 1, nofile[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (4_096, core[1]))
        os.setpriority(os.PRIO_PROCESS, 0, -5)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        _LIBC.prctl(_SET_SLACK, 1_000_000, 0, 0, 0)
        _set_what_few_know(_IDLE, _LOCAL, _NO_RANDOM_ADDRESSES, 1)
        Path(_DUMPED).write_text("0xff")
        raised = bytearray(capabilities.raw)
        raised[8 + _NET_RAW // 8] |= 1 << _NET_RAW % 8
        _LIBC.capset(_CAPABILITIES, bytes(raised))
        _LIBC.prctl(_AMBIENT, _RAISE, _NET_RAW, 0, 0)
        yield
    finally:
        os.close(_DESCRIPTOR)
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_NOFILE, nofile)
        resource.setrlimit(resource.RLIMIT_CORE, core)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        _LIBC.prctl(_SET_SLACK, slack, 0, 0, 0)
        _set_what_few_know(0, 0, 0, 0)
        Path(_DUMPED).write_text("0x33")
        _LIBC.capset(_CAPABILITIES, capabilities.raw)


def _set_what_few_know(io: int, memory: int, personality: int, setting: int) -> None:
    _LIBC.syscall(_IO_PRIORITY[0], 1, 0, io)
    _LIBC.syscall(_MEMORY_POLICY[0], memory, None, 0)
    _LIBC.personality(personality)
    _LIBC.prctl(_SET_NO_HUGE_PAGES, setting, 0, 0, 0)
    _LIBC.prctl(_SET_BAD_MEMORY, setting, setting, 0, 0)

"""Leases on files (fcntl F_SETLEASE), as a job takes them: whoever opens such a file is put off, or refused.

with a_lease(folder / "lock"): ...
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("leased", flush=True)
signal.pause()
"""
"""A program that keeps a lease on a file for as long as the kernel lets it: 45 s after another one opened the file."""


@contextmanager
def a_lease(path: Path) -> Iterator[None]:
    """Have another process keep a lease on a file, which is made where it is missing, for the block."""
    with subprocess.Popen([sys.executable, "-c", LEASE, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == b"leased\n"
            yield
        finally:
            holder.kill()

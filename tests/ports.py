"""Ports of this machine for servers that cannot choose one themselves.

Rule: no port is given twice within a long while, to whichever process of tests asks, and none that the kernel may give
meanwhile to whoever asks for any: a server may be started late, or killed and started again, on the port it was given.
"""

import errno
import fcntl
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

_FIRST, _END = 12_000, 32_000
"""Below those that Linux gives to whoever asks for any, from 32768 on."""


def free_port() -> int:
    """Return a port of this machine that nobody listens on, and that nobody else is given before many others were."""
    # By number: of another user's file nothing could be written.
    path = Path(tempfile.gettempdir()) / f"voda-test-ports-{os.getuid()}"
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # Users begin apart from each other.
        port = _FIRST + os.getuid() * 997 % (_END - _FIRST)
        with suppress(ValueError):
            port = int(file.read())
        for _ in range(_END - _FIRST):
            port = port + 1 if _FIRST <= port < _END - 1 else _FIRST
            if _is_free(port):
                file.seek(0)
                file.write(f"{port:05}")
                return port
    raise OSError(errno.EADDRINUSE, f"no port from {_FIRST} to {_END - 1} is free")


def _is_free(port: int) -> bool:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True

"""How much memory strangers without a token take from a voda by requests whose heads do not end, and what stays.

498 connections each send 97 lines of 16 kB, or as many as are taken; then all are closed.
"""

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Final
from urllib.parse import urlsplit

from benchmarks.served import Served, resident_bytes, serving
from benchmarks.table import Row

TITLE = "Memory taken by heads of requests that do not end"
_CONNECTIONS: Final = 498
_LINES: Final = 97
_LINE: Final = b"%s\r\n" % (b"X: " + b"x" * 15_995)
_SENT_WITHIN_S: Final = 2.0
_REST_S: Final = 5.0
_GOAL_MB: Final = 250.0


def run() -> Sequence[Row]:
    """Return what voda holds while the connections are open, and once they are closed."""
    with serving("--slots", "4") as served:
        before_mb = resident_bytes(served.pid) / 1e6
        with ExitStack() as crowd:
            held_mb = _most_held_mb(served, crowd)
        time.sleep(_REST_S)
        left_mb = resident_bytes(served.pid) / 1e6
    return [
        _memory(f"{_CONNECTIONS} connections with unfinished heads: the most that voda holds", held_mb, before_mb),
        _memory("once they are closed", left_mb, before_mb),
    ]


def _memory(what: str, figure: float, before_mb: float) -> Row:
    return Row(what=what, figure=figure, unit="MB", goal=_GOAL_MB, yardstick="before them", ratio=figure / before_mb)


def _most_held_mb(served: Served, crowd: ExitStack) -> float:
    """Open the connections, send what is taken, and return the most that voda held meanwhile."""
    port, most = urlsplit(served.url).port, 0
    for _ in range(_CONNECTIONS):
        with suppress(OSError):
            one = crowd.enter_context(socket.create_connection(("127.0.0.1", port), timeout=_SENT_WITHIN_S))
            one.sendall(b"GET / HTTP/1.1\r\n" + _LINE * _LINES)
        most = max(most, resident_bytes(served.pid))
    time.sleep(_REST_S)
    return max(most, resident_bytes(served.pid)) / 1e6

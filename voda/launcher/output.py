"""Passes on what a program prints, as it comes, and remembers the last lines.

Rule: a reader that is slow or gone holds up the program at most, never the launcher; hence threads.
"""

import os
import threading
from collections import deque

_CHUNK_BYTES = 65_536
_LINE_BYTES = 2_000
LAST_LINES = 30


class Tail:
    """The last lines that were printed, whichever stream they came by."""

    def __init__(self, lines: int = LAST_LINES) -> None:
        self._lines: deque[bytes] = deque(maxlen=lines)
        self._lock = threading.Lock()

    def add(self, lines: list[bytes]) -> None:
        """Remember complete lines."""
        with self._lock:
            self._lines.extend(lines)

    def text(self) -> list[str]:
        """Return the lines, oldest first."""
        with self._lock:
            return [line.decode(errors="replace").rstrip() for line in self._lines]


class Stream:
    """A pipe whose other end is given to a program.

    Args:
        onto: descriptor that everything is passed on to.
        tail: remembers the lines.
    """

    def __init__(self, onto: int, tail: Tail) -> None:
        self._read_end, self.write_end = os.pipe()
        self._onto = onto
        self._tail = tail
        self._thread = threading.Thread(target=self._pump, name=f"output-{onto}", daemon=True)

    def begin(self) -> None:
        """Start to pass on, once the program has its end; the own copy of that end is closed."""
        os.close(self.write_end)
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Wait until all is passed on that was printed."""
        self._thread.join(timeout_s)

    def _pump(self) -> None:
        rest = b""
        is_read = True
        while chunk := os.read(self._read_end, _CHUNK_BYTES):
            # A program must not stop because nobody reads it any more.
            is_read = is_read and _write(self._onto, chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            self._tail.add([line[-_LINE_BYTES:] for line in lines])
            rest = rest[-_LINE_BYTES:]
        if rest:
            self._tail.add([rest])
        os.close(self._read_end)


def _write(descriptor: int, data: bytes) -> bool:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return False
    return True

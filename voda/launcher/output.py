"""Passes on what a program prints, as it comes, and keeps the end of it.

Rule: a reader that is slow or gone holds up the program at most, never the launcher; hence threads.
"""

import os
import threading

from voda.tail import Tail

_CHUNK_BYTES = 65_536
_LINE_BYTES = 2_000
LAST_LINES = 30


def new_tail() -> Tail:
    """Return a tail that has room for the last lines of a program, whichever pipe they come by."""
    return Tail(LAST_LINES * (_LINE_BYTES + 1))


class OutputPipe:
    """A pipe whose other end is given to a program.

    Args:
        onto: descriptor that everything is passed on to.
        tail: gets whole lines, the long ones cut.
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
            # A program must not stop because its reader is gone.
            is_read = is_read and _write(self._onto, chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._tail.add(line[-_LINE_BYTES:] + b"\n")
            rest = rest[-_LINE_BYTES:]
        if rest:
            self._tail.add(rest + b"\n")
        os.close(self._read_end)


def _write(descriptor: int, data: bytes) -> bool:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return False
    return True

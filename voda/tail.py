"""The last bytes of a text that comes in pieces, from a line's beginning on; several threads may add pieces."""

import threading
from collections import deque


class Tail:
    """Keeps no more of the text than its last `most_bytes` need."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._pieces: deque[bytes] = deque()
        self._kept_bytes = 0
        self.size_bytes = 0
        """Of the whole text so far."""
        self.lines = 0
        """Newlines in the whole text so far."""

    def add(self, piece: bytes) -> None:
        with self._lock:
            self._pieces.append(piece)
            self._kept_bytes += len(piece)
            self.size_bytes += len(piece)
            self.lines += piece.count(b"\n")
            # One byte more than wanted tells whether the first one wanted begins a line.
            while self._kept_bytes - len(self._pieces[0]) > self._most_bytes:
                self._kept_bytes -= len(self._pieces.popleft())

    def text(self) -> bytes:
        """Return what begins at most so far before the end, at a line's beginning; a single long line is cut."""
        with self._lock:
            kept = b"".join(self._pieces)
        if self.size_bytes <= self._most_bytes:
            return kept
        wanted = kept[len(kept) - self._most_bytes - 1 :]
        return wanted[max(wanted.find(b"\n"), 0) + 1 :]

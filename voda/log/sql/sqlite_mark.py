"""A mark beside an SQLite log, `<log>-end`, with the position that the log has reached.

Rule: the mark exists as long as the journal does, and never names more than what is on the disk. SQLite takes the first
frame with a wrong checksum for the journal's end, without an error: one flipped bit, or a cut, loses everything behind
it. The mark shows that there was more. It is not flushed: after a power cut it may be older, never newer.
"""

import logging
import os
from pathlib import Path
from typing import Final
from zlib import crc32

_log = logging.getLogger(__name__)

_DIGITS: Final = 20
_BYTES: Final = 64
"""Less than a sector of a disk, which is written whole or not at all."""


def mark_path(path: Path) -> Path:
    """Return the path of a log's mark: beside the file that a link leads to, as the journal is."""
    found = path.resolve()
    return found.with_name(f"{found.name}-end")


def read_mark(path: Path) -> int:
    """Return the position that the log is known to have reached; 0 if there is no mark, or it is damaged."""
    try:
        with mark_path(path).open("rb") as file:
            content = file.read(_BYTES)
    except OSError:
        return 0
    text, _, checksum = content.rstrip(b"\n").rpartition(b" ")
    digits = text.removeprefix(b"voda ")
    return int(digits) if digits.isdigit() and checksum == _checksum(text) else 0


class HighWaterMark:
    """The mark of one writer; of several writers, each writes its own position.

    Args:
        path: of the log.
    """

    def __init__(self, path: Path) -> None:
        self._path = mark_path(path)
        self._file: int | None = None
        mode = path.stat().st_mode & 0o777
        try:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, mode)
        except OSError as error:
            self._give_up(error)

    def reached(self, position: int) -> None:
        """Write that the log is on the disk up to this position."""
        if self._file is None:
            return
        text = b"voda %0*d" % (_DIGITS, position)
        try:
            os.pwrite(self._file, b"%s %s\n" % (text, _checksum(text)), 0)
        except OSError as error:
            self._give_up(error)

    def close(self, *, journal: Path) -> None:
        """Remove the mark if the journal is gone: then the log's file itself has everything."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if not journal.exists():
            self._path.unlink(missing_ok=True)

    def _give_up(self, error: OSError) -> None:
        # A log without a mark works as well, until it is damaged.
        _log.warning("no mark path=%s reason=%s", self._path, error.strerror)
        if self._file is not None:
            os.close(self._file)
        self._file = None


def _checksum(text: bytes) -> bytes:
    return b"%08x" % crc32(text)

"""A mark beside an SQLite log: how far it has come, in `<log>-end`.

Rule: it lies there as long as the journal does, and never tells more than what is on the disk. SQLite takes a journal
for ended at the first frame whose checksum does not fit, without a word: one flipped bit, or a cut, loses everything
behind it. The mark tells that there was more. It is not flushed: after a power cut it may be older, never newer.
"""

import logging
import os
from pathlib import Path
from typing import Final
from zlib import crc32

_log = logging.getLogger(__name__)

_DIGITS: Final = 20
_BYTES: Final = 64
"""Within one sector of any disk, which is written whole or not at all."""


def mark_path(path: Path) -> Path:
    """Return where the mark of a log lies: beside the file that a link leads to, as its journal does."""
    found = path.resolve()
    return found.with_name(f"{found.name}-end")


def read_mark(path: Path) -> int:
    """Return the position that the log is known to have reached; 0 where no mark tells, or it is damaged itself."""
    try:
        with mark_path(path).open("rb") as file:
            text = file.read(_BYTES)
    except OSError:
        return 0
    said, _, seal = text.rstrip(b"\n").rpartition(b" ")
    digits = said.removeprefix(b"voda ")
    return int(digits) if digits.isdigit() and seal == _seal(said) else 0


class HighWaterMark:
    """The mark of one writer; of several, each tells what it has written itself.

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
        """Tell that the log is on the disk up to this position."""
        if self._file is None:
            return
        said = b"voda %0*d" % (_DIGITS, position)
        try:
            os.pwrite(self._file, b"%s %s\n" % (said, _seal(said)), 0)
        except OSError as error:
            self._give_up(error)

    def close(self, *, journal: Path) -> None:
        """Remove the mark where the journal is gone: then the log's own file holds, and tells, everything."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if not journal.exists():
            self._path.unlink(missing_ok=True)

    def _give_up(self, error: OSError) -> None:
        # A log without a mark is as good as one with it, until it is damaged.
        _log.warning("no mark path=%s reason=%s", self._path, error.strerror)
        if self._file is not None:
            os.close(self._file)
        self._file = None


def _seal(said: bytes) -> bytes:
    return b"%08x" % crc32(said)

"""The journal of an SQLite log, watched for appends of other processes, and a mark that shows whether it was cut.

Rules: a watch only shortens a tail's wait; the tail also looks for itself from time to time. The mark, `<log>-end`,
exists as long as the journal does, and never names more than what is on the disk. SQLite takes the first frame with a
wrong checksum for the journal's end, without an error: one flipped bit, or a cut, loses everything behind it. The mark
shows that there was more. It is not flushed: after a power cut it may be older, never newer.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final
from zlib import crc32

LOOK_S: Final = 0.01
"""Costs about a hundredth of a core, and no thread."""
_AGAIN: Final = frozenset({1, 2, 4, 8, 16, 32})
"""After so many looks at an unchanged journal it notifies again: the change may not have been committed at once if the
disk is slow, and two appends within a tick of the file system's clock, 4 to 10 ms, may leave the same time."""
_LAST_AFTER_OWN: Final = 4
"""The last of those looks after a commit of this process: only another process's within the same tick can be missed."""
_DIGITS: Final = 20
_BYTES: Final = 64
"""Less than a sector of a disk, which is written whole or not at all."""
_STOP_AFTER_S: Final = 3.0

_Stat = tuple[int, int, int] | None


class SqliteNotifier:
    """Looks at the journal, which need not exist, for as long as `listen` is called again and again."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._on_change: Callable[[], None] = lambda: None
        self._seen: _Stat = None
        self._looks = 0
        """Since the last change."""
        self._last = 0
        """Number of the look at which it notifies for the last time."""
        self._listening_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` when the journal has, or may have, changed; it has to be called again every second."""
        loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._listening_until = loop.time() + _STOP_AFTER_S
        if self._timer is None:
            self._seen = _look(self._journal)
            self._timer = loop.call_later(LOOK_S, self._step, loop)

    def skip_own_change(self) -> None:
        """Do not notify of the journal's latest change: it was made by this process, which wakes its tails itself."""
        if self._timer is not None:
            self._seen, self._looks, self._last = _look(self._journal), 2, _LAST_AFTER_OWN

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop.time() > self._listening_until:
            self._timer = None
            return
        self._timer = loop.call_later(LOOK_S, self._step, loop)
        seen = _look(self._journal)
        if seen != self._seen:
            self._seen, self._looks, self._last = seen, 0, max(_AGAIN)
            self._on_change()
        elif self._looks < self._last:
            self._looks += 1
            if self._looks in _AGAIN:
                self._on_change()


def _look(journal: Path) -> _Stat:
    try:
        found = os.stat(journal)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


_log = logging.getLogger(__name__)


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
    """The mark of one writer; of several writers, each writes its own position."""

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

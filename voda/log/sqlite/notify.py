"""Notices that another process appended to an SQLite file, by looking at its journal every few milliseconds.

Rule: it only shortens the wait; whoever hears nothing looks for itself now and then. A look is one `stat`, because
SQLite tells nobody, and not every file system tells who watches it.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

LOOK_S: Final = 0.01
"""Takes about a hundredth of a core's time, and no thread."""
_AGAIN: Final = frozenset({1, 2, 4, 8, 16, 32})
"""Looks after a change at which it is told once more: what was seen may not be committed yet if the disk is slow, and
two appends within a tick of the file system's clock, 4 to 10 ms, may leave one and the same time."""
_LAST_AFTER_OWN: Final = 4
"""Of those looks, after a change of our own: that was committed, so only another's within the same tick is missed."""
_UNWANTED_AFTER_S: Final = 3.0

_Seen = tuple[int, int, int] | None


class SqliteNotifier:
    """Looks for as long as somebody asks again and again.

    Args:
        journal: the file that every append changes; it need not be there.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._on_change: Callable[[], None] = lambda: None
        self._seen: _Seen = None
        self._looks = 0
        """Since the last change."""
        self._last = 0
        """Number of the look at which it is told for the last time."""
        self._wanted_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def want(self, on_change: Callable[[], None]) -> None:
        """Look from now on, and call `on_change` when it has, or may have, changed; ask again every second."""
        loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._wanted_until = loop.time() + _UNWANTED_AFTER_S
        if self._timer is None:
            self._seen = _look(self._journal)
            self._timer = loop.call_later(LOOK_S, self._step, loop)

    def heed_own(self) -> None:
        """Take the journal as it is now for known: it was changed by this process, which tells its readers itself."""
        if self._timer is not None:
            self._seen, self._looks, self._last = _look(self._journal), 2, _LAST_AFTER_OWN

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop.time() > self._wanted_until:
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


def _look(journal: Path) -> _Seen:
    try:
        found = os.stat(journal)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

"""Notices that another process appended to an SQLite file, by looking at its journal every few milliseconds.

Rule: it only shortens a tail's wait; the tail also looks for itself from time to time. A look is one `stat`, because
SQLite sends no notifications, nor does every file system.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

LOOK_S: Final = 0.01
"""Costs about a hundredth of a core, and no thread."""
_AGAIN: Final = frozenset({1, 2, 4, 8, 16, 32})
"""After so many looks at an unchanged journal it notifies again: the change may not have been committed at once if the
disk is slow, and two appends within a tick of the file system's clock, 4 to 10 ms, may leave the same time."""
_LAST_AFTER_OWN: Final = 4
"""The last of those looks after a commit of this process: only another process's within the same tick can be missed."""
_STOP_AFTER_S: Final = 3.0

_Stat = tuple[int, int, int] | None


class SqliteNotifier:
    """Looks at the journal for as long as `listen` is called again and again.

    Args:
        journal: the file that every append changes; it need not exist.
    """

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
        """Stop looking."""
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

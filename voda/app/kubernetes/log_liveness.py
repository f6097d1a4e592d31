"""Whether the leader still reaches the log: one that cannot read or write it decides nothing, and keeps others from it.

Rule: only what lasts counts, from one failure to another without a success between; that nobody appended since a
failure tells nothing. Spans are measured on the event loop's steady clock.
"""

import asyncio
import math
from typing import Final

from voda.domain.errors import StoreNotWritable, StoreUnavailable
from voda.log.store import EventStore

_ASK_S: Final = 3.0
_FAILURES: Final = frozenset({"unavailable", "not_writable"})
_ANSWERS: Final = frozenset({"ok", "conflict", "fenced"})
"""What only a log that is reached says; of an append that was broken off nothing is known."""


class LogLiveness:
    """Watches reads and appends of a log.

    Args:
        store: the log.
        patience_s: for how long it may be out of reach.
    """

    def __init__(self, store: EventStore, *, patience_s: float) -> None:
        self._store = store
        self._patience_s = patience_s
        self._unwritten_since = math.inf
        """When the first of the appends failed of which none succeeded since."""
        self._unwritten_at = -math.inf
        """When the last one failed."""

    @property
    def _unwritten_s(self) -> float:
        """For how long appends failed."""
        return self._unwritten_at - self._unwritten_since

    def appended(self, outcome: str) -> None:
        """Take note of what became of an append (see TimedStore)."""
        if outcome in _ANSWERS:
            self._unwritten_since = math.inf
        if outcome not in _FAILURES:
            return
        now = _now()
        # Failures of long ago tell nothing of today; an append that hangs may itself take as long as patience lasts.
        is_new = now - self._unwritten_at > 2 * self._patience_s
        self._unwritten_since = now if is_new else min(self._unwritten_since, now)
        self._unwritten_at = now

    async def lost(self) -> str:
        """Return once the log was out of reach for too long, and say how."""
        self._unwritten_since, unread_since = math.inf, math.inf
        while True:
            try:
                async with asyncio.timeout(_ASK_S):
                    await self._store.position()
                unread_since = math.inf
            except (StoreUnavailable, StoreNotWritable, TimeoutError):
                unread_since = min(unread_since, _now())
            for lasted_s, what in ((_now() - unread_since, "read"), (self._unwritten_s, "written")):
                if lasted_s >= self._patience_s:
                    return f"the log could not be {what} for {self._patience_s:g} s"
            await asyncio.sleep(self._patience_s / 5)


def _now() -> float:
    return asyncio.get_running_loop().time()

"""Liveness of the log: a leader that cannot read or write it decides nothing, and must let another replica lead.

Rule: what counts is the time from one failure to another without a success between; that nobody appended since a
failure proves nothing. Spans are measured on the event loop's steady clock.
"""

import asyncio
import math
from typing import Final

from voda.domain.errors import StoreNotWritable, StoreUnavailable
from voda.log.store import EventStore

_READ_S: Final = 3.0
_FAILURES: Final = frozenset({"unavailable", "not_writable"})
_ANSWERS: Final = frozenset({"ok", "conflict", "fenced"})
"""What only a log within reach answers; an append that was broken off proves nothing."""


class LogLiveness:
    """Watches reads and appends of a log, which may be out of reach for `tolerance_s`."""

    def __init__(self, store: EventStore, *, tolerance_s: float) -> None:
        self._store = store
        self._tolerance_s = tolerance_s
        self._unwritten_since = math.inf
        """When the first append failed, of those since the last success."""
        self._last_failed_at = -math.inf
        """When the last append failed."""

    def appended(self, outcome: str) -> None:
        """Note what became of an append (see InstrumentedStore)."""
        if outcome in _ANSWERS:
            self._unwritten_since = math.inf
        if outcome not in _FAILURES:
            return
        now = _now()
        # Failures of long ago prove nothing today; an append that hangs may itself take as long as the tolerance.
        is_new = now - self._last_failed_at > 2 * self._tolerance_s
        self._unwritten_since = now if is_new else min(self._unwritten_since, now)
        self._last_failed_at = now

    async def lost(self) -> str:
        """Wait until the log has been out of reach for too long, and return a sentence that says how."""
        self._unwritten_since, unread_since = math.inf, math.inf
        while True:
            try:
                async with asyncio.timeout(_READ_S):
                    await self._store.position()
                unread_since = math.inf
            except (StoreUnavailable, StoreNotWritable, TimeoutError):
                unread_since = min(unread_since, _now())
            unwritten_s = self._last_failed_at - self._unwritten_since
            for lasted_s, what in ((_now() - unread_since, "read"), (unwritten_s, "written")):
                if lasted_s >= self._tolerance_s:
                    return f"the log could not be {what} for {self._tolerance_s:g} s"
            await asyncio.sleep(self._tolerance_s / 5)


def _now() -> float:
    return asyncio.get_running_loop().time()

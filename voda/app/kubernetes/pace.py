"""A steady pace: so many turns a second, and no more at once than a second's worth.

Rule: who waits for a turn holds nothing up but itself.
"""

import asyncio

from voda.clock import Clock


class Pace:
    """Turns at a rate.

    Args:
        per_s: turns a second.
        clock: tells when the last ones were.
    """

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._per_s = per_s
        self._clock = clock
        self._left = max(1.0, per_s)
        self._counted_at = clock.now()

    async def turn(self) -> None:
        """Return when it is one's turn."""
        while (wait_s := self._wait_s()) > 0.0:
            await asyncio.sleep(wait_s)

    def _wait_s(self) -> float:
        """Take a turn and return 0, or return how long none is left."""
        now = self._clock.now()
        most = max(1.0, self._per_s)
        self._left = min(most, self._left + (now - self._counted_at) * self._per_s)
        self._counted_at = now
        if self._left < 1.0:
            return (1.0 - self._left) / self._per_s
        self._left -= 1.0
        return 0.0

"""A rate limiter: so many turns a second, and at most a second's worth at once."""

import asyncio

from voda.clock import Clock


class RateLimiter:
    """Turns at a rate.

    Args:
        per_s: turns a second.
        clock: tells when the last ones were.
    """

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._gap_s = 1.0 / per_s
        self._clock = clock
        self._next_at = 0.0
        """When the next turn is, if there is no pause."""

    async def turn(self) -> None:
        """Return when it is the caller's turn."""
        now = self._clock.now()
        turn_at = max(self._next_at, now - 1.0)
        self._next_at = turn_at + self._gap_s
        if turn_at > now:
            await asyncio.sleep(turn_at - now)

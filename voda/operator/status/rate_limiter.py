"""Turns at a rate, at most a second's worth at once, and a log line where what takes them begins to fail."""

import asyncio
import logging

from voda.clock import Clock


class RateLimiter:
    """Gives so many turns a second."""

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._gap_s = 1.0 / per_s
        self._clock = clock
        self._next_at = 0.0
        """When the next turn is, if there is no pause."""

    async def turn(self) -> None:
        now = self._clock.now()
        turn_at = max(self._next_at, now - 1.0)
        self._next_at = turn_at + self._gap_s
        if turn_at > now:
            await asyncio.sleep(turn_at - now)


class TroubleLog:
    """Logs that something does not work and why, once until it works again."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._is_logged = False

    def failed(self, reason: object) -> None:
        if not self._is_logged:
            self._log.warning("%s reason=%s", self._what, reason)
        self._is_logged = True

    def succeeded(self) -> None:
        self._is_logged = False

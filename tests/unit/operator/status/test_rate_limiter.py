"""Turns at a rate."""

import asyncio

from voda.clock import VirtualClock
from voda.operator.status.rate_limiter import RateLimiter


async def turns(pace: RateLimiter, most: int) -> int:
    """Return how many turns there are without waiting."""
    taken = 0
    for _ in range(most):
        try:
            async with asyncio.timeout(0.0):
                await pace.turn()
        except TimeoutError:
            return taken
        taken += 1
    return taken


async def test_no_more_than_a_seconds_worth_comes_at_once() -> None:
    assert await turns(RateLimiter(20.0, VirtualClock(1_000.0)), 100) in (20, 21)


async def test_idle_time_is_not_saved_up() -> None:
    clock = VirtualClock(1_000.0)
    pace = RateLimiter(20.0, clock)
    await turns(pace, 10)
    clock.move_to(2_000.0)
    assert await turns(pace, 100) in (20, 21)

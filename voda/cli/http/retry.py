"""Requests that survive trouble: lost answers, and batches in which one request fails.

Rules: only idempotent requests are retried, and the user hears why it takes so long; one failure does not stop a
batch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from voda.cli.render.terminal import note
from voda.client.http import RETRY_S, RetrySchedule, trying_again
from voda.domain.errors import TransientError, VodaError

T = TypeVar("T")


async def retry_while_away(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of an idempotent request, retried while the server is away."""
    schedule = RetrySchedule(RETRY_S)
    while True:
        try:
            return await attempt()
        except TransientError as error:
            pause_s = schedule.pause_s(error)
            if schedule.failures == 1:
                note(trying_again(error))
        await asyncio.sleep(pause_s)


async def for_each(things: Sequence[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Call `act` on one item after the other, whatever fails; print all failures but the last, which is raised."""
    failure: VodaError | None = None
    for thing in things:
        try:
            await act(thing)
        except VodaError as error:
            if failure is not None:
                note(str(failure))
            failure = error
    if failure is not None:
        raise failure

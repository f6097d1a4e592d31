"""The tail of a log: yields events as they are appended, and waits for more.

Rule: a signal that the log has grown only shortens the wait; the tail looks for itself from time to time, and goes on
by itself once a store that was away is back.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from voda.concurrency import within
from voda.domain.errors import StoreNotWritable, StoreUnavailable
from voda.events.envelope import Event

TAIL_PAGE = 1000

_log = logging.getLogger(__name__)


class GrowthSignal:
    """Wakes the tails of a log when it has grown."""

    def __init__(self) -> None:
        self._grown: asyncio.Event | None = None
        """What tails wait for; None while there is no tail."""

    def wake(self) -> None:
        # Called after every append, mostly without a tail.
        if self._grown is not None:
            self._grown.set()
            self._grown = None

    async def tail(
        self,
        after: int,
        read: Callable[[int], Awaitable[Sequence[Event]]],
        *,
        poll_s: float | None,
        full_page: int = TAIL_PAGE,
    ) -> AsyncIterator[Event]:
        """Yield every event with position > `after`, then wait for new ones, for ever.

        Args:
            read: returns the next events behind a position; it may subscribe to growth first.
            poll_s: longest wait before the next read; None = until a signal.
            full_page: after fewer events than this the tail waits.
        """
        last_error = ""
        while True:
            grown = self._grown = self._grown or asyncio.Event()
            events: Sequence[Event] = ()
            try:
                events, last_error = await read(after), ""
            except (StoreUnavailable, StoreNotWritable) as error:
                # SQLite may need free space even to read.
                if str(error) != last_error:
                    _log.warning("tail waits position=%d reason=%s", after, error)
                last_error = str(error)
            for event in events:
                after = event.position
                yield event
            if len(events) < full_page:
                # Not wait_for: up to Python 3.11 it swallows a cancellation that comes together with what it waits for.
                await within(poll_s, grown.wait())

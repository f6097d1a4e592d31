"""What the stores of Leases share: the record that is written down, and a watch by polling.

Rule: a nudge only shortens the wait for the next poll.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Self

import msgspec
from msgspec import Struct

from voda.clock import Clock
from voda.domain.lease import Lease

POLL_S: Final = 0.5
"""After a leader died, others may be without a leader for so long: a small part of what a takeover needs."""


class LeaseRecord(Struct, frozen=True, kw_only=True):
    """A Lease as a key holds it; the time is for people to read."""

    holder: str = ""
    transitions: int = 0
    duration_s: float = 0.0
    renewed_at: str = ""

    @classmethod
    def now(cls, clock: Clock, *, holder: str, transitions: int, duration_s: float) -> Self:
        renewed_at = datetime.fromtimestamp(clock.now(), UTC).isoformat()
        return cls(holder=holder, transitions=transitions, duration_s=duration_s, renewed_at=renewed_at)

    @classmethod
    def renewed(cls, clock: Clock, mine: Lease) -> Self:
        return cls.now(clock, holder=mine.holder, transitions=mine.transitions, duration_s=mine.duration_s)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the record in some bytes; one without a holder where they are no record: somebody wrote by hand."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return cls()

    def lease(self, version: str) -> Lease:
        return Lease(
            holder=self.holder,
            transitions=self.transitions,
            duration_s=self.duration_s,
            renewed_at=self.renewed_at,
            version=version,
            is_enforced=True,
        )


async def poll(read: Callable[[], Awaitable[Lease | None]], nudge: asyncio.Event) -> AsyncGenerator[Lease | None, None]:
    """Yield what `read` returns, at once and then twice a second, or when nudged."""
    while True:
        nudge.clear()
        yield await read()
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await nudge.wait()

"""The Lease by which one of several candidates leads, and the port to the store that keeps it.

Rule: a Lease elects and no more; the epoch that its holder claims in the log is what refuses a former leader.

What every adapter promises (tests/contract/lease_claims.py):
1. Of two candidates that take it one gets it, and the other ChangedMeanwhile.
2. No other candidate gets it before its holder released it, was silent for its duration, or is gone.
3. A candidate that does not hold it any more can neither renew nor release it, and gets ChangedMeanwhile.
"""

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import Struct


class Lease(Struct, frozen=True, kw_only=True):
    """The leader, and since when it leads."""

    holder: str
    """Identity of the leader; empty where no candidate leads."""
    transitions: int
    """How often the lead changed: the epoch of the holder."""
    duration_s: float
    """How long the holder may stay silent before others take over."""
    renewed_at: str
    """As the holder's clock had it, RFC 3339: a sign of life, not for comparison with any other clock; may be empty."""
    version: str
    """Changes whenever anything of it does."""
    is_enforced: bool = False
    """Whether the store itself frees it once the holder is gone: until then no other candidate need try to take it."""


class LeaseStore(Protocol):
    """The store of one Lease, as one candidate sees it."""

    @property
    def key(self) -> str:
        """What users call it."""

    async def read(self) -> Lease | None:
        """Return the Lease as it is now; None where there is none, though its last holder may not know yet."""

    async def take(self, seen: Lease | None, *, holder: str, transitions: int, duration_s: float) -> Lease:
        """Make it the holder's, if it still is what was seen (None = there was none), else raise ChangedMeanwhile."""

    async def renew(self, mine: Lease) -> Lease:
        """Show that the holder is alive; `mine` is what the last call returned."""

    async def release(self, mine: Lease) -> None:
        """Let others take over at once."""

    def watch(self) -> AsyncGenerator[Lease | None, None]:
        """Yield the Lease as it is, and again whenever it changes; may end, be late, or raise VodaError: no answer."""

"""What to expect of the live jobs if nobody submits anything more.

Rule: nothing is promised that was not simulated to its end; what is unknown is None.
"""

from msgspec import Struct


class Forecast(Struct, frozen=True, kw_only=True):
    """What is expected of one live job."""

    position: int | None = None
    """In the queue, 1 = next; None: it does not wait."""
    starts_at: float | None = None
    """Instant it gets its first workers, or workers again, while it waits; seconds since the epoch."""
    finishes_at: float | None = None
    """Instant it ends; seconds since the epoch."""

"""Instants as they travel: RFC 3339 in UTC."""

from datetime import UTC, datetime
from typing import overload


@overload
def instant(seconds: float) -> datetime: ...
@overload
def instant(seconds: None) -> None: ...
def instant(seconds: float | None) -> datetime | None:
    """Return seconds since the Unix epoch as a time in UTC; None stays None."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)

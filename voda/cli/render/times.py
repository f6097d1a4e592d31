"""Times and spans as people read them; times of day are in the zone of whoever reads.

Rule: `now` is a parameter, and its zone is the reader's.
"""

from datetime import datetime

from voda.clock import SystemClock
from voda.text import span as span

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400


def now() -> datetime:
    """Return the time of day in the zone of this machine."""
    return datetime.fromtimestamp(SystemClock().now()).astimezone()


def short(seconds: float) -> str:
    """Return a span in its largest unit: 42s, 9m, 3h, 5d; below ten of it with the next one: 9m30s, 3h20m, 2d4h."""
    whole = max(0, round(seconds))
    for unit_s, unit, below_s, below in ((_DAY_S, "d", _HOUR_S, "h"), (_HOUR_S, "h", _MINUTE_S, "m")):
        if whole >= unit_s:
            return _two(whole, unit_s, below_s, f"{unit}{below}")
    return f"{whole}s" if whole < 2 * _MINUTE_S else _two(whole, _MINUTE_S, 1, "ms")


def since(instant: datetime, at: datetime) -> str:
    """Return how long ago it was; 0s where the server's clock is ahead of ours."""
    return short((at - instant).total_seconds())


def until(instant: datetime, at: datetime) -> str:
    """Return in how long it will be; `now` where that is over."""
    seconds = (instant - at).total_seconds()
    return short(seconds) if seconds >= 1 else "now"


def time_of_day(instant: datetime, at: datetime) -> str:
    """Return 14:05 of today, `tomorrow 14:05`, `Fri 14:05` within a week, else 2026-01-31 14:05."""
    local = instant.astimezone(at.tzinfo)
    days = (local.date() - at.date()).days
    clock = f"{local:%H:%M}"
    if not days:
        return clock
    if days in (-1, 1):
        return f"{'tomorrow' if days > 0 else 'yesterday'} {clock}"
    return f"{local:%a} {clock}" if -7 < days < 7 else f"{local:%Y-%m-%d} {clock}"


def full(instant: datetime, at: datetime) -> str:
    """Return an instant to the second, in the reader's zone: 2026-01-31 14:05:09."""
    return f"{instant.astimezone(at.tzinfo):%Y-%m-%d %H:%M:%S}"


def clock(instant: datetime, at: datetime) -> str:
    """Return the time of day to the second: 14:05:09."""
    return f"{instant.astimezone(at.tzinfo):%H:%M:%S}"


def _two(whole: int, unit_s: int, below_s: int, units: str) -> str:
    count, rest = divmod(whole, unit_s)
    rest //= below_s
    return f"{count}{units[0]}{rest}{units[1]}" if rest and count < 10 else f"{count}{units[0]}"

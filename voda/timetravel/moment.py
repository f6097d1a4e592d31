"""Moments as users write them, and the positions of the log that they mean.

Rule: a whole number is a position; everything else is a time, and means the last event recorded by then.
"""

import re
from collections.abc import Sequence
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Protocol

from msgspec import Struct

from voda.domain.errors import InvalidInput, LogArchived
from voda.events.envelope import Event
from voda.text import SPAN, seconds_of

_MOST_SPAN_S = 36_500 * 86_400.0
"""Of a span; no log is a hundred years long, and the calendar ends."""


class ReadableLog(Protocol):
    """The part of an EventStore that finding a moment needs."""

    async def read(self, after: int, limit: int) -> Sequence[Event]:
        """Return up to `limit` events with position > `after`, in order."""

    async def position(self) -> int:
        """Return the position of the last event; 0 in an empty log."""


class AtPosition(Struct, frozen=True):
    """A position of the log."""

    position: int


class AtInstant(Struct, frozen=True):
    """A time of day; seconds since the Unix epoch."""

    time_s: float


class SinceFirst(Struct, frozen=True):
    """Seconds after the log's first event."""

    span_s: float


class BeforeLast(Struct, frozen=True):
    """Seconds before the log's last event."""

    span_s: float


Moment = AtPosition | AtInstant | SinceFirst | BeforeLast


def parse_moment(text: str) -> Moment:
    """Return the moment that a user wrote.

    It is a position (`42`), an RFC 3339 time (`2026-01-31T12:00:00Z`; UTC where no zone is given), or a span after the
    first event (`+1h30m`) or before the last one (`-10m`); anything else, or what the calendar
    does not have, is InvalidInput.
    """
    text = text.strip()
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return AtPosition(int(text))
    if text.startswith(("+", "-")) and SPAN.fullmatch(text[1:]):
        span_s = seconds_of(text[1:], most_s=_MOST_SPAN_S)
        return SinceFirst(span_s) if text[0] == "+" else BeforeLast(span_s)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{text[:80]!r} is no moment: expected a position (42), a time (2026-01-31T12:00:00Z), a span after the"
            " first event (+1h30m) or before the last one (-10m)"
        ) from None
    if not MINYEAR < instant.year < MAXYEAR:
        raise InvalidInput(f"{text[:80]!r} is too far away: expected a year from {MINYEAR + 1} to {MAXYEAR - 1}")
    return AtInstant((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp())


class LogPlace(Struct, frozen=True, kw_only=True):
    """A moment found in a log."""

    position: int
    """Of the last event that the moment includes; 0 before the first one."""
    at: float
    """The given time, or the time of the event at the given position; seconds since the Unix epoch."""


async def find(store: ReadableLog, moment: Moment, *, before: bool = False) -> LogPlace:
    """Return the place of a moment in the log; `before` leaves out the events of the moment itself.

    A time is found by bisection, so the answer is as exact as the clocks of the writers agree. A position beyond the
    log's end is InvalidInput; LogArchived where the moment is in an archive that is out of reach.
    """
    end = await store.position()
    if isinstance(moment, AtPosition):
        if moment.position > end:
            raise InvalidInput(f"position {moment.position} is beyond the end of the log, which is at {end}")
        position = max(moment.position - before, 0)
        return LogPlace(position=position, at=await recorded_at(store, position))
    at = await _instant_of(store, moment, end)
    low, high, archived = 0, end, None
    while low < high:
        middle = (low + high + 1) // 2
        try:
            instant = await recorded_at(store, middle)
        except LogArchived as error:
            low, archived = error.base, error
            if high <= low:
                raise
            continue
        is_included = instant < at or (instant == at and not before)
        low, high = (middle, high) if is_included else (low, middle - 1)
    if archived is not None and low == archived.base:
        raise archived
    return LogPlace(position=low, at=at)


async def recorded_at(store: ReadableLog, position: int) -> float:
    """Return when the event at this position was recorded; before the first event, the time of the first one."""
    events = await store.read(max(position - 1, 0), 1)
    return events[0].recorded_at if events else 0.0


async def _instant_of(store: ReadableLog, moment: AtInstant | SinceFirst | BeforeLast, end: int) -> float:
    match moment:
        case AtInstant():
            return moment.time_s
        case SinceFirst():
            return await recorded_at(store, 1) + moment.span_s
        case BeforeLast():
            return await recorded_at(store, end) - moment.span_s


def rfc3339(instant: float, *, decimals: int | None = None) -> str:
    """Return an instant in UTC, 2026-01-31T12:00:00Z; by default with as many decimals as it needs, at most 6."""
    text = datetime.fromtimestamp(instant, UTC).isoformat(timespec="microseconds").removesuffix("+00:00")
    return (text.rstrip("0") if decimals is None else text[: len(text) - 6 + decimals]).rstrip(".") + "Z"


def elapsed(seconds: float) -> str:
    """Return a span since a beginning: +00:01:23.450."""
    milliseconds = round(abs(seconds) * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    sign = "-" if seconds < 0 else "+"
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}.{rest % 1000:03}"

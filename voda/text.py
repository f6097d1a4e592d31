"""Figures, spans and instants as people read and write them: short, with their unit; and the end of a long text.

Rule: pure; every room of voda writes figures with these functions. `at` is now, and its time zone is the reader's.
"""

import math
import re
import threading
from collections import deque
from datetime import datetime

from voda.domain.errors import InvalidInput

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
SPAN = re.compile(rf"{_NUMBER}|(?=.)(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:{_NUMBER}s)?")
_UNITS_S = (1, 86_400, 3_600, 60, 1)
_MOST_SPAN_S = 2**31 - 1


def span(seconds: float) -> str:
    """Return a span as its two largest units: 0.4s, 42s, 9m 05s, 1h 09m, 2d 03h."""
    if seconds < 9.95:
        return f"{seconds:.1f}s" if round(seconds, 1) else "0s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02d}s"
    minutes = round(seconds / _MINUTE)
    if minutes * _MINUTE < 2 * _DAY:
        return f"{minutes // 60}h {minutes % 60:02d}m"
    hours = round(seconds / _HOUR)
    return f"{hours // 24}d {hours % 24:02d}h"


def instant_span(seconds: float) -> str:
    """Return a span of computing: 840µs, 12ms, 1.3s, 2m 10s."""
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f}µs"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g}ms"
    return span(seconds)


def percent(share: float) -> str:
    """Return a share of 0 to 1 in whole per cent; what is small but there is not rounded away."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def number(value: float) -> str:
    """Return a figure with three significant digits at least: 0.12, 3.45, 12.3, 1,234."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 2)}f}"


def count(value: float) -> str:
    """Return a whole number: 1,234."""
    return f"{value:,.0f}"


def size(size_bytes: float) -> str:
    """Return a size on a disk in decimal units, as its makers count: 0 B, 12 kB, 1.5 GB."""
    value = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 9.95 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.0f} PB"


def memory_size(size_bytes: int) -> str:
    """Return a size of memory in binary units, as limits are given: 512 MiB, 1.5 GiB."""
    unit, name = (1 << 30, "GiB") if size_bytes >= 1 << 30 else (1 << 20, "MiB")
    return f"{size_bytes / unit:,.4g} {name}"


def counted(things: int, noun: str) -> str:
    """Return a number of things with their noun: 1 job, 2 jobs."""
    return f"{things:,} {noun}" if things == 1 else f"{things:,} {noun}s"


def number_are(things: int) -> str:
    """Return a number of things as the beginning of a clause: none is, 1 is, 2 are."""
    return "none is" if things == 0 else "1 is" if things == 1 else f"{things:,} are"


def short(seconds: float) -> str:
    """Return a span in its largest unit: 42s, 9m, 3h, 5d; below ten of it with the next one: 9m30s, 3h20m, 2d4h."""
    whole = max(0, round(seconds))
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return _two(whole, _MINUTE, 1, "ms")
    return _two(whole, _HOUR, _MINUTE, "hm") if whole < _DAY else _two(whole, _DAY, _HOUR, "dh")


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
    """Return an instant to the second: 2026-01-31 14:05:09."""
    return f"{instant.astimezone(at.tzinfo):%Y-%m-%d %H:%M:%S}"


def clock(instant: datetime, at: datetime) -> str:
    """Return the time of day to the second: 14:05:09."""
    return f"{instant.astimezone(at.tzinfo):%H:%M:%S}"


def _two(whole: int, unit_s: int, below_s: int, units: str) -> str:
    count, rest = divmod(whole, unit_s)
    rest //= below_s
    return f"{count}{units[0]}{rest}{units[1]}" if rest and count < 10 else f"{count}{units[0]}"


def seconds_of(text: str, *, option: str = "", most_s: float = _MOST_SPAN_S, needs_unit: bool = False) -> float:
    """Return the seconds of a span such as 30 (seconds), 90m, 4h or 1d12h; raises InvalidInput naming the option.

    With `needs_unit` a bare number is refused, but for 0: data is deleted by such spans, or a job ends.
    """
    place = f"{option}: " if option else ""
    match = SPAN.fullmatch(text)
    if match is None and not needs_unit:
        raise InvalidInput(f"{place}expected a span such as 30 (seconds), 90m, 4h or 1d12h, got {text[:40]!r}")
    if match is None or (needs_unit and float(match[1] or 0)):
        raise InvalidInput(f"{place}expected a span with its unit: 30d, 12h, 90m, 30s or 1d12h, got {text[:40]!r}")
    total = sum(float(part or 0) * unit_s for part, unit_s in zip(match.groups(), _UNITS_S, strict=True))
    if total > most_s:
        raise InvalidInput(f"{place}{text[:40]!r} is too long: expected a span of at most {most_s // _DAY:.0f}d")
    return total


class Tail:
    """The last bytes of a text that comes in pieces, from a line's beginning on; several threads may add pieces.

    It keeps no more of the text than its last `most_bytes` need.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._pieces: deque[bytes] = deque()
        self._kept_bytes = 0
        self.size_bytes = 0
        """Of the whole text so far."""
        self.lines = 0
        """Newlines in the whole text so far."""

    def add(self, piece: bytes) -> None:
        with self._lock:
            self._pieces.append(piece)
            self._kept_bytes += len(piece)
            self.size_bytes += len(piece)
            self.lines += piece.count(b"\n")
            # One byte more than wanted tells whether the first one wanted begins a line.
            while self._kept_bytes - len(self._pieces[0]) > self._most_bytes:
                self._kept_bytes -= len(self._pieces.popleft())

    def text(self) -> bytes:
        """Return what begins at most so far before the end, at a line's beginning; a single long line is cut."""
        with self._lock:
            kept = b"".join(self._pieces)
        if self.size_bytes <= self._most_bytes:
            return kept
        wanted = kept[len(kept) - self._most_bytes - 1 :]
        return wanted[max(wanted.find(b"\n"), 0) + 1 :]

"""Time and ids: nothing else in voda reads the clock or makes ids.

Rule: the core takes `now` as a parameter; the shell takes a `Clock`.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Clock(Protocol):
    """The source of time and ids."""

    def now(self) -> float:
        """Return seconds since the Unix epoch, in whole microseconds; it never goes back."""
        ...

    def time_of_day(self) -> float:
        """Return what the wall clock shows now, by which people ask and files are dated."""
        ...

    def new_id(self) -> str:
        """Return an id never returned before."""
        ...


def up_s() -> float:
    """Return for how long this machine runs, suspended time included; setting its clock changes nothing of it."""
    with open("/proc/uptime", encoding="ascii") as file:
        return float(file.read().split()[0])


def running_s() -> float:
    """Return seconds that count as those of `up_s` do, from another beginning."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextmanager
def stopwatch(laps: list[float]) -> Iterator[None]:
    """Append the seconds that the block took to `laps`, failed or not; to measure voda, never to decide."""
    began = time.perf_counter()
    try:
        yield
    finally:
        laps.append(time.perf_counter() - began)


class SystemClock:
    """The wall clock, but it never goes back.

    Where the wall clock is set back, time continues from the last reading until the wall clock has caught up, so that
    spans stay right and nothing waits for an hour to pass twice. `not_before` is the earliest instant it shows, such as
    the last one in the log. `believed` returns what of a reading of the wall clock counts, such as less than it where
    it has jumped.
    """

    def __init__(
        self,
        not_before: float = 0.0,
        *,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        believed: Callable[[float], float] = lambda wall: wall,
    ) -> None:
        self._wall = wall
        self._believed = believed
        self._steady = steady
        self._ahead = not_before - steady()
        """What is added to the steady seconds; it only ever grows."""

    def now(self) -> float:
        """Return the time of day in whole microseconds, because that is what the log keeps."""
        steady = self._steady()
        self._ahead = max(self._ahead, self._believed(self._wall()) - steady)
        return round(steady + self._ahead, 6)

    def time_of_day(self) -> float:
        return self._wall()

    def new_id(self) -> str:
        return uuid.uuid4().hex


class VirtualClock:
    """A clock that only `move_to` moves; ids count upwards, so that a run can be repeated byte for byte."""

    def __init__(self, start: float = 0.0, prefix: str = "") -> None:
        self._now = start
        self._prefix = prefix
        self._ids = 0

    def now(self) -> float:
        return self._now

    def time_of_day(self) -> float:
        return self._now

    def move_to(self, instant: float) -> None:
        """Advance to the first whole microsecond that is not before `instant`.

        Raises:
            ValueError: the instant is in the past.
        """
        if instant < self._now:
            raise ValueError(f"cannot move the clock back from {self._now} to {instant}")
        whole = round(instant, 6)
        self._now = whole if whole >= instant else round(instant + 1e-6, 6)

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._prefix}{self._ids:x}"

"""The wall clock of the service: it may be set, and must not run backwards."""

from voda.clock import SystemClock


class Settable:
    """A wall clock that can be set, and one that only runs."""

    def __init__(self, wall: float) -> None:
        self.wall_at = wall
        self.steady_at = 1_000.0

    def run(self, seconds: float) -> None:
        self.wall_at += seconds
        self.steady_at += seconds

    def clock(self, not_before: float = 0.0) -> SystemClock:
        return SystemClock(not_before, wall=lambda: self.wall_at, steady=lambda: self.steady_at)


def test_clock_when_nothing_is_set_shows_the_time_of_day() -> None:
    time = Settable(5_000.0)
    clock = time.clock()
    time.run(7.5)
    assert clock.now() == 5_007.5


def test_clock_when_the_wall_clock_is_set_back_goes_on_at_its_usual_pace() -> None:
    time = Settable(5_000.0)
    clock = time.clock()
    assert clock.now() == 5_000.0
    time.wall_at -= 3_600
    time.run(10)
    assert clock.now() == 5_010.0


def test_clock_when_the_wall_clock_is_set_forward_follows() -> None:
    time = Settable(5_000.0)
    clock = time.clock()
    clock.now()
    time.wall_at += 3_600
    assert clock.now() == 8_600.0


def test_clock_when_started_before_the_end_of_the_log_begins_there() -> None:
    time = Settable(5_000.0)
    clock = time.clock(not_before=9_000.0)
    assert clock.now() == 9_000.0
    time.run(3)
    assert clock.now() == 9_003.0

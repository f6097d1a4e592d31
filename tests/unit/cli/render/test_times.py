"""Claims about spans and times of day as people read them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from voda.cli.render.times import short, since, time_of_day, until

NOW = datetime(2026, 1, 31, 14, 5, 9, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (0.4, "0s"),
        (59.6, "60s"),
        (119, "119s"),
        (120, "2m"),
        (570, "9m30s"),
        (630, "10m"),
        (3_600, "1h"),
        (12_000, "3h20m"),
        (36_500, "10h"),
        (90_000, "1d1h"),
        (3_000_000, "34d"),
    ],
)
def test_span_when_short_is_its_largest_units(seconds: float, text: str) -> None:
    assert short(seconds) == text


def test_instant_when_the_servers_clock_is_ahead_was_just_now() -> None:
    assert since(NOW + timedelta(seconds=40), NOW) == "0s"


def test_instant_when_it_is_over_is_expected_now() -> None:
    assert until(NOW - timedelta(minutes=2), NOW) == "now"
    assert until(NOW + timedelta(minutes=3), NOW) == "3m"


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (datetime(2026, 1, 31, 14, 30, tzinfo=UTC), "15:30"),
        (datetime(2026, 1, 31, 23, 30, tzinfo=UTC), "tomorrow 00:30"),
        (datetime(2026, 1, 30, 12, 0, tzinfo=UTC), "yesterday 13:00"),
        (datetime(2026, 2, 3, 12, 0, tzinfo=UTC), "Tue 13:00"),
        (datetime(2026, 3, 3, 12, 0, tzinfo=UTC), "2026-03-03 13:00"),
    ],
)
def test_time_of_day_is_that_of_the_reader(instant: datetime, text: str) -> None:
    assert time_of_day(instant, NOW) == text

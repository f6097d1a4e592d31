"""Figures, spans and times of day as people read them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from voda.domain.errors import InvalidInput
from voda.simulator.report.svg import log_ticks, time_ticks
from voda.text import instant_span, number, percent, seconds_of, short, since, span, time_of_day, until


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"), (0.04, "0s"), (0.44, "0.4s"), (9.94, "9.9s"), (9.96, "10s"), (59.6, "1m 00s"), (545, "9m 05s"),
        (3599.6, "1h 00m"), (4140, "1h 09m"), (172_740, "47h 59m"), (183_600, "2d 03h"), (9_000_000, "104d 04h"),
    ],
)  # fmt: skip
def test_span_is_written_in_its_two_largest_units(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0µs"), (12e-6, "12µs"), (0.00123, "1.23ms"), (0.9996, "1.0s"), (125, "2m 05s")]
)
def test_computing_time_is_written_down_to_the_microsecond(seconds: float, words: str) -> None:
    assert instant_span(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0"), (0.123, "0.12"), (3.456, "3.46"), (12.34, "12.3"), (1234.5, "1,234")]
)
def test_number_keeps_three_digits(value: float, words: str) -> None:
    assert number(value) == words


@pytest.mark.parametrize(("share", "words"), [(0, "0%"), (0.001, "<1%"), (0.126, "13%"), (1, "100%")])
def test_percent_does_not_round_away_what_is_there(share: float, words: str) -> None:
    assert percent(share) == words


@pytest.mark.parametrize("span_s", [1, 60, 179, 180, 7199, 7200, 86_400, 259_200, 1e7, 1e9])
def test_time_axis_has_few_round_ticks_within_it(span_s: float) -> None:
    ticks, unit = time_ticks(span_s)
    assert 1 <= len(ticks) <= 24
    assert ticks[0][1] == "0"
    assert ticks[-1][0] <= span_s
    assert unit in {"seconds", "minutes", "hours", "days"}


def test_logarithmic_axis_drops_ticks_when_there_are_too_many() -> None:
    assert len(log_ticks(0.1, 1e7, most=9)) <= 9
    assert [figure for _, figure in log_ticks(50, 4000)][:3] == ["1 min", "2 min", "5 min"]
    assert [figure for _, figure in log_ticks(5000, 9000)] == ["1.5 h", "2 h"]
    assert not log_ticks(61, 62)


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


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5), ("0", 0), ("0.5", 0.5), ("1.5s", 1.5), ("90m", 5400), ("1d12h", 129_600)]
)
def test_span_is_read_with_its_units_and_a_bare_number_is_seconds(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "5x", "h", "1h30", "-5", "five", "\u0665"])
def test_span_that_is_none_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^--time: expected a span such as 30 \(seconds\), 90m, 4h or 1d12h, got "):
        seconds_of(text, option="--time")


@pytest.mark.parametrize("text", ["30", "0.5", "30x", "007"])
def test_span_that_needs_a_unit_is_refused_without_one(text: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^--time: expected a span with its unit: 30d, 12h, .*, got '{text}'$"):
        seconds_of(text, option="--time", needs_unit=True)


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("30d", 2_592_000), ("1.5s", 1.5)])
def test_span_that_needs_a_unit_is_read_with_one_and_nothing_is_nothing(text: str, seconds: float) -> None:
    assert seconds_of(text, needs_unit=True) == seconds


def test_span_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is too long: expected a span of at most 24855d"):
        seconds_of("9" * 5_000 + "d")

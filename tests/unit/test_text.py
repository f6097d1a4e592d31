"""Figures as people read them."""

import pytest

from voda.simulator.report.svg import log_ticks, time_ticks
from voda.text import instant_span, number, percent, span


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

"""Claims about the peer's clock: our event-driven ends against a clock that is moved tick by tick."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.peer.tick import TICK_S, whole_second_ends

BEGINS_AT = 1_609_459_200.0


def ticked(begun_s: int, seconds: float) -> tuple[int, int]:
    """Return when an epoch ends, and the first tick whose decision knows it, as the peer finds out."""
    now_s, left_s = begun_s, seconds
    while True:
        in_tick_s = TICK_S - now_s % TICK_S
        if left_s <= in_tick_s:
            return now_s + round(left_s), now_s + in_tick_s
        now_s, left_s = now_s + in_tick_s, left_s - in_tick_s


# Multiples of 1/8 s are exact however they are summed up, halves and whole ticks among them.
@given(begun_s=st.integers(0, 100_000), eighths=st.integers(1, 8 * 1_000))
def test_end_of_an_epoch_is_the_peers_to_the_second_and_known_at_the_same_tick(begun_s: int, eighths: int) -> None:
    end_s = whole_second_ends(BEGINS_AT)(BEGINS_AT + begun_s, eighths / 8) - BEGINS_AT
    expected_s, known_s = ticked(begun_s, eighths / 8)
    assert round(end_s) == expected_s
    assert max(TICK_S * math.ceil(end_s / TICK_S), TICK_S * (begun_s // TICK_S + 1)) == known_s


@pytest.mark.parametrize(
    ("seconds", "end_s"), [(29.6, 60.0), (30.0, 60.0), (30.4, 60.000001), (30.5, 60.000001), (30.6, 61.0)]
)
def test_end_when_rounded_back_onto_a_tick_comes_just_after_it(seconds: float, end_s: float) -> None:
    assert whole_second_ends(0.0)(30.0, seconds) == pytest.approx(end_s, abs=1e-9)


def test_epoch_that_begins_just_after_a_tick_is_counted_from_the_tick() -> None:
    assert whole_second_ends(0.0)(60.000001, 29.7) == 90.0

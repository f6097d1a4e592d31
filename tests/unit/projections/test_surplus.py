"""How long GPUs beyond what jobs need at least are there until a job starts on them."""

import math

from hypothesis import given
from hypothesis import strategies as st

from voda.controller.triggers import longer_at
from voda.domain.gpus import Gpus
from voda.domain.state import Surplus
from voda.projections.cluster.surplus import SurplusHistory


def a_cycle(times: int) -> Surplus:
    """Return the surplus after jobs of one GPU that came every 400 s and took 60 s each."""
    history = SurplusHistory()
    history.take(Gpus(1), 0.0)
    for number in range(1, times + 1):
        history.take(Gpus(1), 400.0 * number)
        history.leave(Gpus(1), 400.0 * number + 60.0)
    return history.surplus


def test_surplus_before_a_few_starts_is_there_for_ever() -> None:
    assert a_cycle(2).lasts_s(0, 900.0)[0] == math.inf
    assert longer_at(a_cycle(2), 900.0) == math.inf


def test_gpu_that_starts_take_again_and_again_lasts_as_long_as_it_did() -> None:
    lasts_s, as_new = a_cycle(8).lasts_s(0, 3260.0)
    assert (round(lasts_s), as_new) == (348, 1), "once 400 s, and 340 s since then"
    assert a_cycle(100).lasts_s(0, 40_060.0)[0] < 340.01


def test_gpu_that_no_start_has_ever_taken_is_there_for_as_long_again() -> None:
    assert a_cycle(8).lasts_s(1, 3260.0) == (3260.0, 0)


def test_gpu_when_nobody_has_started_for_long_is_there_for_as_long_again() -> None:
    assert a_cycle(8).lasts_s(0, 13_200.0) == (10_000.0, 1)


def test_surplus_that_lasts_is_looked_at_each_time_it_has_lasted_twice_as_long() -> None:
    surplus = Surplus(taken_at=1000.0, lasted_s=100.0)
    assert [longer_at(surplus, now) for now in (1000.0, 1100.0, 1300.0)] == [1100.0, 1200.0, 1400.0]
    assert longer_at(Surplus(taken_at=1000.0, lasted_s=0.0), 1000.0) == 1030.0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.floats(0, 1e6)), max_size=120), st.integers(0, 50))
def test_surplus_whatever_comes_is_bounded_and_a_number(steps: list[tuple[bool, int, float]], above: int) -> None:
    history, now = SurplusHistory(), 0.0
    for is_start, gpus, later_s in steps:
        now += later_s
        (history.take if is_start else history.leave)(Gpus(gpus), now)
    surplus = history.surplus
    assert len(surplus.runs) <= 32
    assert 0.0 <= history.mean_s <= now
    assert surplus.lasts_s(above, now)[0] >= 0.0
    assert longer_at(surplus, now) > now

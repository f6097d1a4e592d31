"""Claims about jobs known by their work and speedup."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.simulator.workload import SpeedupProfile, speedup_law


def test_epoch_when_replicas_span_nodes_takes_longer_by_the_penalty() -> None:
    profile = SpeedupProfile(epochs=10, work_s=100.0, speedup=(0.0, 1.0, 1.6), span_penalty=0.25)
    assert profile.epoch_s(0, (1,)) == pytest.approx(10.0)
    assert profile.epoch_s(9, (2,)) == pytest.approx(10.0 / 1.6)
    assert profile.epoch_s(9, (1, 1)) == pytest.approx(10.0 / 1.6 * 1.25)


@given(a=st.floats(0, 100), b=st.floats(0, 100), most=st.integers(1, 300))
def test_speedup_law_for_any_a_and_b_starts_at_one_and_is_never_better_than_linear(
    a: float, b: float, most: int
) -> None:
    speedup = speedup_law(a, b, most)
    assert len(speedup) == most + 1
    assert speedup[:2] == (0.0, 1.0)
    assert all(0.0 < speedup[n] <= n for n in range(1, most + 1))


def test_speedup_law_without_losses_is_linear() -> None:
    assert speedup_law(0.0, 0.0, 4) == (0.0, 1.0, 2.0, 3.0, 4.0)


def test_speedup_law_with_communication_falls_beyond_its_peak() -> None:
    speedup = speedup_law(0.0, 0.04, 10)
    assert max(range(11), key=speedup.__getitem__) == 5

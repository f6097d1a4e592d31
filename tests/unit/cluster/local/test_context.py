"""The timer of a local job: it fires once however often it is set, and is not lost to a loop that calls early."""

from collections.abc import Callable

import pytest

from voda.cluster.local.context import Timer


class _Timers:
    """Timers that come when they are told to, whatever the clock says."""

    def __init__(self) -> None:
        self.pending: dict[float, Callable[[], None]] = {}

    def after(self, pause_s: float, act: Callable[[], None]) -> None:
        self.pending[pause_s] = act

    def come(self, pause_s: float) -> None:
        self.pending.pop(pause_s)()


@pytest.fixture
def timers() -> _Timers:
    return _Timers()


@pytest.fixture
def fired() -> list[None]:
    return []


@pytest.fixture
async def timer(timers: _Timers, fired: list[None]) -> Timer:
    return Timer(timers.after, lambda: fired.append(None))


async def test_timer_when_set_several_times_fires_at_the_earliest_only(
    timer: Timer, timers: _Timers, fired: list[None]
) -> None:
    for pause_s in (3.0, 1.0, 2.0):
        timer.set(pause_s)
    assert set(timers.pending) == {3.0, 1.0}
    timers.come(1.0)
    timers.come(3.0)
    assert len(fired) == 1


async def test_timer_when_it_came_before_its_time_can_be_set_again(
    timer: Timer, timers: _Timers, fired: list[None]
) -> None:
    timer.set(60.0)
    timers.come(60.0)
    timer.set(61.0)
    timers.come(61.0)
    assert len(fired) == 2


async def test_timer_when_its_act_sets_it_goes_on_alone(timers: _Timers) -> None:
    pauses = iter([2.0, 3.0])
    own: Timer = Timer(timers.after, lambda: own.set(next(pauses)))
    own.set(10.0)
    own.set(1.0)
    timers.come(1.0)
    timers.come(10.0)
    timers.come(2.0)
    assert set(timers.pending) == {3.0}

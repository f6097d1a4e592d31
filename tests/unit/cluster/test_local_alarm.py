"""The alarm of a local job: it rings once for many that ask, and is never lost to a timer that comes early."""

from collections.abc import Callable
from typing import cast

import pytest

from voda.cluster.local.context import Site
from voda.cluster.local.processes.timer import Alarm


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
def rung() -> list[None]:
    return []


@pytest.fixture
async def alarm(timers: _Timers, rung: list[None]) -> Alarm:
    return Alarm(cast(Site, timers), lambda: rung.append(None))


async def test_alarm_when_asked_for_several_times_rings_at_the_earliest_only(
    alarm: Alarm, timers: _Timers, rung: list[None]
) -> None:
    for pause_s in (3.0, 1.0, 2.0):
        alarm.set(pause_s)
    assert set(timers.pending) == {3.0, 1.0}
    timers.come(1.0)
    timers.come(3.0)
    assert len(rung) == 1


async def test_alarm_when_it_came_before_its_time_can_be_set_again(
    alarm: Alarm, timers: _Timers, rung: list[None]
) -> None:
    alarm.set(60.0)
    timers.come(60.0)
    alarm.set(61.0)
    timers.come(61.0)
    assert len(rung) == 2


async def test_alarm_when_its_act_sets_it_goes_on_alone(timers: _Timers) -> None:
    pauses = iter([2.0, 3.0])
    own: Alarm = Alarm(cast(Site, timers), lambda: own.set(next(pauses)))
    own.set(10.0)
    own.set(1.0)
    timers.come(1.0)
    timers.come(10.0)
    timers.come(2.0)
    assert set(timers.pending) == {3.0}

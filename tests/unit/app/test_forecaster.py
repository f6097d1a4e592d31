"""How long a forecast holds while nothing happens, and what it waits for where much does."""

import asyncio

import pytest

from tests.virtual_time import now_s, virtually
from voda.app.forecasts.forecaster import calm, seconds_until_stale
from voda.domain.plan import ExpectedTimes

NOW = 1_000.0


def test_forecast_when_the_first_instant_told_is_over_holds_no_longer() -> None:
    told = {
        "a": ExpectedTimes(finishes_at=NOW + 60),
        "b": ExpectedTimes(position=1, starts_at=NOW + 50, finishes_at=NOW + 90),
    }
    assert seconds_until_stale(told, NOW) == 80
    assert seconds_until_stale(told, NOW + 1_000) == 30


def test_forecast_when_it_tells_no_instant_holds_for_ever() -> None:
    assert seconds_until_stale({}, NOW) is None
    assert seconds_until_stale({"a": ExpectedTimes(position=1)}, NOW) is None


async def calm_after(changes: int, every_s: float) -> float:
    """Return how long it takes to be calm where so many changes come."""
    changed = asyncio.Event()

    async def change() -> None:
        for _ in range(changes):
            changed.set()
            await asyncio.sleep(every_s)

    changing = asyncio.create_task(change())
    await asyncio.sleep(0)
    began = now_s()
    await calm(changed)
    changing.cancel()
    return now_s() - began


@pytest.mark.parametrize(("changes", "calm_s"), [(1, 1.0), (10, 5.0), (1_000, 10.0)])
def test_burst_of_changes_is_over_before_anything_is_forecast_unless_it_goes_on(changes: int, calm_s: float) -> None:
    assert virtually(calm_after(changes, 0.4)) == pytest.approx(calm_s)

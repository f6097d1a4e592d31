"""How long a forecast holds while nothing happens."""

from voda.app.forecaster import seconds_until_stale
from voda.simulator.whatif.forecast import ExpectedTimes

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

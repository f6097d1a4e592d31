"""Timed policies and placers answer as those behind them, and tell how long it took."""

import pytest

from tests.builders import a_job, a_node, a_state
from tests.telemetry import RecordingTelemetry
from voda.controller.instrumented import timed_placers, timed_policies
from voda.metrics import PLACEMENT_DURATION, POLICY_DURATION
from voda.placement import PLACERS
from voda.policies import POLICIES, Queueing


@pytest.mark.parametrize("name", [*POLICIES])
def test_timed_policy_answers_as_the_one_behind_it(name: str) -> None:
    telemetry = RecordingTelemetry()
    timed = timed_policies(POLICIES.choose, telemetry, "p1")(name)
    view = a_state(jobs=[a_job("a", max_replicas=2)], nodes=[a_node()])
    assert timed.allocate(view, 5.0) == POLICIES.choose(name).allocate(view, 5.0)
    assert isinstance(timed, Queueing) == isinstance(POLICIES.choose(name), Queueing)
    assert issubclass(type(timed), Queueing) == issubclass(type(POLICIES.choose(name)), Queueing)
    assert (timed.name, timed.title) == (POLICIES.choose(name).name, POLICIES.choose(name).title)
    assert telemetry.spans(POLICY_DURATION) == [("p1", name)]


def test_timed_placer_answers_as_the_one_behind_it() -> None:
    telemetry = RecordingTelemetry()
    timed = timed_placers(PLACERS.choose, telemetry, "p1")("steady")
    view = a_state(jobs=[a_job("a", max_replicas=2)], nodes=[a_node()])
    assert timed.place(view, {"a": 2}, 5.0) == {"a": ("n1", "n1")}
    assert telemetry.spans(PLACEMENT_DURATION) == [("p1", "steady")]

"""Policies and placers whose answers are measured.

Rule: they answer as the ones behind them do, because they are copies of them but for the method that is measured.
"""

from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import ParamSpec, TypeVar

from voda.clock import stopwatch
from voda.metrics import PLACEMENT_DURATION, POLICY_DURATION, Histogram, Telemetry
from voda.placement import Placer
from voda.policies import Policy

P = ParamSpec("P")
Answer = TypeVar("Answer")


def timed_policies(policies: Callable[[str], Policy], telemetry: Telemetry, pool: str) -> Callable[[str], Policy]:
    """Return the policies by name, as `policies` does, each of which tells how long its allocations take."""

    def timed(name: str) -> Policy:
        policy = copy(policies(name))
        vars(policy)["allocate"] = _timed(policy.allocate, telemetry, POLICY_DURATION, pool, policy.name)
        return policy

    return timed


def timed_placers(placers: Callable[[str], Placer], telemetry: Telemetry, pool: str) -> Callable[[str], Placer]:
    """Return the placers by name, as `placers` does, each of which tells how long its placements take."""

    def timed(name: str) -> Placer:
        placer = copy(placers(name))
        vars(placer)["place"] = _timed(placer.place, telemetry, PLACEMENT_DURATION, pool, placer.name)
        return placer

    return timed


def _timed(method: Callable[P, Answer], telemetry: Telemetry, duration: Histogram, *labels: str) -> Callable[P, Answer]:
    @wraps(method)
    def measured(*args: P.args, **kwargs: P.kwargs) -> Answer:
        laps: list[float] = []
        with stopwatch(laps):
            answer = method(*args, **kwargs)
        telemetry.observe(duration, laps[0], *labels)
        return answer

    return measured

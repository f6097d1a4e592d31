"""Policies and placers whose answers are measured.

Rule: they answer as the ones behind them do.
"""

from collections.abc import Callable, Mapping
from typing import cast

from voda.clock import stopwatch
from voda.domain.plan import Allocation, Placement
from voda.domain.state import ClusterState
from voda.metrics import PLACEMENT_DURATION, POLICY_DURATION, Telemetry
from voda.placement import Placer
from voda.policies import Policy, Queueing, has_queues


def timed_policies(policies: Callable[[str], Policy], telemetry: Telemetry, pool: str) -> Callable[[str], Policy]:
    """Return the policies by name, as `policies` does, each of which tells how long its allocations take."""

    def timed(name: str) -> Policy:
        found = policies(name)
        kind = _TimedQueueing if has_queues(found) else _TimedPolicy
        # The protocol has its words about a policy as class variables, where this one has them from the other.
        return cast(Policy, kind(found, telemetry, pool))

    return timed


def timed_placers(placers: Callable[[str], Placer], telemetry: Telemetry, pool: str) -> Callable[[str], Placer]:
    """Return the placers by name, as `placers` does, each of which tells how long its placements take."""
    return lambda name: cast(Placer, _TimedPlacer(placers(name), telemetry, pool))


class _TimedPolicy:
    def __init__(self, policy: Policy, telemetry: Telemetry, pool: str) -> None:
        self.name, self.title, self.paper = policy.name, policy.title, policy.paper
        self._policy = policy
        self._telemetry = telemetry
        self._pool = pool

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        laps: list[float] = []
        with stopwatch(laps):
            allocation = self._policy.allocate(view, now)
        self._telemetry.observe(POLICY_DURATION, laps[0], self._pool, self.name)
        return allocation


class _TimedQueueing(_TimedPolicy):
    def requeue(self, view: ClusterState, now: float) -> Mapping[str, tuple[int, str]]:
        return cast(Queueing, self._policy).requeue(view, now)

    def requeue_due_at(self, view: ClusterState, now: float) -> float:
        return cast(Queueing, self._policy).requeue_due_at(view, now)


class _TimedPlacer:
    def __init__(self, placer: Placer, telemetry: Telemetry, pool: str) -> None:
        self.name, self.title = placer.name, placer.title
        self._placer = placer
        self._telemetry = telemetry
        self._pool = pool

    def place(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> Placement:
        laps: list[float] = []
        with stopwatch(laps):
            placement = self._placer.place(view, replicas, now)
        self._telemetry.observe(PLACEMENT_DURATION, laps[0], self._pool, self.name)
        return placement

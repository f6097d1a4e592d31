"""Failures of workers and nodes in a simulated cluster, at seeded instants.

Rule: the schedule depends on the seed and the failure's number only, not on the policy under test, so that all policies
meet the same failures.
"""

import heapq
import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from voda.domain.rng import rng_at


class FailureRates(Struct, frozen=True, kw_only=True):
    """Mean times between failures, seconds; infinite = never."""

    node_mtbf_s: float = math.inf
    """Per node."""
    node_repair_s: float = 1800.0
    """Mean time until a failed node is back."""
    worker_mtbf_s: float = math.inf
    """Per cluster: the mean time between two failures of any worker."""


class Failure(Struct, frozen=True, order=True):
    at: float
    """Seconds since the epoch."""
    kind: Literal["node_fails", "node_repaired", "worker_fails"]
    node: str = ""
    draw: float = 0.0
    """In [0, 1): which of the workers running at that instant fails."""


class FailureSchedule:
    """The failures of one run, in the order of time."""

    def __init__(self, nodes: Sequence[str], rates: FailureRates, *, seed: int, begins_at: float = 0.0) -> None:
        self._rates = rates
        self._seed = seed
        self._draws = 0
        self._heap: list[Failure] = []
        for node in sorted(nodes):
            self._push_node_failure(node, begins_at)
        self._push_worker_failure(begins_at)

    def next_at(self) -> float:
        """Return when the next failure or repair happens; infinite when none ever will."""
        return self._heap[0].at if self._heap else math.inf

    @property
    def repair_is_due(self) -> bool:
        return any(failure.kind == "node_repaired" for failure in self._heap)

    def due(self, now: float) -> Sequence[Failure]:
        """Remove and return the failures with at <= `now`, and schedule the next one after each."""
        due: list[Failure] = []
        while self.next_at() <= now:
            failure = heapq.heappop(self._heap)
            due.append(failure)
            match failure.kind:
                case "node_fails":
                    repaired_at = failure.at + self._draw_s(self._rates.node_repair_s)
                    heapq.heappush(self._heap, Failure(repaired_at, "node_repaired", failure.node))
                case "node_repaired":
                    self._push_node_failure(failure.node, failure.at)
                case "worker_fails":
                    self._push_worker_failure(failure.at)
        return due

    def _push_node_failure(self, node: str, after: float) -> None:
        if not math.isinf(self._rates.node_mtbf_s):
            at = after + self._draw_s(self._rates.node_mtbf_s)
            heapq.heappush(self._heap, Failure(at, "node_fails", node))

    def _push_worker_failure(self, after: float) -> None:
        if not math.isinf(self._rates.worker_mtbf_s):
            at = after + self._draw_s(self._rates.worker_mtbf_s)
            draw = rng_at(self._seed, f"victim/{self._draws}").random()
            heapq.heappush(self._heap, Failure(at, "worker_fails", draw=draw))

    def _draw_s(self, mean_s: float) -> float:
        self._draws += 1
        return rng_at(self._seed, f"failure/{self._draws}").expovariate(1.0 / mean_s)

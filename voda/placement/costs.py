"""What a placement costs each job, in seconds of its own time: the worth of bringing it together, the price of a move.

Figures and their sources: what spanning nodes costs is the job's time left (s; `Estimate.time_left_s`) times the share
by which its work takes longer there (measured on its category, else the pool's `span_penalty`); what a move costs is a
restart (s; learned on its category, else the pool's `resize_cost_s`), however many workers move. It is free for a job
that has no workers yet or changes its size: that restarts anyway. Of a job of unknown length as much is left as it has
had.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from voda.domain.job import Job
from voda.domain.state import ClusterState

_LEAST_LEFT_S: Final = 60.0
"""Of a job of unknown length that has had nothing yet."""


class Loss(Struct, frozen=True, order=True):
    """What a job loses by its places; one is worse than another by its seconds, then by its nodes."""

    seconds: float = 0.0
    nodes: int = 0
    """Beyond the first."""


class PlacementCosts:
    """What every job loses by its places, against those of its workers at work; what is asked of once is kept."""

    def __init__(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> None:
        self._view, self._replicas, self._now = view, replicas, now
        self._spanning: dict[str, float] = {}
        self._at_work: dict[str, tuple[str, ...]] = {}

    def of(self, job_id: str, nodes: Sequence[str]) -> Loss:
        """Return what a job loses by having its workers on these nodes, by index."""
        distinct = len(set(nodes))
        seconds = self.moving_s(job_id, nodes) + (self.spanning_s(job_id) if distinct > 1 else 0.0)
        return Loss(round(seconds, 3), distinct - 1)

    def spanning_s(self, job_id: str) -> float:
        """Return the seconds by which a job ends later if it spans nodes until then."""
        if (known := self._spanning.get(job_id)) is None:
            estimate = self._view.estimates.get(job_id)
            penalty = self._view.settings.span_penalty if estimate is None else estimate.span_penalty
            known = self._spanning[job_id] = penalty * self.left_s(job_id) if penalty > 0 else 0.0
        return known

    def moving_s(self, job_id: str, nodes: Sequence[str]) -> float:
        """Return the seconds that it costs a job to have its workers on these nodes, by index."""
        stays = not self.is_settled(job_id) or tuple(nodes) == self.at_work(job_id)
        return 0.0 if stays else self.restart_s(job_id)

    def restart_s(self, job_id: str) -> float:
        """Return the seconds of its training that a restart costs a job."""
        estimate = self._view.estimates.get(job_id)
        return self._view.settings.resize_cost_s if estimate is None else estimate.resize_cost_s

    def is_settled(self, job_id: str) -> bool:
        """Return whether a job is at work and keeps its size: then a move is a restart more."""
        return 0 < len(self._job(job_id).workers) == self._replicas[job_id]

    def at_work(self, job_id: str) -> Sequence[str]:
        """Return the nodes of the workers that a job has, by index."""
        if (known := self._at_work.get(job_id)) is None:
            known = self._at_work[job_id] = tuple([node for _, node in sorted(self._job(job_id).workers.items())])
        return known

    def ends_soon(self, job_id: str) -> bool:
        """Return whether a settled job ends before a move has paid for its own restart."""
        return self.is_settled(job_id) and self.left_s(job_id) <= self.restart_s(job_id)

    def left_s(self, job_id: str) -> float:
        """Return the seconds that a job still needs at its new size; finite."""
        size, estimate = self._replicas[job_id], self._view.estimates.get(job_id)
        left_s = math.inf if estimate is None or size >= len(estimate.speedup) else estimate.time_left_s(size)
        if left_s < math.inf:
            return left_s
        job = self._job(job_id)
        gpus = max(1, size * job.spec.gpus_per_replica)
        return max(_LEAST_LEFT_S, job.service_by(self._now) / gpus)

    def _job(self, job_id: str) -> Job:
        return self._view.jobs[job_id]

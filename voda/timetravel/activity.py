"""What a cluster did over time, at a resolution that fits a picture: GPUs in use, jobs, decisions, resizes, failures.

Rule: memory is bounded however long the log: where the stretches would be too many, two become one.
"""

from array import array
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.timeline import Occupancy

Floats = npt.NDArray[np.float64]

_MOST: Final = 8_192
"""Stretches; half as many at least, once the log is so long."""
_FIRST_S: Final = 1.0
"""Length of a stretch at first; it doubles."""
_SHORTEST_S: Final = 1e-3


class ActivityRow(NamedTuple):
    """Figures of stretches of time, each of shape (n,): means of the first four, and numbers of the others."""

    gpus_in_use: Floats
    capacity: Floats
    running: Floats
    waiting: Floats
    decisions: Floats
    resizes: Floats
    failures: Floats


_LEVELS: Final = 4
_COLUMNS: Final = len(ActivityRow._fields)
_DECISION, _RESIZE, _FAILURE = range(_LEVELS, _COLUMNS)


class Activity:
    """Folds a log from its first event on, or from where it is cut."""

    def __init__(self) -> None:
        self.position = 0
        self.begins_at: float | None = None
        """Instant of the first event, seconds since the epoch; None: there was none."""
        self._occupancy = Occupancy()
        self._reached = 0.0
        """Instant up to which the levels are summed up."""
        self._length_s = _FIRST_S
        self._totals = array("d")
        """Stretch by stretch, from `begins_at`: the integrals of the levels, and the numbers."""

    def begin_with(self, cluster: LiveCluster, at: float) -> None:
        """Begin with a cluster instead of the events that led to it; `at` is when the next one was recorded."""
        self.position = cluster.position
        self.begins_at = self._reached = at
        pools = cluster.pools()
        nodes = chain.from_iterable(cluster.nodes(pool).values() for pool in pools)
        self._occupancy.begin_with(nodes, chain.from_iterable(cluster.jobs(pool).values() for pool in pools), at)

    @property
    def known_until(self) -> float:
        """Instant of the last event that was folded; 0 in an empty log."""
        return self._reached

    def apply(self, event: Event) -> None:
        """Fold one event; events must come in the order of their positions."""
        self.position = event.position
        if self.begins_at is None:
            self.begins_at = self._reached = event.recorded_at
        self._advance(event.recorded_at)
        self._occupancy.apply(event)
        match event.data:
            case facts.PlanAdopted(placed=placed, released=released):
                self._count(_DECISION, 1)
                self._count(_RESIZE, len(placed) + len(released))
            case facts.JobFailed() | facts.ProgramFailed() | facts.NodeLeft():
                self._count(_FAILURE, 1)
            case _:
                pass

    def between(self, since: float, until: float, stretches: int, *, lasts_until: float = 0.0) -> ActivityRow:
        """Return the figures of so many stretches of equal length between two instants; 0 where nothing is known.

        A stretch shorter than those that are kept has its part of one of them.

        Args:
            since: seconds since the epoch.
            until: later than that.
            stretches: how many, at least 1.
            lasts_until: up to when nothing has changed since the last event, such as now.
        """
        bounds = np.linspace(since, until, stretches + 1)
        if self.begins_at is None or not self._totals:
            return ActivityRow(*np.zeros((_COLUMNS, stretches)))
        totals = np.array(self._totals).reshape(-1, _COLUMNS)
        kept = self.begins_at + self._length_s * np.arange(len(totals) + 1)
        # The last stretch has been summed up as far as the log goes.
        kept[-1] = self._reached
        if kept[-1] - kept[-2] < _SHORTEST_S:
            # What happened at the instant at which it begins is shown before that, or else behind it.
            if len(totals) > 1:
                kept[-2] = kept[-1] - _SHORTEST_S
            else:
                kept[-1] = kept[-2] + _SHORTEST_S
        if lasts_until > kept[-1]:
            kept = np.append(kept, lasts_until)
            still = np.array([*self._levels, 0, 0, 0]) * (lasts_until - kept[-2])
            totals = np.vstack((totals, still))
        sums = np.vstack((np.zeros(_COLUMNS), np.cumsum(totals, axis=0)))
        shares = np.array([np.diff(np.interp(bounds, kept, column)) for column in sums.T])
        known_s = np.diff(np.clip(bounds, kept[0], kept[-1]))
        levels = np.divide(shares[:_LEVELS], known_s, out=np.zeros((_LEVELS, stretches)), where=known_s > 0)
        return ActivityRow(*levels, *shares[_LEVELS:])

    def _advance(self, now: float) -> None:
        """Sum up the levels until an instant; clocks that were set back change nothing."""
        assert self.begins_at is not None
        while (number := int((max(now, self._reached) - self.begins_at) / self._length_s)) >= _MOST:
            self._halve()
        missing = number + 1 - len(self._totals) // _COLUMNS
        if missing > 0:
            self._totals.extend([0.0] * (missing * _COLUMNS))
        levels = self._levels
        while self._reached < now:
            place = int((self._reached - self.begins_at) / self._length_s)
            end = min(now, self.begins_at + (place + 1) * self._length_s)
            if end <= self._reached:
                # Too short a step for a float of this size.
                self._reached = now
                break
            for column, level in enumerate(levels):
                self._totals[place * _COLUMNS + column] += level * (end - self._reached)
            self._reached = end

    @property
    def _levels(self) -> tuple[int, int, int, int]:
        occupancy = self._occupancy
        return occupancy.gpus_in_use, occupancy.capacity, occupancy.running, occupancy.queued

    def _count(self, column: int, number: int) -> None:
        self._totals[len(self._totals) - _COLUMNS + column] += number

    def _halve(self) -> None:
        """Make one stretch of two."""
        totals = np.array(self._totals).reshape(-1, _COLUMNS)
        if len(totals) % 2:
            totals = np.vstack((totals, np.zeros(_COLUMNS)))
        self._totals = array("d", totals.reshape(-1, 2, _COLUMNS).sum(axis=1).ravel())
        self._length_s *= 2

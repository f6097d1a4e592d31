"""Which job held which GPUs when, and how long the queue was: the data of Gantt charts and utilisation.

Rule: memory grows with changes, never with time; `apply` looks only at the job or node that the event names.
"""

from array import array
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.base import Projection

Floats = npt.NDArray[np.float64]


class Segment(NamedTuple):
    """A job held this many GPUs of one node from `from_s` until before `to_s`, seconds since the epoch."""

    job_id: str
    node: str
    gpus: int
    from_s: float
    to_s: float


class Steps(NamedTuple):
    """Step functions of time: row i holds from at_s[i] until before at_s[i + 1]. All of shape (n,)."""

    at_s: Floats
    queued: Floats
    """Live jobs without workers."""
    running: Floats
    """Live jobs with workers."""
    gpus_in_use: Floats
    """Held by workers, also by those of jobs that have just ended."""
    capacity: Floats
    """GPUs of the nodes that are ready, less those that others use."""


def integral_until(at_s: Floats, values: Floats, instants: Floats) -> Floats:
    """Integrate a step function from its first step to each of the instants.

    Args:
        at_s: shape (n,), n >= 1, ascending; values[i] holds from at_s[i] until before at_s[i + 1], the last for ever.
        values: shape (n,).
        instants: of any shape, which is the result's; the integral to an instant before at_s[0] is 0.
    """
    until = np.append(at_s, max(at_s[-1], instants.max()))
    total = np.concatenate(([0.0], np.cumsum(values * np.diff(until))))
    return np.interp(instants, until, total)


class _WorkerHold(Struct):
    """A job that is live or still holds workers."""

    gpus_per_replica: int = 1
    is_live: bool = True
    workers: dict[int, str] = {}
    held: dict[str, tuple[int, float]] = {}
    """node -> (GPUs held there, since when)."""


# Columns of floats and numbered names, not objects: 82,000 jobs fit in some 20 MB.
_SEGMENT = len(Segment._fields)
_STEP = len(Steps._fields)


class Timeline(Projection):
    """GPUs by job and node, queue and utilisation over time."""

    def __init__(self) -> None:
        self._at_s = 0.0
        self._holders: dict[str, _WorkerHold] = {}
        self._capacity: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._queued = self._running = self._gpus_in_use = self._capacity_gpus = 0
        self._job_numbers: dict[str, int] = {}
        self._node_numbers: dict[str, int] = {}
        self._segments = array("d")
        self._steps = array("d")

    @property
    def nodes(self) -> Mapping[str, int]:
        """node -> the most GPUs it ever offered, in the order of joining, with the nodes that left."""
        return self._sizes

    @property
    def ends_at(self) -> float:
        """Instant of the last event that was folded; 0 in an empty timeline."""
        return self._at_s

    def segments(self) -> Iterator[Segment]:
        """Yield every segment: the closed ones in the order they closed, then the open ones up to `ends_at`."""
        jobs, nodes = list(self._job_numbers), list(self._node_numbers)
        columns = iter(self._segments)
        for job, node, gpus, from_s, to_s in zip(*[columns] * _SEGMENT, strict=True):
            yield Segment(jobs[int(job)], nodes[int(node)], int(gpus), from_s, to_s)
        for job_id, holder in self._holders.items():
            for name, (held, since) in holder.held.items():
                if since < self.ends_at:
                    yield Segment(job_id, name, held, since, self.ends_at)

    def steps(self) -> Steps:
        """Return queue, GPUs in use and capacity over time, one row per instant at which one of them changed."""
        return Steps(*np.array(self._steps, dtype=np.float64).reshape(-1, _STEP).T)

    def apply(self, event: Event) -> None:
        if type(event.data) in self._folds:
            # The log is ordered by position; a clock that was set back must not make negative spans.
            self._at_s = max(self._at_s, event.recorded_at)
            super().apply(event)
            self._add_step()

    def _add_step(self) -> None:
        steps = self._steps
        row = (self._queued, self._running, self._gpus_in_use, self._capacity_gpus)
        if steps and steps[-_STEP] == self._at_s:
            del steps[-_STEP:]
        if not steps or tuple(steps[-_STEP + 1 :]) != row:
            steps.extend((self._at_s, *row))


@Timeline.folds
def _submitted(timeline: Timeline, fact: facts.JobSubmitted, event: Event) -> None:
    if fact.spec.job_id not in timeline._holders:
        timeline._holders[fact.spec.job_id] = _WorkerHold(gpus_per_replica=fact.spec.gpus_per_replica)
        timeline._queued += 1


@Timeline.folds
def _started(timeline: Timeline, fact: facts.WorkerStarted, event: Event) -> None:
    if (holder := timeline._holders.get(fact.job_id)) is None:
        return
    if holder.is_live and not holder.workers and fact.workers:
        timeline._queued -= 1
        timeline._running += 1
    for index, node in fact.workers.items():
        if (before := holder.workers.get(index)) is not None:
            _hold(timeline, fact.job_id, holder, before, -1)
        holder.workers[index] = node
        _hold(timeline, fact.job_id, holder, node, 1)


@Timeline.folds
def _exited(timeline: Timeline, fact: facts.WorkerExited, event: Event) -> None:
    if (holder := timeline._holders.get(fact.job_id)) is None:
        return
    had_workers = bool(holder.workers)
    for index in fact.workers:
        if (node := holder.workers.pop(index, None)) is not None:
            _hold(timeline, fact.job_id, holder, node, -1)
    if had_workers and not holder.workers:
        if holder.is_live:
            timeline._running -= 1
            timeline._queued += 1
        else:
            del timeline._holders[fact.job_id]


def _hold(timeline: Timeline, job_id: str, holder: _WorkerHold, node: str, workers: int) -> None:
    """Let the job hold the GPUs of that many more workers on the node from now on."""
    now = timeline._at_s
    gpus, since = holder.held.pop(node, (0, now))
    if gpus and since < now:
        job_number = timeline._job_numbers.setdefault(job_id, len(timeline._job_numbers))
        node_number = timeline._node_numbers.setdefault(node, len(timeline._node_numbers))
        timeline._segments.extend((job_number, node_number, gpus, since, now))
    change = workers * holder.gpus_per_replica
    timeline._gpus_in_use += change
    if gpus + change:
        holder.held[node] = (gpus + change, now)


@Timeline.folds
def _ended(timeline: Timeline, fact: facts.JobEnd, event: Event) -> None:
    holder = timeline._holders.get(fact.job_id)
    if holder is None or not holder.is_live:
        return
    holder.is_live = False
    if holder.workers:
        timeline._running -= 1
    else:
        timeline._queued -= 1
        del timeline._holders[fact.job_id]


@Timeline.folds
def _node_changed(timeline: Timeline, fact: facts.NodeJoined | facts.NodeChanged, event: Event) -> None:
    node = fact.node
    # A cordoned node counts: it may still carry workers.
    gpus = max(0, node.gpus - node.foreign_gpus) if node.is_ready else 0
    timeline._capacity_gpus += gpus - timeline._capacity.get(node.name, 0)
    timeline._capacity[node.name] = gpus
    timeline._sizes[node.name] = max(gpus, timeline._sizes.get(node.name, 0))


@Timeline.folds
def _node_left(timeline: Timeline, fact: facts.NodeLeft, event: Event) -> None:
    timeline._capacity_gpus -= timeline._capacity.pop(fact.name, 0)

"""Which job held which GPUs when, and how long the queue was: the data of Gantt charts and utilisation.

Rule: memory grows with changes, never with time; `apply` looks only at the job or node that the event names.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from voda.domain.job import Job
from voda.domain.node import Node
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


class Occupancy(Projection):
    """GPUs held, offered and waited for at the last event; `released` is called with each hold that has ended."""

    def __init__(self, released: Callable[[Segment], None] = lambda _segment: None) -> None:
        self.at_s = 0.0
        """Instant of the last event that was folded."""
        self.queued = self.running = self.gpus_in_use = self.capacity = 0
        """As in `Steps`."""
        self.sizes: dict[str, int] = {}
        """node -> the most GPUs it ever offered."""
        self._released = released
        self._holders: dict[str, _WorkerHold] = {}
        self._offered: dict[str, int] = {}

    def open_segments(self) -> Iterator[Segment]:
        """Yield what is held now, up to `at_s`."""
        for job_id, holder in self._holders.items():
            for name, (held, since) in holder.held.items():
                if since < self.at_s:
                    yield Segment(job_id, name, held, since, self.at_s)

    def begin_with(self, nodes: Iterable[Node], jobs: Iterable[Job], at_s: float) -> None:
        """Begin an empty one with live jobs and nodes of an instant, seconds since the epoch, in place of all events
        before it.
        """
        self.at_s = at_s
        for node in nodes:
            self._offer(node)
        for job in jobs:
            holder = self._holders[job.spec.job_id] = _WorkerHold(
                gpus_per_replica=job.spec.gpus_per_replica, workers=dict(job.workers)
            )
            self.running += bool(job.workers)
            self.queued += not job.workers
            for name in job.workers.values():
                self._hold(job.spec.job_id, holder, name, 1)

    def _offer(self, node: Node) -> None:
        # A cordoned node counts: it may still carry workers.
        gpus = max(0, node.gpus - node.foreign_gpus) if node.is_ready else 0
        self.capacity += gpus - self._offered.get(node.name, 0)
        self._offered[node.name] = gpus
        self.sizes[node.name] = max(gpus, self.sizes.get(node.name, 0))

    def heeds(self, event: Event) -> bool:
        """Return whether such an event may change it."""
        return type(event.data) in self._folds

    def apply(self, event: Event) -> None:
        if self.heeds(event):
            # The log is ordered by position; a clock that was set back must not make negative spans.
            self.at_s = max(self.at_s, event.recorded_at)
            super().apply(event)

    def _hold(self, job_id: str, holder: _WorkerHold, node: str, workers: int) -> None:
        """Let the job hold the GPUs of that many more workers on the node from now on."""
        now = self.at_s
        gpus, since = holder.held.pop(node, (0, now))
        if gpus and since < now:
            self._released(Segment(job_id, node, gpus, since, now))
        change = workers * holder.gpus_per_replica
        self.gpus_in_use += change
        if gpus + change:
            holder.held[node] = (gpus + change, now)


@Occupancy.folds
def _submitted(occupancy: Occupancy, fact: facts.JobSubmitted, event: Event) -> None:
    if fact.spec.job_id not in occupancy._holders:
        occupancy._holders[fact.spec.job_id] = _WorkerHold(gpus_per_replica=fact.spec.gpus_per_replica)
        occupancy.queued += 1


@Occupancy.folds
def _started(occupancy: Occupancy, fact: facts.WorkerStarted, event: Event) -> None:
    if (holder := occupancy._holders.get(fact.job_id)) is None:
        return
    if holder.is_live and not holder.workers and fact.workers:
        occupancy.queued -= 1
        occupancy.running += 1
    for index, node in fact.workers.items():
        if (before := holder.workers.get(index)) is not None:
            occupancy._hold(fact.job_id, holder, before, -1)
        holder.workers[index] = node
        occupancy._hold(fact.job_id, holder, node, 1)


@Occupancy.folds
def _exited(occupancy: Occupancy, fact: facts.WorkerExited, event: Event) -> None:
    if (holder := occupancy._holders.get(fact.job_id)) is None:
        return
    had_workers = bool(holder.workers)
    for index in fact.workers:
        if (node := holder.workers.pop(index, None)) is not None:
            occupancy._hold(fact.job_id, holder, node, -1)
    if had_workers and not holder.workers:
        if holder.is_live:
            occupancy.running -= 1
            occupancy.queued += 1
        else:
            del occupancy._holders[fact.job_id]


@Occupancy.folds
def _ended(occupancy: Occupancy, fact: facts.JobEnd, event: Event) -> None:
    holder = occupancy._holders.get(fact.job_id)
    if holder is None or not holder.is_live:
        return
    holder.is_live = False
    if holder.workers:
        occupancy.running -= 1
    else:
        occupancy.queued -= 1
        del occupancy._holders[fact.job_id]


@Occupancy.folds
def _node_changed(occupancy: Occupancy, fact: facts.NodeJoined | facts.NodeChanged, event: Event) -> None:
    occupancy._offer(fact.node)


@Occupancy.folds
def _node_left(occupancy: Occupancy, fact: facts.NodeLeft, event: Event) -> None:
    occupancy.capacity -= occupancy._offered.pop(fact.name, 0)


# Columns of floats and numbered names, not objects: 82,000 jobs fit in some 20 MB.
_SEGMENT = len(Segment._fields)
_STEP = len(Steps._fields)


class Timeline:
    """GPUs by job and node, queue and utilisation over time."""

    def __init__(self) -> None:
        self._occupancy = Occupancy(self._close)
        self._job_numbers: dict[str, int] = {}
        self._node_numbers: dict[str, int] = {}
        self._segments = array("d")
        self._steps = array("d")

    @property
    def nodes(self) -> Mapping[str, int]:
        """node -> the most GPUs it ever offered, in the order of joining, with the nodes that left."""
        return self._occupancy.sizes

    @property
    def ends_at(self) -> float:
        """Instant of the last event that was folded; 0 in an empty timeline."""
        return self._occupancy.at_s

    def segments(self) -> Iterator[Segment]:
        """Yield every segment: the closed ones in the order they closed, then the open ones up to `ends_at`."""
        jobs, nodes = list(self._job_numbers), list(self._node_numbers)
        columns = iter(self._segments)
        for job, node, gpus, from_s, to_s in zip(*[columns] * _SEGMENT, strict=True):
            yield Segment(jobs[int(job)], nodes[int(node)], int(gpus), from_s, to_s)
        yield from self._occupancy.open_segments()

    def steps(self) -> Steps:
        """Return queue, GPUs in use and capacity over time, one row per instant at which one of them changed."""
        return Steps(*np.array(self._steps, dtype=np.float64).reshape(-1, _STEP).T)

    def apply(self, event: Event) -> None:
        """Fold one event; events must come in the order of their positions."""
        if self._occupancy.heeds(event):
            self._occupancy.apply(event)
            self._add_step()

    def _close(self, segment: Segment) -> None:
        job_number = self._job_numbers.setdefault(segment.job_id, len(self._job_numbers))
        node_number = self._node_numbers.setdefault(segment.node, len(self._node_numbers))
        self._segments.extend((job_number, node_number, *segment[2:]))

    def _add_step(self) -> None:
        steps, now = self._steps, self._occupancy
        row = (now.queued, now.running, now.gpus_in_use, now.capacity)
        if steps and steps[-_STEP] == now.at_s:
            del steps[-_STEP:]
        if not steps or tuple(steps[-_STEP + 1 :]) != row:
            steps.extend((now.at_s, *row))

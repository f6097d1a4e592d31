"""Which job held which GPUs when, and how long the queue was: the data of Gantt charts and utilisation.

Rule: memory grows with changes, never with time; `apply` looks only at the job or node that the event names.
"""

from array import array
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

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


class _WorkerHold(Struct, kw_only=True):
    """A job that is live or still holds workers."""

    gpus_per_replica: int = 1
    is_live: bool = True
    workers: dict[int, str] = {}
    held: dict[str, tuple[int, float]] = {}
    """node -> (GPUs held there, since when)."""


class _TimelineState(Struct):
    """All that the next event is applied to."""

    at_s: float = 0.0
    holders: dict[str, _WorkerHold] = {}
    capacity: dict[str, int] = {}
    sizes: dict[str, int] = {}
    queued: int = 0
    running: int = 0
    gpus_in_use: int = 0
    capacity_gpus: int = 0
    job_numbers: dict[str, int] = {}
    node_numbers: dict[str, int] = {}


# Columns of floats and numbered names, not objects: 82,000 jobs fit in some 20 MB.
_SEGMENT = len(Segment._fields)
_STEP = len(Steps._fields)


class Timeline(Projection):
    """GPUs by job and node, queue and utilisation over time."""

    FORMAT: ClassVar[str] = "timeline-1"

    def __init__(self) -> None:
        self._state = _TimelineState()
        self._segments = array("d")
        self._steps = array("d")

    @property
    def nodes(self) -> Mapping[str, int]:
        """node -> the most GPUs it ever offered, in the order of joining, with the nodes that left."""
        return self._state.sizes

    @property
    def ends_at(self) -> float:
        """Instant of the last event that was folded; 0 in an empty timeline."""
        return self._state.at_s

    def segments(self) -> Iterator[Segment]:
        """Yield every segment: the closed ones in the order they closed, then the open ones up to `ends_at`."""
        jobs, nodes = list(self._state.job_numbers), list(self._state.node_numbers)
        columns = iter(self._segments)
        for job, node, gpus, from_s, to_s in zip(*[columns] * _SEGMENT, strict=True):
            yield Segment(jobs[int(job)], nodes[int(node)], int(gpus), from_s, to_s)
        for job_id, holder in self._state.holders.items():
            for name, (held, since) in holder.held.items():
                if since < self.ends_at:
                    yield Segment(job_id, name, held, since, self.ends_at)

    def steps(self) -> Steps:
        """Return queue, GPUs in use and capacity over time, one row per instant at which one of them changed."""
        return Steps(*np.array(self._steps, dtype=np.float64).reshape(-1, _STEP).T)

    def apply(self, event: Event) -> None:
        if type(event.data) in self._folds:
            # The log is ordered by position; a clock that was set back must not make negative spans.
            self._state.at_s = max(self._state.at_s, event.recorded_at)
            super().apply(event)
            self._add_step()

    def dump(self) -> bytes:
        """Return the whole state; equal states give equal bytes on machines of one byte order."""
        return msgspec.msgpack.encode((self._state, self._segments.tobytes(), self._steps.tobytes()))

    def load(self, state: bytes) -> None:
        self._state, segments, steps = msgspec.msgpack.decode(state, type=tuple[_TimelineState, bytes, bytes])
        self._segments, self._steps = array("d", segments), array("d", steps)

    def _add_step(self) -> None:
        state, steps = self._state, self._steps
        row = (state.queued, state.running, state.gpus_in_use, state.capacity_gpus)
        if steps and steps[-_STEP] == state.at_s:
            del steps[-_STEP:]
        if not steps or tuple(steps[-_STEP + 1 :]) != row:
            steps.extend((state.at_s, *row))


@Timeline.folds
def _submitted(timeline: Timeline, fact: facts.JobSubmitted, event: Event) -> None:
    if fact.spec.job_id not in timeline._state.holders:
        timeline._state.holders[fact.spec.job_id] = _WorkerHold(gpus_per_replica=fact.spec.gpus_per_replica)
        timeline._state.queued += 1


@Timeline.folds
def _started(timeline: Timeline, fact: facts.WorkerStarted, event: Event) -> None:
    if (holder := timeline._state.holders.get(fact.job_id)) is None:
        return
    if holder.is_live and not holder.workers and fact.workers:
        timeline._state.queued -= 1
        timeline._state.running += 1
    for index, node in fact.workers.items():
        if (before := holder.workers.get(index)) is not None:
            _hold(timeline, fact.job_id, holder, before, -1)
        holder.workers[index] = node
        _hold(timeline, fact.job_id, holder, node, 1)


@Timeline.folds
def _exited(timeline: Timeline, fact: facts.WorkerExited, event: Event) -> None:
    if (holder := timeline._state.holders.get(fact.job_id)) is None:
        return
    had_workers = bool(holder.workers)
    for index in fact.workers:
        if (node := holder.workers.pop(index, None)) is not None:
            _hold(timeline, fact.job_id, holder, node, -1)
    if had_workers and not holder.workers:
        if holder.is_live:
            timeline._state.running -= 1
            timeline._state.queued += 1
        else:
            del timeline._state.holders[fact.job_id]


def _hold(timeline: Timeline, job_id: str, holder: _WorkerHold, node: str, workers: int) -> None:
    """Let the job hold the GPUs of that many more workers on the node from now on."""
    state = timeline._state
    gpus, since = holder.held.pop(node, (0, state.at_s))
    if gpus and since < state.at_s:
        job_number = state.job_numbers.setdefault(job_id, len(state.job_numbers))
        node_number = state.node_numbers.setdefault(node, len(state.node_numbers))
        timeline._segments.extend((job_number, node_number, gpus, since, state.at_s))
    change = workers * holder.gpus_per_replica
    state.gpus_in_use += change
    if gpus + change:
        holder.held[node] = (gpus + change, state.at_s)


@Timeline.folds
def _ended(timeline: Timeline, fact: facts.JobEnd, event: Event) -> None:
    holder = timeline._state.holders.get(fact.job_id)
    if holder is None or not holder.is_live:
        return
    holder.is_live = False
    if holder.workers:
        timeline._state.running -= 1
    else:
        timeline._state.queued -= 1
        del timeline._state.holders[fact.job_id]


@Timeline.folds
def _node_changed(timeline: Timeline, fact: facts.NodeJoined | facts.NodeChanged, event: Event) -> None:
    gpus = _capacity_of(fact.node)
    timeline._state.capacity_gpus += gpus - timeline._state.capacity.get(fact.node.name, 0)
    timeline._state.capacity[fact.node.name] = gpus
    timeline._state.sizes[fact.node.name] = max(gpus, timeline._state.sizes.get(fact.node.name, 0))


@Timeline.folds
def _node_left(timeline: Timeline, fact: facts.NodeLeft, event: Event) -> None:
    timeline._state.capacity_gpus -= timeline._state.capacity.pop(fact.name, 0)


def _capacity_of(node: Node) -> int:
    """A cordoned node counts: it may still carry workers."""
    return max(0, node.gpus - node.foreign_gpus) if node.is_ready else 0

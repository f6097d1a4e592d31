"""Who had which GPU when, in the trace format that Perfetto and chrome://tracing open.

A process is a node, a thread one of its GPUs, a slice a job that held it; queue and utilisation are counters, failures
instants. Times are microseconds since the beginning of the trace. Source of the format: Google's "Trace Event Format".
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from voda.projections.timeline import Segment, Timeline
from voda.simulator.report.gantt import assign_lanes

_CLUSTER: Final = 1
"""Number of the process that has the counters; those of nodes follow."""


class TraceMark(Struct, frozen=True):
    """What happened at an instant."""

    at: float
    text: str


class Interval(Struct, frozen=True):
    """A part of the log's time; seconds since the epoch."""

    since: float
    until: float

    def clipped(self, segments: Iterable[Segment]) -> Iterable[Segment]:
        """Yield what of the segments lies within."""
        for segment in segments:
            since, until = max(segment.from_s, self.since), min(segment.to_s, self.until)
            if since < until:
                yield segment._replace(from_s=since, to_s=until)

    def has(self, instant: float) -> bool:
        return self.since <= instant <= self.until


def chrome_trace(timeline: Timeline, marks: Sequence[TraceMark], interval: Interval) -> bytes:
    """Return the trace as JSON."""
    events = [*_counters(timeline, interval), *_marks(marks, interval), *_slices(timeline, interval)]
    return msgspec.json.encode({"displayTimeUnit": "ms", "traceEvents": [_process(_CLUSTER, "cluster"), *events]})


def _slices(timeline: Timeline, interval: Interval) -> Iterable[dict[str, Any]]:
    numbers = {node: number for number, node in enumerate(timeline.nodes, _CLUSTER + 1)}
    nodes, named = set[int](), set[tuple[int, int]]()
    for bar in assign_lanes(interval.clipped(timeline.segments()), timeline.nodes):
        node = numbers.setdefault(bar.node, _CLUSTER + 1 + len(numbers))
        if node not in nodes:
            nodes.add(node)
            yield _process(node, bar.node)
        for gpu in range(bar.lane, bar.lane + bar.height):
            if (node, gpu) not in named:
                named.add((node, gpu))
                yield {"ph": "M", "name": "thread_name", "pid": node, "tid": gpu, "args": {"name": f"GPU {gpu}"}}
            yield {
                "ph": "X",
                "cat": "job",
                "name": bar.job_id,
                "pid": node,
                "tid": gpu,
                "ts": _microseconds(bar.from_s, interval),
                "dur": round((bar.to_s - bar.from_s) * 1e6),
            }


def _counters(timeline: Timeline, interval: Interval) -> Iterable[dict[str, Any]]:
    rows = list(zip(*map(list, timeline.steps()), strict=True))
    # What held when it begins is shown at its begin.
    first = max((number for number, row in enumerate(rows) if row[0] <= interval.since), default=0)
    for at, queued, running, in_use, capacity in rows[first:]:
        if at <= interval.until:
            shared = {"ph": "C", "pid": _CLUSTER, "ts": max(0, _microseconds(at, interval))}
            yield {**shared, "name": "jobs", "args": {"running": int(running), "waiting": int(queued)}}
            yield {**shared, "name": "GPUs", "args": {"in use": int(in_use), "free": max(0, int(capacity - in_use))}}


def _marks(marks: Iterable[TraceMark], interval: Interval) -> Iterable[dict[str, Any]]:
    for mark in marks:
        if interval.has(mark.at):
            ts = _microseconds(mark.at, interval)
            yield {"ph": "i", "s": "g", "cat": "failure", "name": mark.text, "pid": _CLUSTER, "tid": 0, "ts": ts}


def _process(number: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}


def _microseconds(instant: float, interval: Interval) -> int:
    return round((instant - interval.since) * 1e6)

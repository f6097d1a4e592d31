"""Which job held which GPU over time: one row per GPU, one colour per job; for large clusters a map of full nodes.

Rule: one element per job, so that pointing at it shows all its GPUs on all nodes. The log says how many GPUs of a node
a job held, not which: the chart gives it rows (lanes) of the node, and the job keeps them while it can.
"""

import base64
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

import numpy as np
from msgspec import Struct

from voda.projections.history import FinishedJob
from voda.projections.timeline import Floats, Segment, integral_until
from voda.simulator.report.comparison_table import RunOutcome
from voda.simulator.report.svg import OCCUPANCY, Box, JobColours, element, px, rectangle_path, text
from voda.text import span

_NODE_GAP = 5.0
_LEAST_BAR = 0.4
_LETTER = 5.8
_LABEL_LINE = 11.0
_LABEL_STEP = 14.0
_LABEL_EVERY = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_MOST_NAME = 60

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LEVELS = 256


class Bar(Struct, frozen=True):
    """A job on `height` neighbouring lanes of a node."""

    job_id: str
    node: str
    lane: int
    height: int
    from_s: float
    to_s: float


class _Lanes:
    """The lanes of one node; segments take them in the order of their begin."""

    def __init__(self, gpus: int) -> None:
        self._free_from = [float("-inf")] * gpus
        self._job = [""] * gpus

    def take(self, segment: Segment) -> Sequence[int]:
        """Occupy lanes for a segment; where too few are free, the node gets more."""
        while len(free := self._free_at(segment.from_s)) < segment.gpus:
            self._free_from.append(float("-inf"))
            self._job.append("")
        chosen = _choose(free, self._lanes_of(segment), segment.gpus)
        for lane in chosen:
            self._free_from[lane], self._job[lane] = segment.to_s, segment.job_id
        return chosen

    def continues(self, segment: Segment) -> bool:
        """Whether the job was here until the segment begins."""
        return bool(self._lanes_of(segment))

    def _lanes_of(self, segment: Segment) -> list[int]:
        pairs = enumerate(zip(self._free_from, self._job, strict=True))
        return [lane for lane, (until, job_id) in pairs if until == segment.from_s and job_id == segment.job_id]

    def _free_at(self, instant: float) -> list[int]:
        return [lane for lane, until in enumerate(self._free_from) if until <= instant]


def assign_lanes(segments: Iterable[Segment], sizes: Mapping[str, int]) -> list[Bar]:
    """Return the bars that draw the segments, node by node in the order of `sizes` (node -> GPUs); other nodes last."""
    by_node: dict[str, list[Segment]] = {node: [] for node in sizes}
    for segment in segments:
        by_node.setdefault(segment.node, []).append(segment)
    return [bar for node, held in by_node.items() for bar in _bars_of_node(held, sizes.get(node, 0))]


def _bars_of_node(segments: list[Segment], gpus: int) -> Iterable[Bar]:
    lanes = _Lanes(gpus)
    for _, together in groupby(sorted(segments, key=attrgetter("from_s")), key=attrgetter("from_s")):
        # Jobs that stay choose first, so that a new one does not take their lanes.
        for segment in sorted(together, key=lanes.continues, reverse=True):
            for lane, height in _runs(lanes.take(segment)):
                yield Bar(segment.job_id, segment.node, lane, height, segment.from_s, segment.to_s)


def _choose(free: Sequence[int], present: Sequence[int], count: int) -> Sequence[int]:
    """Prefer the present lanes, then neighbouring ones, then the lowest."""
    if not present:
        for lane, height in _runs(free):
            if height >= count:
                return range(lane, lane + count)
    chosen = list(present[:count])
    chosen += [lane for lane in free if lane not in chosen][: count - len(chosen)]
    return sorted(chosen)


def _runs(lanes: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending lanes as (first, number) of neighbours."""
    runs: list[tuple[int, int]] = []
    for lane in lanes:
        if runs and sum(runs[-1]) == lane:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((lane, 1))
    return runs


class Frame(Struct, frozen=True):
    """The time axis of a picture, the same for all runs of a page so that they compare."""

    begin: float
    """Instant of the first submission."""
    end: float
    x: float
    width: float

    def at(self, instant: float) -> float:
        return self.x + self.width * (instant - self.begin) / (self.end - self.begin)


def gantt(run: RunOutcome, colours: JobColours, frame: Frame, box: Box) -> Iterable[str]:
    """Yield the elements of a Gantt chart over the GPUs of every node."""
    bars = assign_lanes(run.timeline.segments(), run.timeline.nodes)
    rows, lane = _rows(bars, run.timeline.nodes, box)
    yield from _node_labels(rows, box)
    jobs = {job.job_id: job for job in run.history.finished}
    shapes: dict[str, list[Box]] = defaultdict(list)
    for bar in bars:
        x = frame.at(bar.from_s)
        width = max(_LEAST_BAR, frame.at(bar.to_s) - x)
        shapes[bar.job_id].append(Box(x, rows[bar.node].y + bar.lane * lane, width, bar.height * lane))
    for job_id, boxes in shapes.items():
        path = "".join(rectangle_path(shape) for shape in boxes)
        title = element("title", text(_tooltip(job_id, jobs.get(job_id))))
        yield element("path", title, class_=f"job {colours.class_of(job_id)}", d=path)
    if lane >= _LABEL_LINE:
        yield from (_name(job_id, boxes) for job_id, boxes in shapes.items())


def occupancy_map(run: RunOutcome, frame: Frame, box: Box) -> Iterable[str]:
    """Yield the elements of a map of nodes over time; the deeper the colour, the more of its GPUs are held."""
    sizes = run.timeline.nodes
    shares = occupancy(run.timeline.segments(), sizes, edges(frame.begin, frame.end, int(frame.width)))
    row = box.height / max(1, len(shares))
    names = [*sizes, *("" for _ in range(len(shares) - len(sizes)))]
    yield from _node_labels({name: Box(box.x, box.y + i * row, box.width, row) for i, name in enumerate(names)}, box)
    yield element("rect", class_="ground", **_attributes(box))
    yield element(
        "image", href=data_uri(shares, OCCUPANCY), preserveAspectRatio="none", class_="map", **_attributes(box)
    )


def _rows(bars: Sequence[Bar], sizes: Mapping[str, int], box: Box) -> tuple[Mapping[str, Box], float]:
    lanes = dict(sizes)
    for bar in bars:
        lanes[bar.node] = max(lanes.get(bar.node, 0), bar.lane + bar.height)
    lane = (box.height - _NODE_GAP * (len(lanes) - 1)) / max(1, sum(lanes.values()))
    rows, y = {}, box.y
    for node, count in lanes.items():
        rows[node] = Box(box.x, y, box.width, count * lane)
        y += count * lane + _NODE_GAP
    return rows, lane


def _node_labels(rows: Mapping[str, Box], box: Box) -> Iterable[str]:
    """Draw the ground of every node, and the names of as many as fit."""
    room = max(1, int(box.height / _LABEL_STEP))
    every = next((step for step in _LABEL_EVERY if len(rows) <= room * step), len(rows))
    for number, (node, row) in enumerate(rows.items()):
        yield element("rect", class_="ground", **_attributes(row))
        if number % every == 0:
            name = node if len(node) <= 12 else node[:11] + "…"
            y = row.y + row.height / 2 + 3.5
            yield element("text", text(name), class_="node", x=row.x - 8, y=y, text_anchor="end")


def _name(job_id: str, boxes: Sequence[Box]) -> str:
    widest = max(boxes, key=lambda shape: shape.width)
    if widest.width < _LETTER * len(job_id) + 6:
        return ""
    y = widest.y + widest.height / 2 + 3.5
    return element("text", text(job_id), class_="name", x=widest.x + 4, y=y)


def _tooltip(job_id: str, job: FinishedJob | None) -> str:
    name = job_id if len(job_id) <= _MOST_NAME else job_id[: _MOST_NAME - 1] + "…"
    if job is None:
        return f"{name}: did not end"
    changes = f"{job.restarts} restarts, {job.migrations} migrations"
    return (
        f"{name} ({job.category[:_MOST_NAME]}): {job.outcome} after {span(job.jct_s)}\n"
        f"waited {span(job.queueing_s)}, ran {span(job.running_s)}, {changes}\n"
        f"requested {job.requested} replicas ({job.min_replicas} to {job.max_replicas}), "
        f"held {job.gpu_s / 3600:.2f} GPU-hours"
    )


def _attributes(box: Box) -> Mapping[str, str]:
    return {"x": px(box.x), "y": px(box.y), "width": px(box.width), "height": px(box.height)}


def data_uri(shares: Floats, colour: tuple[int, int, int]) -> str:
    """Return an image of shape (rows, columns) as a data URI; 0 is transparent, 1 is the full colour.

    Source: Portable Network Graphics, W3C Recommendation, third edition (palette images, chunk tRNS).
    """
    rows, columns = shares.shape
    levels = np.rint(shares * (_LEVELS - 1)).astype(np.uint8)
    # Every row begins with the number of its filter; 0 = none.
    lines = np.hstack([np.zeros((rows, 1), np.uint8), levels]).tobytes()
    png = b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", bytes(colour) * _LEVELS),
            _chunk(b"tRNS", bytes(range(_LEVELS))),
            _chunk(b"IDAT", zlib.compress(lines, 9)),
            _chunk(b"IEND", b""),
        )
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def edges(begin: float, end: float, count: int) -> Floats:
    """Return the edges of `count` equal bins, shape (count + 1,)."""
    return np.linspace(begin, max(end, begin + 1e-6), count + 1)


def mean_per_bin(at_s: Floats, values: Floats, bins: Floats) -> Floats:
    """Return the time-weighted mean of a step function in each of m bins, shape (m,); `bins` are the m + 1 edges.

    `at_s` is as for `integral_until`, but may be empty; before at_s[0] the function is 0.
    """
    if not len(at_s):
        return np.zeros(len(bins) - 1)
    return np.diff(integral_until(at_s, values, bins)) / np.diff(bins)


def occupancy(segments: Iterable[Segment], sizes: Mapping[str, int], bins: Floats) -> Floats:
    """Return the share of each node's GPUs that was held in each bin, shape (nodes, bins), 0 to 1."""
    changes: dict[str, list[tuple[float, int]]] = {node: [] for node in sizes}
    for segment in segments:
        changes.setdefault(segment.node, []).extend(((segment.from_s, segment.gpus), (segment.to_s, -segment.gpus)))
    rows = [_held_share(sorted(node_changes), sizes.get(node, 0), bins) for node, node_changes in changes.items()]
    return np.array(rows).reshape(len(changes), len(bins) - 1)


def _held_share(changes: list[tuple[float, int]], gpus: int, bins: Floats) -> Floats:
    columns = np.array(changes, dtype=np.float64).reshape(-1, 2)
    held = mean_per_bin(columns[:, 0], np.cumsum(columns[:, 1]), bins)
    return np.clip(held / max(gpus, 1), 0.0, 1.0)

"""Which job held which GPU over time: one row per GPU, one colour per job; or, for large clusters, how full
each node was. One element per job, so that pointing at it shows all of it on all nodes.
"""

import base64
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from voda.projections.history import FinishedJob
from voda.projections.timeline import Floats, Segment
from voda.simulator.report.bins import edges, occupancy
from voda.simulator.report.colours import OCCUPANCY, JobColours
from voda.simulator.report.lanes import Bar, assign_lanes
from voda.simulator.report.run_summary import RunOutcome
from voda.simulator.report.svg import Box, element, px, rectangle_path, text
from voda.simulator.report.units import span

_NODE_GAP = 5.0
_LEAST_BAR = 0.4
_LETTER = 5.8
_LABEL_LINE = 11.0
_LABEL_STEP = 14.0
_LABEL_EVERY = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_MOST_NAME = 60


class Frame(Struct, frozen=True):
    """Where time runs in a picture: the same for all runs of a page, so that they can be compared."""

    begin: float
    """Instant of the first submission."""
    end: float
    x: float
    width: float

    def at(self, instant: float) -> float:
        """Return the x of an instant."""
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


def segments_of(runs: Sequence[RunOutcome]) -> Iterable[Segment]:
    """Yield the segments of all runs."""
    return (segment for run in runs for segment in run.timeline.segments())


def _rows(bars: Sequence[Bar], sizes: Mapping[str, int], box: Box) -> tuple[Mapping[str, Box], float]:
    """Return each node's rows and the height of one lane."""
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
    """Name as many nodes as there is room for, and lay a ground under each."""
    room = max(1, int(box.height / _LABEL_STEP))
    every = next((step for step in _LABEL_EVERY if len(rows) <= room * step), len(rows))
    for number, (node, row) in enumerate(rows.items()):
        yield element("rect", class_="ground", **_attributes(row))
        if number % every == 0:
            name = node if len(node) <= 12 else node[:11] + "…"
            y = row.y + row.height / 2 + 3.5
            yield element("text", text(name), class_="node", x=row.x - 8, y=y, text_anchor="end")


def _name(job_id: str, boxes: Sequence[Box]) -> str:
    """Write a job's name on its largest bar, if it fits."""
    roomiest = max(boxes, key=lambda shape: shape.width)
    if roomiest.width < _LETTER * len(job_id) + 6:
        return ""
    y = roomiest.y + roomiest.height / 2 + 3.5
    return element("text", text(job_id), class_="name", x=roomiest.x + 4, y=y)


def _tooltip(job_id: str, job: FinishedJob | None) -> str:
    name = job_id if len(job_id) <= _MOST_NAME else job_id[: _MOST_NAME - 1] + "…"
    if job is None:
        return f"{name}: did not end"
    changes = f"{job.restarts} restarts, {job.migrations} migrations"
    return (
        f"{name} ({job.category[:_MOST_NAME]}): {job.outcome} after {span(job.jct_s)}\n"
        f"waited {span(job.queueing_s)}, ran {span(job.running_s)}, {changes}\n"
        f"asked for {job.requested} replicas ({job.min_replicas} to {job.max_replicas}), "
        f"held {job.gpu_s / 3600:.2f} GPU-hours"
    )


def _attributes(box: Box) -> Mapping[str, str]:
    return {"x": px(box.x), "y": px(box.y), "width": px(box.width), "height": px(box.height)}


_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LEVELS = 256


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

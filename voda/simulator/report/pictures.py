"""The picture of one run: which job held which GPU, GPUs in use and the queue, over one time axis."""

from collections.abc import Iterable, Sequence

import numpy as np

from voda.projections.timeline import Floats
from voda.simulator.metrics import span_of
from voda.simulator.report.bins import edges, waiting_and_used
from voda.simulator.report.colours import JobColours
from voda.simulator.report.gantt import Frame, gantt, occupancy_map, segments_of
from voda.simulator.report.run_summary import RunOutcome
from voda.simulator.report.svg import Box, element, picture, px, text, time_ticks
from voda.text import count, number, span

_WIDTH = 1080.0
_LEFT = 96.0
_RIGHT = 16.0
_CURVE = 64.0
_CAPTION = 26.0
_AXIS = 40.0
_HOVER_BINS = 150
_MOST_GPUS = 192
_MOST_SEGMENTS = 60_000


class RunPictures:
    """Draws each run of a page, all to the same scales."""

    def __init__(self, runs: Sequence[RunOutcome]) -> None:
        spans = [_whole_span(run) for run in runs]
        begin, end = min(first for first, _ in spans), max(last for _, last in spans)
        self.frame = Frame(begin, max(end, begin + 1.0), _LEFT, _WIDTH - _LEFT - _RIGHT)
        self.colours = JobColours(runs)
        self._most_gpus = max(sum(run.timeline.nodes.values()) for run in runs)
        self._most_nodes = max(len(run.timeline.nodes) for run in runs)
        self.is_map = self._most_gpus > _MOST_GPUS or _count(segments_of(runs)) > _MOST_SEGMENTS
        self._bins = edges(self.frame.begin, self.frame.end, int(self.frame.width))
        queues = (waiting_and_used(run.timeline.steps(), self._bins)[0] for run in runs)
        self._most_waiting = float(np.ceil(max(queue.max() for queue in queues)))

    def draw(self, run: RunOutcome, label: str) -> str:
        """Return the picture of one run: GPUs by job, GPUs in use, jobs waiting."""
        gpus_box = Box(_LEFT, _CAPTION, self.frame.width, self._gpus_height())
        used_box = Box(_LEFT, gpus_box.bottom + _CAPTION, gpus_box.width, _CURVE)
        queue_box = Box(_LEFT, used_box.bottom + _CAPTION, gpus_box.width, _CURVE)
        waiting, used = waiting_and_used(run.timeline.steps(), self._bins)
        parts = [
            *_grid(self.frame, Box(_LEFT, gpus_box.y, gpus_box.width, queue_box.bottom - gpus_box.y)),
            _caption(gpus_box, self._gpus_caption()),
            *(
                occupancy_map(run, self.frame, gpus_box)
                if self.is_map
                else gantt(run, self.colours, self.frame, gpus_box)
            ),
            _caption(used_box, f"GPUs in use, of {count(self._most_gpus)}"),
            *_curve(used, used_box, float(self._most_gpus), "used"),
            _caption(queue_box, "jobs waiting for GPUs"),
            *_curve(waiting, queue_box, self._most_waiting, "queue"),
            *self._hover(waiting, used, Box(_LEFT, used_box.y, gpus_box.width, queue_box.bottom - used_box.y)),
        ]
        words = f"{label}: which job held which GPU, GPUs in use and jobs waiting, over {span(run.result.makespan_s)}"
        return picture(_WIDTH, queue_box.bottom + _AXIS, words, parts)

    def _gpus_height(self) -> float:
        if self.is_map:
            return min(420.0, max(120.0, 3.0 * self._most_nodes))
        lane = min(15.0, max(5.0, 460.0 / self._most_gpus))
        return lane * self._most_gpus + 5.0 * (self._most_nodes - 1)

    def _gpus_caption(self) -> str:
        if self.is_map:
            return "nodes: the deeper the colour, the more of the node's GPUs are held"
        return "nodes: one row per GPU, one colour per job"

    def _hover(self, waiting: Floats, used: Floats, box: Box) -> Iterable[str]:
        """Yield invisible strips with the figures of their instant as tooltips."""
        per_strip = max(1, len(used) // _HOVER_BINS)
        step_s = (self.frame.end - self.frame.begin) / len(used)
        for i in range(0, len(used), per_strip):
            x = self.frame.at(self.frame.begin + i * step_s)
            width = min(per_strip * step_s * self.frame.width / (self.frame.end - self.frame.begin), box.right - x)
            words = (
                f"after {span(i * step_s)}: {number(used[i : i + per_strip].mean())} GPUs in use, "
                f"{number(waiting[i : i + per_strip].mean())} jobs waiting"
            )
            yield element(
                "rect", element("title", text(words)), class_="strip", x=x, y=box.y, width=width, height=box.height
            )


def _grid(frame: Frame, box: Box) -> Iterable[str]:
    """Yield the time axis below the box, with lines through it."""
    ticks, unit = time_ticks(frame.end - frame.begin)
    for seconds, figure in ticks:
        x = frame.at(frame.begin + seconds)
        yield element("line", class_="grid", x1=x, x2=x, y1=box.y, y2=box.bottom + 4)
        yield element("text", figure, class_="tick", x=x, y=box.bottom + 17, text_anchor="middle")
    yield element(
        "text",
        f"{unit} since the first submission",
        class_="axis",
        x=box.x + box.width / 2,
        y=box.bottom + 34,
        text_anchor="middle",
    )


def _caption(box: Box, words: str) -> str:
    return element("text", text(words), class_="caption", x=box.x, y=box.y - 8)


def _curve(values: Floats, box: Box, top: float, name: str) -> Iterable[str]:
    """Yield a filled step curve with its scale from 0 to `top`, one value per pixel."""
    top = top or 1.0
    heights = box.bottom - np.minimum(values / top, 1.0) * box.height
    step = box.width / len(values)
    path = [f"M{px(box.x)} {px(box.bottom)}V{px(heights[0])}"]
    for i in range(1, len(values)):
        if px(heights[i]) != px(heights[i - 1]):
            path.append(f"H{px(box.x + i * step)}V{px(heights[i])}")
    path.append(f"H{px(box.right)}V{px(box.bottom)}z")
    yield element("line", class_="limit", x1=box.x, x2=box.right, y1=box.y, y2=box.y)
    yield element("path", class_=f"curve {name}", d="".join(path))
    yield element("line", class_="base", x1=box.x, x2=box.right, y1=box.bottom, y2=box.bottom)
    yield element(
        "text", f"{top:,.3g}" if top < 100 else count(top), class_="tick", x=box.x - 8, y=box.y + 4, text_anchor="end"
    )
    yield element("text", "0", class_="tick", x=box.x - 8, y=box.bottom + 4, text_anchor="end")


def _whole_span(run: RunOutcome) -> tuple[float, float]:
    """Return the first submission and the last end; the log's end where jobs are still live."""
    history = run.history
    if not history.live:
        return span_of(history)
    first, last = span_of(history)
    submitted = min(history.live.values())
    return min(first, submitted) if history.finished else submitted, max(last, run.timeline.ends_at)


def _count(things: Iterable[object]) -> int:
    return sum(1 for _ in things)

"""The pictures of a page: which job held which GPU in each run, and how soon the jobs of all runs completed."""

from collections.abc import Iterable, Sequence

import numpy as np

from voda.projections.timeline import Floats
from voda.simulator.metrics import span_of
from voda.simulator.report.comparison_table import RunOutcome, labels
from voda.simulator.report.gantt import Frame, edges, gantt, mean_per_bin, occupancy_map
from voda.simulator.report.svg import Box, JobColours, element, line_class, log_ticks, picture, px, text, time_ticks
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
_MAP_CAPTION = "nodes: the deeper the colour, the more of the node's GPUs are held"
# Of the distribution.
_HEIGHT = 400.0
_BOX = Box(56.0, 16.0, 1008.0, 330.0)
_MOST_POINTS = 400
_LEGEND_LINE = 19.0
_MOST_INSIDE = 9


class RunPictures:
    """Draws each run of a page, all to the same scales."""

    def __init__(self, runs: Sequence[RunOutcome]) -> None:
        spans = [_whole_span(run) for run in runs]
        begin, end = min(first for first, _ in spans), max(last for _, last in spans)
        self.frame = Frame(begin, max(end, begin + 1.0), _LEFT, _WIDTH - _LEFT - _RIGHT)
        self.colours = JobColours(runs)
        self._most_gpus = max(sum(run.timeline.nodes.values()) for run in runs)
        self._most_nodes = max(len(run.timeline.nodes) for run in runs)
        segments = sum(1 for run in runs for _ in run.timeline.segments())
        self.is_map = self._most_gpus > _MOST_GPUS or segments > _MOST_SEGMENTS
        self._bins = edges(self.frame.begin, self.frame.end, int(self.frame.width))
        queues = (mean_per_bin((steps := run.timeline.steps()).at_s, steps.queued, self._bins) for run in runs)
        self._most_waiting = float(np.ceil(max(queue.max() for queue in queues)))

    def draw(self, run: RunOutcome, label: str) -> str:
        """Return the picture of one run: GPUs by job, GPUs in use, jobs waiting."""
        gpus_box = Box(_LEFT, _CAPTION, self.frame.width, self._gpus_height())
        used_box = Box(_LEFT, gpus_box.bottom + _CAPTION, gpus_box.width, _CURVE)
        queue_box = Box(_LEFT, used_box.bottom + _CAPTION, gpus_box.width, _CURVE)
        steps = run.timeline.steps()
        waiting = mean_per_bin(steps.at_s, steps.queued, self._bins)
        used = mean_per_bin(steps.at_s, steps.gpus_in_use, self._bins)
        parts = [
            *_grid(self.frame, Box(_LEFT, gpus_box.y, gpus_box.width, queue_box.bottom - gpus_box.y)),
            _caption(gpus_box, _MAP_CAPTION if self.is_map else "nodes: one row per GPU, one colour per job"),
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


def jct_picture(runs: Sequence[RunOutcome]) -> str:
    """Return the distribution of the job completion times of each run; empty where no job completed."""
    completed = ([job.jct_s for job in run.history.finished if job.outcome == "completed"] for run in runs)
    jcts = [np.sort(np.array(jct_s)) for jct_s in completed]
    if not any(len(jct_s) for jct_s in jcts):
        return ""
    low = max(0.05, min(float(jct_s[0]) for jct_s in jcts if len(jct_s)))
    high = max(low * 1.01, *(float(jct_s[-1]) for jct_s in jcts if len(jct_s)))
    names = labels(runs)
    legend = _corner(runs)
    is_inside = len(runs) <= _MOST_INSIDE and _is_free(legend, [jct_s for jct_s in jcts if len(jct_s)], (low, high))
    parts = [*_axes(low, high)]
    for i, jct_s in enumerate(jcts):
        if len(jct_s):
            parts.append(_steps(jct_s, i, f"{names[i]}: {_tooltip(runs[i])}", (low, high)))
    parts += _legend(runs, legend, is_inside=is_inside)
    height = _HEIGHT if is_inside else _HEIGHT + _LEGEND_LINE * (1 + (len(runs) - 1) // _across(legend) + 1)
    return picture(_WIDTH, height, "Share of jobs completed within a time, one line per run", parts)


def _tooltip(run: RunOutcome) -> str:
    result = run.result
    return f"half of the jobs within {span(result.p50_jct_s)}, 90 % within {span(result.p90_jct_s)}"


def _x(seconds: float, limits: tuple[float, float]) -> float:
    low, high = limits
    return _BOX.x + _BOX.width * float(np.log(max(seconds, low) / low) / np.log(high / low))


def _axes(low: float, high: float) -> Iterable[str]:
    for quarter in range(5):
        y = _BOX.bottom - _BOX.height * quarter / 4
        yield element("line", class_="grid", x1=_BOX.x, x2=_BOX.right, y1=y, y2=y)
        yield element("text", f"{25 * quarter} %", class_="tick", x=_BOX.x - 8, y=y + 4, text_anchor="end")
    for seconds, figure in log_ticks(low, high, most=12):
        x = _x(seconds, (low, high))
        yield element("line", class_="grid", x1=x, x2=x, y1=_BOX.y, y2=_BOX.bottom + 4)
        yield element("text", figure, class_="tick", x=x, y=_BOX.bottom + 18, text_anchor="middle")
    words = "job completion time, submission to end (logarithmic)"
    middle = _BOX.x + _BOX.width / 2
    yield element("text", words, class_="axis", x=middle, y=_BOX.bottom + 38, text_anchor="middle")


def _steps(jct_s: Floats, number: int, label: str, limits: tuple[float, float]) -> str:
    """Draw the steps of the distribution; of very many jobs, some hundred."""
    ranks = np.unique(np.linspace(0, len(jct_s) - 1, min(len(jct_s), _MOST_POINTS)).astype(int))
    path = [f"M{px(_x(float(jct_s[0]), limits))} {px(_BOX.bottom)}"]
    for rank in ranks.tolist():
        x = px(_x(float(jct_s[rank]), limits))
        path.append(f"H{x}V{px(_BOX.bottom - _BOX.height * (rank + 1) / len(jct_s))}")
    path.append(f"H{px(_BOX.right)}")
    d = "".join(path)
    wide = element("path", class_="touch", d=d)
    return element("g", element("title", text(label)), wide, element("path", class_=f"line {line_class(number)}", d=d))


def _corner(runs: Sequence[RunOutcome]) -> Box:
    """Return the lower right corner, as large as the names of the runs need it."""
    width = 38 + 6.6 * max(len(name) for name in labels(runs)) + 10
    height = _LEGEND_LINE * len(runs) + 6
    return Box(_BOX.right - width - 10, _BOX.bottom - 8 - height, width, height)


def _across(corner: Box) -> int:
    return max(1, int(_BOX.width // corner.width))


def _is_free(corner: Box, jcts: Sequence[Floats], limits: tuple[float, float]) -> bool:
    """Return whether every distribution is above the corner where the corner begins; none ever falls."""
    low, high = limits
    left_s = low * (high / low) ** ((corner.x - _BOX.x) / _BOX.width)
    least = (_BOX.bottom - corner.y) / _BOX.height
    return all(np.searchsorted(jct_s, left_s) / len(jct_s) > least for jct_s in jcts)


def _legend(runs: Sequence[RunOutcome], corner: Box, *, is_inside: bool) -> Iterable[str]:
    names = labels(runs)
    order = sorted(range(len(runs)), key=lambda i: runs[i].result.avg_jct_s)
    if is_inside:
        yield element("rect", class_="legend", x=corner.x, y=corner.y, width=corner.width, height=corner.height, rx="4")
        places = [(corner.x, corner.y + 14 + _LEGEND_LINE * row) for row in range(len(runs))]
    else:
        across, top = _across(corner), _HEIGHT + _LEGEND_LINE
        places = [(_BOX.x + corner.width * (n % across), top + _LEGEND_LINE * (n // across)) for n in range(len(runs))]
    for i, (x, y) in zip(order, places, strict=True):
        yield element("line", class_=f"line {line_class(i)}", x1=x + 8, x2=x + 30, y1=y - 1, y2=y - 1)
        yield element("text", text(names[i]), class_="key", x=x + 38, y=y + 3)

"""The pictures of a comparison: queueing of each virtual cluster, how much later or earlier jobs start, GPUs in use.

Rule: a mode has the same colour in all of them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from voda.projections.timeline import Floats
from voda.simulator.report.gantt import edges, mean_per_bin
from voda.simulator.report.svg import Box, element, line_class, log_ticks, picture, px, text, time_ticks
from voda.simulator.virtual_clusters.experiment import ModeRun, PolicyFigures, lateness_s, window
from voda.simulator.virtual_clusters.modes import Mode, SharedWorkload
from voda.simulator.virtual_clusters.report import TITLES
from voda.text import count, span

_WIDTH: Final = 1080.0
_BOX: Final = Box(96.0, 16.0, 800.0, 240.0)
_HEIGHT: Final = 316.0
_LEGEND_LINE: Final = 19.0
_ROW: Final = 12.0
_GAP: Final = 10.0
_LEAST_S: Final = 1.0
_MOST_POINTS: Final = 400


def _legend(modes: Sequence[Mode]) -> Iterable[str]:
    for number, mode in enumerate(modes):
        y, right = _BOX.y + 14 + _LEGEND_LINE * number, _BOX.right
        yield element("line", class_=f"line {line_class(_line(mode))}", x1=right + 12, x2=right + 34, y1=y, y2=y)
        yield element("text", text(TITLES[mode]), class_="key", x=right + 42, y=y + 4)


def _line(mode: Mode) -> int:
    return list(Mode).index(mode)


def queueing_picture(figures: PolicyFigures) -> str:
    """Draw a bar for each mode of each virtual cluster, on a logarithmic scale."""
    modes = [each.mode for each in figures.modes]
    height = len(figures.clusters) * (len(modes) * _ROW + _GAP)
    most = max((each.queueing_s[mode] for each in figures.clusters for mode in modes), default=_LEAST_S)
    most = max(most, 10 * _LEAST_S) * 1.1
    box = Box(_BOX.x, _BOX.y, _BOX.width, height)
    parts = list(_log_axis(box, most, "mean queueing (logarithmic)"))
    y = box.y + _GAP / 2
    for cluster in figures.clusters:
        middle = y + len(modes) * _ROW / 2 + 4
        parts.append(element("text", text(cluster.name[:14]), class_="tick", x=box.x - 8, y=middle, text_anchor="end"))
        for mode in modes:
            seconds, name = cluster.queueing_s[mode], f"{cluster.name}, {TITLES[mode]}"
            x = box.x + box.width * _log_share(seconds, most)
            parts.append(element("g", element("title", text(f"{name}: {span(seconds)}")), _bar(mode, box.x, x, y + 5)))
            y += _ROW
        y += _GAP
    parts += _legend(modes)
    return picture(_WIDTH, box.bottom + 60, "Mean queueing of each virtual cluster in each mode", parts)


def _bar(mode: Mode, left: float, right: float, y: float) -> str:
    name, thick = f"line {line_class(_line(mode))}", "stroke-width:8px"
    return element("line", class_=name, style=thick, x1=left, x2=max(right, left + 1), y1=y, y2=y)


def _log_share(seconds: float, most: float) -> float:
    return float(np.log(max(seconds, _LEAST_S) / _LEAST_S) / np.log(most / _LEAST_S))


def _log_axis(box: Box, most: float, words: str) -> Iterable[str]:
    for seconds, figure in log_ticks(_LEAST_S, most, most=9):
        x = box.x + box.width * _log_share(seconds, most)
        yield element("line", class_="grid", x1=x, x2=x, y1=box.y, y2=box.bottom + 4)
        yield element("text", figure, class_="tick", x=x, y=box.bottom + 18, text_anchor="middle")
    yield element("text", words, class_="axis", x=box.x + box.width / 2, y=box.bottom + 38, text_anchor="middle")


def later_s(shared: SharedWorkload, runs: Sequence[ModeRun], mode: Mode) -> Floats:
    """Return how much later each job starts than in its private cluster, ascending; empty: not compared."""
    jobs = [arrival.spec.job_id for arrival in shared.workload.arrivals]
    later = lateness_s({run.mode: run for run in runs}, mode, jobs) or {}
    return np.sort(np.array([each for each in later.values() if np.isfinite(each)]))


def lateness_picture(curves: Sequence[tuple[Mode, Floats]], reclaim_s: float) -> str:
    """Draw how many jobs start earlier and later by how much: earlier to the left of the middle, later to the right."""
    most = max(10 * reclaim_s, *(float(np.abs(seconds).max()) for _, seconds in curves)) * 1.1
    top = float(max(max((seconds < -_LEAST_S).sum(), (seconds > _LEAST_S).sum()) for _, seconds in curves)) or 1.0
    parts = [*_both_axes(most, top), *_reclaim_line(reclaim_s, most)]
    for mode, seconds in curves:
        earlier, later = -seconds[seconds < -_LEAST_S], seconds[seconds > _LEAST_S]
        words = f"{TITLES[mode]}: {count(len(earlier))} jobs start earlier, {count(len(later))} later"
        halves = (_half(np.sort(each), most, top, sign) for each, sign in ((earlier, -1.0), (later, 1.0)))
        lines = (element("path", class_=f"line {line_class(_line(mode))}", d=path) for path in halves if path)
        parts.append(element("g", element("title", text(words)), *lines))
    parts += _legend([mode for mode, _ in curves])
    return picture(_WIDTH, _HEIGHT, "Jobs that start earlier or later than in their private cluster", parts)


def _half(seconds: Floats, most: float, top: float, sign: float) -> str:
    """Return the curve of how many jobs start earlier (or later) by at least so much."""
    if not len(seconds):
        return ""
    ranks = np.unique(np.linspace(0, len(seconds) - 1, min(len(seconds), _MOST_POINTS)).astype(int))
    points = (
        (_sided_x(sign * float(seconds[rank]), most), _BOX.bottom - _BOX.height * (len(seconds) - rank) / top)
        for rank in ranks.tolist()
    )
    return "M" + "L".join(f"{px(x)} {px(y)}" for x, y in points)


def _sided_x(seconds: float, most: float) -> float:
    share = _log_share(abs(seconds), most) * (1 if seconds > 0 else -1)
    return _BOX.x + _BOX.width * (1 + share) / 2


def _both_axes(most: float, top: float) -> Iterable[str]:
    ticks = log_ticks(_LEAST_S, most, most=6)
    for seconds, figure in [*((-each, f"-{name}") for each, name in reversed(ticks)), *ticks]:
        x = _sided_x(seconds, most)
        yield element("line", class_="grid", x1=x, x2=x, y1=_BOX.y, y2=_BOX.bottom + 4)
        if abs(seconds) > _LEAST_S:
            yield element("text", figure, class_="tick", x=x, y=_BOX.bottom + 18, text_anchor="middle")
    yield from _scale(top)
    words = "start, earlier (left) or later (right) than in the private cluster by at least (logarithmic)"
    yield element("text", words, class_="axis", x=_BOX.x + _BOX.width / 2, y=_BOX.bottom + 38, text_anchor="middle")


def _reclaim_line(reclaim_s: float, most: float) -> Iterable[str]:
    x = _sided_x(reclaim_s, most)
    yield element("line", class_="limit", x1=x, x2=x, y1=_BOX.y, y2=_BOX.bottom)
    yield element("text", "reclaim time: anomalies are beyond", class_="tick", x=x + 6, y=_BOX.y + 12)


def _scale(top: float) -> Iterable[str]:
    for quarter in range(5):
        y = _BOX.bottom - _BOX.height * quarter / 4
        yield element("line", class_="grid", x1=_BOX.x, x2=_BOX.right, y1=y, y2=y)
        yield element("text", count(round(top * quarter / 4)), class_="tick", x=_BOX.x - 8, y=y + 4, text_anchor="end")


def usage_picture(shared: SharedWorkload, runs: Sequence[ModeRun]) -> str:
    """Draw the GPUs in use of each mode, its private clusters together."""
    begin, end = window(shared)
    end = max(end, begin + 1.0)
    bins = edges(begin, end, int(_BOX.width) // 2)
    top = float(len(shared.workload.nodes) * shared.node_gpus)
    parts = list(_scale(top))
    ticks, unit = time_ticks(end - begin)
    for seconds, figure in ticks:
        x = _BOX.x + _BOX.width * seconds / (end - begin)
        grid = element("line", class_="grid", x1=x, x2=x, y1=_BOX.y, y2=_BOX.bottom + 4)
        parts += [grid, element("text", figure, class_="tick", x=x, y=_BOX.bottom + 18, text_anchor="middle")]
    for run in runs:
        used = np.sum([mean_per_bin(steps.at_s, steps.gpus_in_use, bins) for steps in run.steps], axis=0)
        points = (
            f"{px(_BOX.x + _BOX.width * (number + 0.5) / len(used))} {px(_BOX.bottom - _BOX.height * value / top)}"
            for number, value in enumerate(used.tolist())
        )
        line = element("path", class_=f"line {line_class(_line(run.mode))}", d="M" + "L".join(points))
        parts.append(element("g", element("title", text(TITLES[run.mode])), line))
    words = f"{unit} since the first submission, to the last one"
    parts.append(
        element("text", words, class_="axis", x=_BOX.x + _BOX.width / 2, y=_BOX.bottom + 38, text_anchor="middle")
    )
    parts += _legend([run.mode for run in runs])
    return picture(_WIDTH, _HEIGHT, "GPUs in use over time, one line per mode", parts)

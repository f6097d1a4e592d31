"""The share of jobs that were done within a time, for all runs in one picture."""

from collections.abc import Iterable, Sequence

import numpy as np

from voda.projections.timeline import Floats
from voda.simulator.report.colours import line_class
from voda.simulator.report.run_summary import RunOutcome, labels
from voda.simulator.report.svg import Box, element, log_ticks, picture, px, text
from voda.simulator.report.units import span

_WIDTH, _HEIGHT = 1080.0, 400.0
_BOX = Box(56.0, 16.0, 1008.0, 330.0)
_MOST_POINTS = 400
_LEGEND_LINE = 19.0
_MOST_INSIDE = 9


def jct_picture(runs: Sequence[RunOutcome]) -> str:
    """Return the distribution of the job completion times of each run; empty where no job completed.

    Args:
        runs: in the order of their line classes.
    """
    jcts = [_jcts(run) for run in runs]
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
            parts.append(_line(jct_s, i, f"{names[i]}: {_tooltip(runs[i])}", (low, high)))
    parts += _legend(runs, legend, is_inside=is_inside)
    height = _HEIGHT if is_inside else _HEIGHT + _LEGEND_LINE * (1 + (len(runs) - 1) // _across(legend) + 1)
    return picture(_WIDTH, height, "Share of jobs completed within a time, one line per run", parts)


def _jcts(run: RunOutcome) -> Floats:
    return np.sort(np.array([job.jct_s for job in run.history.finished if job.outcome == "completed"]))


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


def _line(jct_s: Floats, number: int, told: str, limits: tuple[float, float]) -> str:
    """Draw the steps of the distribution; of very many jobs, some hundred."""
    ranks = np.unique(np.linspace(0, len(jct_s) - 1, min(len(jct_s), _MOST_POINTS)).astype(int))
    path = [f"M{px(_x(float(jct_s[0]), limits))} {px(_BOX.bottom)}"]
    for rank in ranks.tolist():
        x = px(_x(float(jct_s[rank]), limits))
        path.append(f"H{x}V{px(_BOX.bottom - _BOX.height * (rank + 1) / len(jct_s))}")
    path.append(f"H{px(_BOX.right)}")
    d = "".join(path)
    wide = element("path", class_="touch", d=d)
    return element("g", element("title", text(told)), wide, element("path", class_=f"line {line_class(number)}", d=d))


def _corner(runs: Sequence[RunOutcome]) -> Box:
    """Return the lower right corner, as large as the names of the runs need it."""
    width = 38 + 6.6 * max(len(name) for name in labels(runs)) + 10
    height = _LEGEND_LINE * len(runs) + 6
    return Box(_BOX.right - width - 10, _BOX.bottom - 8 - height, width, height)


def _across(corner: Box) -> int:
    return max(1, int(_BOX.width // corner.width))


def _is_free(corner: Box, jcts: Sequence[Floats], limits: tuple[float, float]) -> bool:
    """Tell whether every distribution, which never falls, is above the corner where the corner begins."""
    low, high = limits
    left_s = low * (high / low) ** ((corner.x - _BOX.x) / _BOX.width)
    least = (_BOX.bottom - corner.y) / _BOX.height
    return all(np.searchsorted(jct_s, left_s) / len(jct_s) > least for jct_s in jcts)


def _legend(runs: Sequence[RunOutcome], corner: Box, *, is_inside: bool) -> Iterable[str]:
    """Yield the names, the shortest average first: in the corner, or below the picture."""
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

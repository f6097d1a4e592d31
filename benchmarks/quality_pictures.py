"""Pictures of what policies make of workloads, as SVG files: how soon jobs complete, mean times, and unfair jobs.

They show what is measured in the same runs, and beside it what is published of Pollux and a bound for anybody, with
the workloads that these are for (docs/quality.md says where they come from).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from voda.simulator.report.svg import LINES_LIGHT, element, log_ticks, px, text

NEW: Final = "elastic-value"
"""What the others are the yardstick of."""
PUBLISHED: Final[Mapping[str, Mapping[str, float]]] = {
    "pollux": {"Pollux, published": 2479.0, "bound": 1923.0},
    "pollux-2x": {"Pollux, published": 5539.0, "bound": 3651.0},
}
"""Seconds; means of workloads 1, 3, 4, 6, 8. Pollux changes batch sizes, policies here do not; the bound knows all that
comes, pays for no restarts and gives any width.
"""
_WIDTH, _LEFT, _RIGHT = 720.0, 150.0, 40.0
_ROW, _TOP = 22.0, 34.0
_PLOT: Final = 260.0
_ACCENT: Final = "#cf4a0c"
_OTHER: Final = "#8fa3b8"
_REFERENCE: Final = "#2b8a3e"
_INK: Final = "#222"


def write_pictures(
    folder: Path,
    family: str,
    jct_s: Mapping[str, Sequence[float]],
    unfair: Mapping[str, float],
    *,
    has_published: bool,
) -> Sequence[Path]:
    """Write the pictures of one family of workloads, and return their paths.

    Args:
        folder: made if it is not there.
        family: name of the workloads, part of the files' names.
        jct_s: policy -> completion times of the jobs of all its workloads, each list the same jobs.
        unfair: policy -> share of the jobs, 0 to 1.
        has_published: whether the workloads are those of PUBLISHED.
    """
    folder.mkdir(parents=True, exist_ok=True)
    means = {policy: float(np.mean(seconds)) for policy, seconds in jct_s.items()}
    beside = PUBLISHED.get(family, {}) if has_published else {}
    percent = {policy: 100 * share for policy, share in unfair.items()}
    made = {
        "jct": _distributions(jct_s, f"{family}: share of the jobs that completed within a time"),
        "mean": _bars({**means, **beside}, f"{family}: mean completion time, s", beside.keys()),
        "unfair": _bars(percent, f"{family}: unfair jobs (rho above 1.1), %", ()),
    }
    paths = [folder / f"quality-{family}-{name}.svg" for name in made]
    for path, markup in zip(paths, made.values(), strict=True):
        path.write_text(markup, encoding="utf-8")
    return paths


def _picture(height: float, title: str, parts: Iterable[str]) -> str:
    head = element("text", text(title), x=8.0, y=20.0, font_size="14", fill=_INK)
    paper = element("rect", width=_WIDTH, height=height, fill="#fff")
    return element(
        "svg",
        paper,
        head,
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {px(_WIDTH)} {px(height)}",
        font_family="sans-serif",
        role="img",
        aria_label=title,
    )


def _bars(values: Mapping[str, float], title: str, references: Iterable[str]) -> str:
    most, known = max(values.values(), default=0.0) or 1.0, {*references}
    parts: list[str] = []
    for row, (name, value) in enumerate(sorted(values.items(), key=lambda item: item[1])):
        y, width = _TOP + row * _ROW, (_WIDTH - _LEFT - _RIGHT - 30) * value / most
        colour = _REFERENCE if name in known else _ACCENT if name == NEW else _OTHER
        parts += [
            element("text", text(name), x=_LEFT - 8, y=y + 14, font_size="12", text_anchor="end", fill=_INK),
            element("rect", x=_LEFT, y=y + 3, width=width, height=_ROW - 6, fill=colour),
            element("text", f"{value:,.0f}", x=_LEFT + width + 5, y=y + 14, font_size="12", fill=_INK),
        ]
    return _picture(_TOP + len(values) * _ROW + 8, title, parts)


def _distributions(jct_s: Mapping[str, Sequence[float]], title: str) -> str:
    low = min(min(seconds) for seconds in jct_s.values())
    high = max(max(seconds) for seconds in jct_s.values())
    left, width, bottom = 48.0, _WIDTH - 190.0, _TOP + _PLOT
    scale = width / max(math.log(high / low), 1e-9)

    def x(seconds: float) -> float:
        return left + math.log(seconds / low) * scale

    parts: list[str] = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - share * _PLOT
        parts += [
            element("path", d=f"M{px(left)} {px(y)}h{px(width)}", stroke="#ddd"),
            element("text", f"{share:.0%}", x=left - 6, y=y + 4, font_size="11", text_anchor="end", fill=_INK),
        ]
    for seconds, label in log_ticks(low, high):
        parts.append(
            element("text", text(label), x=x(seconds), y=bottom + 16, font_size="11", text_anchor="middle", fill=_INK)
        )
    for number, (name, times) in enumerate(jct_s.items()):
        ordered = np.sort(np.array(times, dtype=float))
        shares = np.linspace(0.0, 1.0, min(len(ordered), 200))
        points = zip(np.quantile(ordered, shares).tolist(), shares.tolist(), strict=True)
        d = "M" + "L".join(f"{px(x(seconds))} {px(bottom - share * _PLOT)}" for seconds, share in points)
        colour = _ACCENT if name == NEW else LINES_LIGHT[::2][number % 4]
        line = {"stroke": colour, "stroke_width": "2.5" if name == NEW else "1.2", "fill": "none"}
        y = _TOP + 14 + number * 18
        parts += [
            element("path", d=d, **line, **({} if name == NEW else {"stroke_dasharray": f"{3 + number} 2"})),
            element("text", text(name), x=left + width + 10, y=y, font_size="12", fill=colour),
        ]
    return _picture(bottom + 26, title, parts)

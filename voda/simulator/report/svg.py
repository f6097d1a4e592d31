"""SVG and HTML, element by element: escaped text, rounded coordinates, round figures on axes, and the page's colours.

Rule: every string from outside passes through `text` or an attribute of `element`.
"""

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from voda.simulator.report.comparison_table import RunOutcome

_UNITS: Sequence[tuple[str, float, Sequence[float]]] = (
    ("seconds", 1.0, (1, 2, 5, 10, 15, 30)),
    ("minutes", 60.0, (1, 2, 5, 10, 15, 20)),
    ("hours", 3600.0, (0.25, 0.5, 1, 2, 3, 4, 6, 12)),
    ("days", 86400.0, (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)),
)
# From this many seconds on an axis is written in the next larger unit.
_UNIT_LIMITS_S = (180.0, 2 * 3600.0, 3 * 86400.0)
_MOST_TICKS = 9
_LOG_TICKS: Sequence[tuple[float, str]] = (
    (0.1, "0.1 s"), (1, "1 s"), (3, "3 s"), (10, "10 s"), (30, "30 s"), (60, "1 min"), (120, "2 min"),
    (300, "5 min"), (600, "10 min"), (1200, "20 min"), (1800, "30 min"), (3600, "1 h"), (7200, "2 h"),
    (18000, "5 h"), (36000, "10 h"), (86400, "1 d"), (172800, "2 d"), (432000, "5 d"), (864000, "10 d"),
    (2592000, "30 d"), (8640000, "100 d"),
)  # fmt: skip

# For distributions that span less than a decade.
_LEAST_LOG_TICKS = 5
_FINE_LOG_TICKS: Sequence[tuple[float, str]] = tuple(
    (n * unit_s, f"{n} {unit}")
    for unit, unit_s, counts in (
        ("s", 1, (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)),
        ("min", 60, (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)),
        ("h", 3600, (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18)),
        ("d", 86400, (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)),
    )
    for n in counts
)

_HUES = ("#4e79d9", "#f2a93b", "#e3655b", "#5bb8a8", "#8fbf4d", "#c583c9", "#8a63d2", "#7ec4ea", "#b07d56", "#9aa0a8")
_WHITE_IN_SHADE = (0.0, 0.22, 0.42)
_OTHER = len(_HUES) - 1

OCCUPANCY = (0x3F, 0x78, 0xD8)
"""Red, green and blue of the occupancy map."""

LINES_LIGHT = ("#1f5fbf", "#cf4a0c", "#2b8a3e", "#9c36b5", "#0b7285", "#c2255c", "#8a6100", "#495057")
LINES_DARK = ("#7db0ff", "#ff9c63", "#74d983", "#dd8af5", "#4fd0e3", "#ff8abb", "#e3b659", "#b6bdc5")
"""One per run; from the ninth on they begin again with other dashes."""


class Box(Struct, frozen=True):
    """A rectangle in pixels, from its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height


def px(value: float) -> str:
    """Return a coordinate, rounded to a tenth of a pixel, without a needless '.0'."""
    return f"{value:.1f}".removesuffix(".0")


def text(value: object) -> str:
    """Return a string as HTML and SVG may show it."""
    return html.escape(str(value))


def element(name: str, *inner: str, **attributes: object) -> str:
    """Return an element; `inner` is markup already, attributes are escaped; `class_` is class, `_` is '-'."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{px(value) if isinstance(value, float) else text(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(inner)}</{name}>"


def picture(width: float, height: float, label: str, inner: Iterable[str]) -> str:
    """Return a whole picture that scales with the page; `label` describes it to screen readers."""
    return element("svg", *inner, viewBox=f"0 0 {px(width)} {px(height)}", role="img", aria_label=label)


def rectangle_path(box: Box) -> str:
    """Return a rectangle as part of a path's `d`."""
    return f"M{px(box.x)} {px(box.y)}h{px(box.width)}v{px(box.height)}h-{px(box.width)}z"


def time_ticks(span_s: float) -> tuple[Sequence[tuple[float, str]], str]:
    """Return the ticks of an axis from 0 to `span_s` as (seconds, figure), and the unit of the figures."""
    unit, unit_s, steps = _UNITS[sum(span_s >= limit for limit in _UNIT_LIMITS_S)]
    step = next((step for step in steps if span_s / (step * unit_s) <= _MOST_TICKS), steps[-1])
    counts = range(int(span_s / (step * unit_s) + 1e-9) + 1)
    return [(n * step * unit_s, f"{n * step:g}") for n in counts], unit


def log_ticks(low_s: float, high_s: float, most: int = 9) -> Sequence[tuple[float, str]]:
    """Return ticks of a logarithmic axis of spans, as (seconds, figure with unit), `most` at most."""
    for ticks in (_LOG_TICKS, _FINE_LOG_TICKS):
        inside = [tick for tick in ticks if low_s <= tick[0] <= high_s]
        if len(inside) >= _LEAST_LOG_TICKS:
            break
    return inside[:: -(-len(inside) // most) or 1]


# Hues that differ in lightness too, so that they differ for colour-blind eyes and in print.
class JobColours:
    """A class of the style sheet for every job: the hue is its category, the shade differs between neighbours.

    The categories with the most GPU time get a hue each, the rest share grey. Where all jobs are of one category, each
    job has its hue.
    """

    def __init__(self, runs: Sequence[RunOutcome]) -> None:
        gpu_s = Counter[str]()
        self._category: dict[str, str] = {}
        for job in (job for run in runs for job in run.history.finished):
            gpu_s[job.category] += int(job.gpu_s)
            self._category.setdefault(job.job_id, job.category)
        names = [name for name, _ in gpu_s.most_common()]
        self.by_category = len(names) > 1
        hue_names = names if len(names) <= len(_HUES) else names[:_OTHER]
        self._hue: Mapping[str, int] = {name: hue for hue, name in enumerate(sorted(hue_names))}
        self._has_others = len(names) > len(hue_names)
        members = Counter[str]()
        self._number: dict[str, int] = {}
        for job_id, category in self._category.items():
            self._number[job_id] = members[category]
            members[category] += 1

    def class_of(self, job_id: str) -> str:
        """Return the job's class; a job that never ended is grey."""
        number = self._number.get(job_id, 0)
        if not self.by_category:
            return shade_class(number % _OTHER, number // _OTHER)
        return shade_class(self._hue.get(self._category.get(job_id, ""), _OTHER), number)

    def legend(self) -> Sequence[tuple[str, str]]:
        """Return (class, category) for each hue; empty where hues are not categories."""
        if not self.by_category:
            return ()
        entries = [(shade_class(hue, 0), name) for name, hue in self._hue.items()]
        return (*entries, (shade_class(_OTHER, 0), "others")) if self._has_others else entries


def shade_class(hue: int, shade: int) -> str:
    """Return the class of one shade of a hue."""
    return f"c{hue}{shade % len(_WHITE_IN_SHADE)}"


def line_class(run: int) -> str:
    """Return the class of the line that draws the run of that number."""
    count = len(LINES_LIGHT)
    return f"l{run % count}" if run < count else f"l{run % count} again"


def rules() -> Iterable[str]:
    """Yield the style sheet's rules for all of these classes."""
    for hue, colour in enumerate(_HUES):
        for shade, white in enumerate(_WHITE_IN_SHADE):
            yield f".c{hue}{shade}{{fill:{_mixed(colour, white)}}}"
    for run in range(len(LINES_LIGHT)):
        yield f".l{run}{{stroke:var(--line{run})}}"


def variables(lines: Sequence[str]) -> str:
    """Return the custom properties that give the lines their colours."""
    return "".join(f"--line{run}:{colour};" for run, colour in enumerate(lines))


def _mixed(colour: str, white: float) -> str:
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(channel + (255 - channel) * white):02x}" for channel in channels)

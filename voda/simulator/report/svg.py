"""SVG and HTML, element by element: escaped text, rounded coordinates, axes with round figures.

Rule: every string from outside passes through `text` or an attribute of `element`.
"""

import html
from collections.abc import Iterable, Sequence

from msgspec import Struct

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


class Box(Struct, frozen=True):
    """A rectangle in pixels, from its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """x of the right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """y of the lower edge."""
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

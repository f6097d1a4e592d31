"""The page of a comparison: what each rater left unallocated as the load grew, as a picture and a table."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from benchmarks.sharing.compare import RaterMeans, means
from benchmarks.sharing.experiment import SharingRun
from benchmarks.sharing.report import LOADS
from voda.domain.errors import InvalidInput
from voda.simulator.report.pages import page
from voda.simulator.report.svg import Box, element, line_class, picture, px, text

_BOX: Final = Box(56.0, 16.0, 860.0, 330.0)
_WIDTH: Final = 1080.0
_HEIGHT: Final = 400.0
_LEAST_LOAD: Final = 80
_TICKS: Final = 5
_LEGEND_LINE: Final = 19.0


class SharingResults(Struct, frozen=True, kw_only=True):
    """What `-o json` prints and results.json holds."""

    means: Sequence[RaterMeans]
    runs: Sequence[SharingRun]


def results_of(runs: Sequence[SharingRun]) -> SharingResults:
    """Return runs and the means of each rater."""
    return SharingResults(means=means(runs), runs=runs)


def write_page(directory: Path, results: SharingResults, command: str) -> Path:
    """Write results.json and index.html, and return the page's path.

    Raises:
        InvalidInput: the folder cannot be made or written to.
    """
    workload = results.runs[0].workload
    body = (
        element("h1", text(workload)),
        element("p", "GPUs that are left unallocated as pods arrive and stay, simulated with voda.", class_="soft"),
        element("p", "Made by ", element("code", text(command)), class_="soft"),
        element("figure", _curves(results.means)),
        element("div", _table(results.means), class_="scroll", tabindex="0"),
    )
    target = directory / "index.html"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
        target.write_text(page(f"{workload}: raters compared", body), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--out {directory}: the report cannot be written there ({error.strerror})") from error
    return target


def _table(compared: Sequence[RaterMeans]) -> str:
    heads = "".join(element("th", f"{load} %", scope="col") for load in LOADS)
    rows = (
        element(
            "tr",
            element("th", text(each.rater), scope="row"),
            *(element("td", f"{each.at(load).unallocated:.2f}") for load in LOADS),
        )
        for each in compared
    )
    caption = element("caption", "GPUs left unallocated [%] once pods have asked for so much of all GPUs")
    head = element("thead", element("tr", element("th", "rater", scope="col"), heads))
    return element("table", caption, head, element("tbody", *rows))


def _curves(compared: Sequence[RaterMeans]) -> str:
    shown = {each.rater: [point for point in each.points if point.load >= _LEAST_LOAD] for each in compared}
    most_load = max((points[-1].load for points in shown.values() if points), default=_LEAST_LOAD) + 0.001
    top = max((point.unallocated for points in shown.values() for point in points), default=1.0)
    parts = [*_axes(most_load, top)]
    for number, (rater, points) in enumerate(shown.items()):
        steps = [
            f"{px(_x(point.load, most_load))} {px(_BOX.bottom - _BOX.height * point.unallocated / top)}"
            for point in points
        ]
        curve = element("path", class_=f"line {line_class(number)}", d="M" + "L".join(steps)) if steps else ""
        y = _BOX.y + 14 + _LEGEND_LINE * number
        parts.append(element("g", element("title", text(rater)), curve))
        parts.append(
            element("line", class_=f"line {line_class(number)}", x1=_BOX.right + 8, x2=_BOX.right + 30, y1=y, y2=y)
        )
        parts.append(element("text", text(rater), class_="key", x=_BOX.right + 38, y=y + 4))
    return picture(_WIDTH, _HEIGHT, "GPUs left unallocated as the load grows, one line per rater", parts)


def _x(load: float, most_load: float) -> float:
    return _BOX.x + _BOX.width * (load - _LEAST_LOAD) / (most_load - _LEAST_LOAD)


def _axes(most_load: float, top: float) -> Iterable[str]:
    for tick in range(_TICKS + 1):
        y = _BOX.bottom - _BOX.height * tick / _TICKS
        yield element("line", class_="grid", x1=_BOX.x, x2=_BOX.right, y1=y, y2=y)
        label = f"{top * tick / _TICKS:.1f} %"
        yield element("text", label, class_="tick", x=_BOX.x - 8, y=y + 4, text_anchor="end")
    for load in range(_LEAST_LOAD, int(most_load) + 1, 10):
        x = _x(load, most_load)
        yield element("line", class_="grid", x1=x, x2=x, y1=_BOX.y, y2=_BOX.bottom + 4)
        yield element("text", f"{load} %", class_="tick", x=x, y=_BOX.bottom + 18, text_anchor="middle")
    words = "load: GPUs that arrived pods ask for, of all"
    yield element("text", words, class_="axis", x=_BOX.x + _BOX.width / 2, y=_BOX.bottom + 38, text_anchor="middle")

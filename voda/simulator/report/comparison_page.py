"""The page: one HTML file that needs nothing beside it, runs no script, and reads well by day and night.

Rule: job, policy and workload names are hostile until they have passed through `text` or `element`.
"""

import os
import shlex
from collections.abc import Iterable, Sequence
from heapq import nlargest
from importlib import resources
from operator import attrgetter
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from voda import __version__
from voda.domain.errors import InvalidInput
from voda.projections.history import FinishedJob
from voda.simulator.metrics import RunResult
from voda.simulator.report.colours import LINES_DARK, LINES_LIGHT, rules, variables
from voda.simulator.report.comparison_table import ALL, TIMES, RunColumn, best
from voda.simulator.report.distribution import jct_picture
from voda.simulator.report.pictures import RunPictures
from voda.simulator.report.run_summary import RunOutcome, about, labels, warnings
from voda.simulator.report.svg import element, text
from voda.simulator.report.units import counted, percent, span

# No script and no request, whatever a name contains that should have been escaped.
_SECURITY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Provenance(Struct, frozen=True, kw_only=True):
    """How the page came to be, so that somebody else can make it again."""

    command: str
    seed: int
    version: str


def document(runs: Sequence[RunOutcome], origin: Provenance, logs: Sequence[str | None]) -> str:
    """Return the whole page.

    Args:
        runs: of one workload, at least one.
        origin: how they were made.
        logs: of each run, the path of its log relative to the page; None where it was not kept.
    """
    title = f"{runs[0].result.workload}: {counted(len(runs), 'run')} compared"
    head = head_of(title)
    body = (*_introduction(runs), _facts(runs, origin), _comparison(runs), *_distribution(runs), *_runs(runs, logs))
    return "\n".join(
        ("<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *body, "</body></html>\n")
    )


def head_of(title: str) -> Sequence[str]:
    """Return what stands in a page's head."""
    return (
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_SECURITY}">',
        element("title", text(title)),
        f"<style>{_style()}</style>",
    )


def _style() -> str:
    sheet = resources.files("voda.simulator.report").joinpath("document.css").read_text(encoding="utf-8")
    light, dark = variables(LINES_LIGHT), variables(LINES_DARK)
    themes = f":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"
    return "\n".join((sheet, themes, *rules()))


def _introduction(runs: Sequence[RunOutcome]) -> Iterable[str]:
    yield element("h1", text(runs[0].result.workload))
    yield element("p", f"{about(runs)}, simulated with voda", class_="soft")
    yield element("p", _verdict(runs), class_="lead")
    for warning in warnings(runs):
        yield element("p", text(warning), class_="warn")


def _verdict(runs: Sequence[RunOutcome]) -> str:
    """Say in one or two sentences what a hurried reader wants to know."""
    names = dict(zip((id(run) for run in runs), labels(runs), strict=True))
    by_jct = sorted(runs, key=lambda run: run.result.avg_jct_s)
    first, last = by_jct[0], by_jct[-1]

    def name(run: RunOutcome) -> str:
        return element("strong", text(names[id(run)]))

    average = span(first.result.avg_jct_s)
    if first.result.avg_jct_s == last.result.avg_jct_s:
        return f"Jobs took {average} on average, from submission to end."
    saved = percent(1 - first.result.avg_jct_s / last.result.avg_jct_s)
    shortest = min(runs, key=lambda run: run.result.makespan_s)
    is_tied = len({span(run.result.makespan_s) for run in runs}) == 1
    return (
        f"{name(first)} has the shortest average job completion time, {average}: {saved} below {name(last)}"
        f" ({span(last.result.avg_jct_s)}). The whole workload is done"
        f" {'under each of them' if is_tied else f'first under {name(shortest)},'}"
        f" after {span(shortest.result.makespan_s)}."
    )


def _facts(runs: Sequence[RunOutcome], origin: Provenance) -> str:
    placers = ", ".join(dict.fromkeys(run.result.placer for run in runs))
    pairs = (
        ("Source", text(runs[0].source)),
        ("Placer", text(placers)),
        ("Seed", str(origin.seed)),
        ("Made by", element("code", text(origin.command)) + f" (voda {text(origin.version)})"),
        ("Figures", '<a href="results.json">results.json</a>'),
    )
    return element("dl", *(element("dt", name) + element("dd", value) for name, value in pairs))


def _comparison(runs: Sequence[RunOutcome]) -> str:
    results = [run.result for run in runs]
    champions = [best(column, results) for column in ALL]
    heads = (element("th", text(c.head.replace("-\n", "").strip()), title=c.meaning, scope="col") for c in ALL)
    rows = []
    for number, (label, run) in enumerate(zip(labels(runs), runs, strict=True)):
        link = element("a", text(label), href=f"#run{number}")
        cells = (_cell(column, runs, run, champion) for column, champion in zip(ALL, champions, strict=True))
        rows.append(element("tr", element("th", link, scope="row"), *cells))
    marked = "The best of each column is marked. " if len(runs) > 1 else ""
    caption = element("caption", f"{marked}JCT = job completion time. Point at a heading for its meaning.")
    head = element("thead", element("tr", element("th", "policy", scope="col"), *heads))
    table = element("table", caption, head, element("tbody", *rows))
    title = "The policies compared" if len(runs) > 1 else "The run in figures"
    return element("h2", title) + element("div", table, class_="scroll", tabindex="0")


def _cell(column: RunColumn, runs: Sequence[RunOutcome], run: RunOutcome, champion: str | None) -> str:
    value = column.value(run.result)
    words = text(column.text(value))
    if column is TIMES[0]:
        most = max(column.value(other.result) for other in runs) or 1.0
        words += element("span", class_="bar", style=f"width:{value / most:.0%}")
    return element("td", words, class_="best") if column.text(value) == champion else element("td", words)


def _distribution(runs: Sequence[RunOutcome]) -> Iterable[str]:
    if drawn := jct_picture(runs):
        yield element("h2", "How long jobs took")
        yield element(
            "p",
            "The further a line lies to the left, the sooner its jobs were done. Point at a line for its figures.",
            class_="soft",
        )
        yield element("figure", drawn)


def _runs(runs: Sequence[RunOutcome], logs: Sequence[str | None]) -> Iterable[str]:
    pictures = RunPictures(runs)
    yield element("h2", "Who had which GPU when")
    yield element("p", _how_to_read(pictures), class_="soft")
    if not pictures.is_map and (legend := pictures.colours.legend()):
        yield element("ul", *(_legend_entry(name, category) for name, category in legend), class_="key-list soft")
    for number, (label, run, log) in enumerate(zip(labels(runs), runs, logs, strict=True)):
        yield element("h3", text(label), id=f"run{number}")
        yield element("p", _summary(run), class_="soft")
        yield element("figure", pictures.draw(run, label))
        yield from links_below(run, log)


def _how_to_read(pictures: RunPictures) -> str:
    same = "Time and scales are the same in all pictures."
    if pictures.is_map:
        return f"One row per node. {same}"
    colours = (
        "Hues are kinds of jobs, shades tell jobs apart."
        if pictures.colours.by_category
        else "Colours tell jobs apart."
    )
    return f"{colours} Point at a job to see all of it and what became of it. {same}"


def _legend_entry(name: str, category: str) -> str:
    swatch = f'<svg viewBox="0 0 12 12" aria-hidden="true"><rect class="{name}" width="12" height="12" rx="2"/></svg>'
    return element("li", swatch, text(category[:60]))


def _summary(run: RunOutcome) -> str:
    result = run.result
    return (
        f"Average JCT {span(result.avg_jct_s)}, of which {span(result.avg_queueing_s)} waiting; all done after"
        f" {span(result.makespan_s)}; {percent(result.utilisation)} of the GPU time held;"
        f" {result.restarts_per_job:.1f} restarts and {result.migrations_per_job:.1f} moves per job."
    )


_LONGEST = 3
_MOST_NAME = 60


def links_below(run: RunOutcome, log: str | None) -> Iterable[str]:
    """Yield what stands below a run's picture; nothing where its log was not kept.

    Args:
        run: whose log it is.
        log: path relative to the page.
    """
    if log is None:
        return
    link = element("a", text(log), href=quote(log))
    words = f"Every event of this run, decisions and reasons included: {link}. To be called in the folder of this page:"
    yield element("p", words, class_="soft")
    waited = [job for job in nlargest(_LONGEST, run.history.finished, key=attrgetter("queueing_s")) if job.queueing_s]
    commands = [*(_explain(log, job) for job in waited), f"voda replay {shlex.quote(log)} --verify"]
    yield element("pre", element("code", text("\n".join(commands))))


def _explain(log: str, job: FinishedJob) -> str:
    # A name that breaks the line or hides its end would make another command of it.
    name = job.job_id if job.job_id.isprintable() and len(job.job_id) <= _MOST_NAME else "JOB"
    return f"voda explain {shlex.quote(log)} {shlex.quote(name)}  # waited {span(job.queueing_s)}"


def results_json(runs: Sequence[RunOutcome]) -> bytes:
    """Return what `voda simulate --json` prints and results.json holds: {"runs": [...]}, two spaces indented."""
    results: dict[str, list[RunResult]] = {"runs": [run.result for run in runs]}
    return msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n"


def write_report(directory: Path, runs: Sequence[RunOutcome], *, command: str, seed: int) -> Path:
    """Write results.json and index.html, over those of an earlier report, and return the page's path.

    Args:
        directory: made where it is missing.
        runs: of one workload, at least one.
        command: that a reader can repeat.
        seed: of the runs.

    Raises:
        InvalidInput: the folder cannot be made or written to.
    """
    origin = Provenance(command=command, seed=seed, version=__version__)
    logs = [os.path.relpath(run.log, directory) if run.log is not None else None for run in runs]
    target = directory / "index.html"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "results.json").write_bytes(results_json(runs))
        target.write_text(document(runs, origin, logs), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--out {directory}: the report cannot be written there ({error.strerror})") from error
    return target

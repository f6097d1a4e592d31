"""The pages that compare runs and show a recorded log: HTML without script or outside resources, light and dark.

Rule: names of jobs, policies and workloads may be hostile; they pass through `text` or `element`.
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

from voda import __version__
from voda.domain.errors import InvalidInput
from voda.projections.history import FinishedJob, History
from voda.projections.timeline import Timeline
from voda.simulator.metrics import Execution, RunResult, measure
from voda.simulator.report.comparison_table import ALL, TIMES, RunColumn, RunOutcome, about, best, labels, warnings
from voda.simulator.report.pictures import RunPictures, jct_picture
from voda.simulator.report.svg import LINES_DARK, LINES_LIGHT, element, rules, text, variables
from voda.text import counted, percent, span

# No script and no request, even if a name were not escaped.
_SECURITY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_LONGEST = 3
_MOST_NAME = 60
_MOST_ROWS = 500


def page(title: str, body: Iterable[str]) -> str:
    """Return a whole page; `body` is markup already."""
    head = (
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_SECURITY}">',
        element("title", text(title)),
        f"<style>{_style()}</style>",
    )
    return "\n".join(
        ("<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *body, "</body></html>\n")
    )


def _style() -> str:
    sheet = resources.files("voda.simulator.report").joinpath("document.css").read_text(encoding="utf-8")
    light, dark = variables(LINES_LIGHT), variables(LINES_DARK)
    themes = f":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"
    return "\n".join((sheet, themes, *rules()))


def _introduction(runs: Sequence[RunOutcome]) -> Iterable[str]:
    yield element("h1", text(runs[0].result.workload))
    yield element("p", f"{about(runs)}, simulated with voda", class_="soft")
    yield element("p", _headline(runs), class_="lead")
    for warning in warnings(runs):
        yield element("p", text(warning), class_="warn")


def _headline(runs: Sequence[RunOutcome]) -> str:
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


def _facts(runs: Sequence[RunOutcome], command: str, seed: int) -> str:
    """Return how the page was made, so that somebody else can repeat it."""
    placers = ", ".join(dict.fromkeys(run.result.placer for run in runs))
    pairs = (
        ("Source", text(runs[0].source)),
        ("Placer", text(placers)),
        ("Seed", str(seed)),
        ("Made by", element("code", text(command)) + f" (voda {text(__version__)})"),
        ("Figures", '<a href="results.json">results.json</a>'),
    )
    return element("dl", *(element("dt", name) + element("dd", value) for name, value in pairs))


def _comparison(runs: Sequence[RunOutcome]) -> str:
    results = [run.result for run in runs]
    best_texts = [best(column, results) for column in ALL]
    heads = (element("th", text(c.head.replace("-\n", "").strip()), title=c.meaning, scope="col") for c in ALL)
    rows = []
    for number, (label, run) in enumerate(zip(labels(runs), runs, strict=True)):
        link = element("a", text(label), href=f"#run{number}")
        cells = (_cell(column, runs, run, best_text) for column, best_text in zip(ALL, best_texts, strict=True))
        rows.append(element("tr", element("th", link, scope="row"), *cells))
    marked = "The best of each column is marked. " if len(runs) > 1 else ""
    caption = element("caption", f"{marked}JCT = job completion time. Point at a heading for its meaning.")
    head = element("thead", element("tr", element("th", "policy", scope="col"), *heads))
    table = element("table", caption, head, element("tbody", *rows))
    title = "The policies compared" if len(runs) > 1 else "The run in figures"
    return element("h2", title) + element("div", table, class_="scroll", tabindex="0")


def _cell(column: RunColumn, runs: Sequence[RunOutcome], run: RunOutcome, best_text: str | None) -> str:
    value = column.value(run.result)
    words = text(column.text(value))
    if column is TIMES[0]:
        most = max(column.value(other.result) for other in runs) or 1.0
        words += element("span", class_="bar", style=f"width:{value / most:.0%}")
    return element("td", words, class_="best") if column.text(value) == best_text else element("td", words)


def _distribution(runs: Sequence[RunOutcome]) -> Iterable[str]:
    if picture := jct_picture(runs):
        yield element("h2", "How long jobs took")
        yield element(
            "p",
            "The further left a line, the sooner its jobs completed. Point at a line for its figures.",
            class_="soft",
        )
        yield element("figure", picture)


def _runs(runs: Sequence[RunOutcome], logs: Sequence[str | None]) -> Iterable[str]:
    pictures = RunPictures(runs)
    yield element("h2", "Which job held which GPU")
    yield element("p", _how_to_read(pictures), class_="soft")
    if not pictures.is_map and (legend := pictures.colours.legend()):
        yield element("ul", *(_legend_entry(name, category) for name, category in legend), class_="key-list soft")
    for number, (label, run, log) in enumerate(zip(labels(runs), runs, logs, strict=True)):
        yield element("h3", text(label), id=f"run{number}")
        yield element("p", _summary(run), class_="soft")
        yield element("figure", pictures.draw(run, label))
        yield from _commands(run, log)


def _how_to_read(pictures: RunPictures) -> str:
    same = "Time and scales are the same in all pictures."
    if pictures.is_map:
        return f"One row per node. {same}"
    colours = (
        "Each hue is a category of jobs, each shade a job." if pictures.colours.by_category else "Each colour is a job."
    )
    return f"{colours} Point at a job to see its figures and all its GPUs. {same}"


def _legend_entry(name: str, category: str) -> str:
    swatch = f'<svg viewBox="0 0 12 12" aria-hidden="true"><rect class="{name}" width="12" height="12" rx="2"/></svg>'
    return element("li", swatch, text(category[:60]))


def _summary(run: RunOutcome) -> str:
    result = run.result
    return (
        f"Average JCT {span(result.avg_jct_s)}, of which {span(result.avg_queueing_s)} waiting; all jobs done after"
        f" {span(result.makespan_s)}; {percent(result.utilisation)} of the GPU time held;"
        f" {result.restarts_per_job:.1f} restarts and {result.migrations_per_job:.1f} moves per job."
    )


def _commands(run: RunOutcome, log: str | None) -> Iterable[str]:
    """Yield the commands that explain a run; nothing where its log was not kept. `log` is relative to the page."""
    if log is None:
        return
    link = element("a", text(log), href=quote(log))
    words = f"Every event of this run, with decisions and reasons: {link}. Run in the folder of this page:"
    yield element("p", words, class_="soft")
    waited = [job for job in nlargest(_LONGEST, run.history.finished, key=attrgetter("queueing_s")) if job.queueing_s]
    commands = [*(_explain(log, job) for job in waited), f"voda replay {shlex.quote(log)} --verify"]
    yield element("pre", element("code", text("\n".join(commands))))


def _explain(log: str, job: FinishedJob) -> str:
    # A name with line breaks or of great length would change the command.
    name = job.job_id if job.job_id.isprintable() and len(job.job_id) <= _MOST_NAME else "JOB"
    return f"voda explain {shlex.quote(log)} {shlex.quote(name)}  # waited {span(job.queueing_s)}"


def results_json(runs: Sequence[RunOutcome]) -> bytes:
    """Return what `voda simulate --json` prints and results.json holds: {"runs": [...]}, two spaces indented."""
    results: dict[str, list[RunResult]] = {"runs": [run.result for run in runs]}
    return msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n"


def write_report(directory: Path, runs: Sequence[RunOutcome], *, command: str, seed: int) -> Path:
    """Write results.json and index.html, over those of an earlier report, and return the page's path.

    Raises:
        InvalidInput: the folder cannot be made or written to.
    """
    logs = [os.path.relpath(run.log, directory) if run.log is not None else None for run in runs]
    facts, title = _facts(runs, command, seed), f"{runs[0].result.workload}: {counted(len(runs), 'run')} compared"
    body = (*_introduction(runs), facts, _comparison(runs), *_distribution(runs), *_runs(runs, logs))
    return write_files(directory, page(title, body), results_json(runs))


def write_files(directory: Path, markup: str, results: bytes) -> Path:
    """Write results.json and index.html; see write_report."""
    target = directory / "index.html"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "results.json").write_bytes(results)
        target.write_text(markup, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--out {directory}: the report cannot be written there ({error.strerror})") from error
    return target


def recorded_run(history: History, timeline: Timeline, *, policy: str, placer: str, source: str) -> RunOutcome:
    """Return the outcome of a recorded log.

    It has no fairness, which compares with the time on an own slice of the cluster: nobody has measured that.
    """
    execution = Execution(workload=source.rpartition("/")[2], policy=policy, placer=placer, decisions_s=(), wall_s=0.0)
    running_s = {job.job_id: job.running_s for job in history.finished}
    result = measure(history, timeline, execution, lambda job_id, _gpus: running_s[job_id])
    return RunOutcome(result=result, history=history, timeline=timeline, source=source, unfinished=tuple(history.live))


def timeline_page(run: RunOutcome) -> str:
    """Return one HTML page without script or outside resources."""
    pictures = RunPictures([run])
    title = f"{run.result.workload}: which job held which GPU"
    commands = (f"voda events {run.source}", f"voda replay {run.source} --verify")
    body = (
        element("h1", text(title)),
        element("p", f"{about([run])}; {_log_summary(run)}", class_="soft"),
        element("figure", pictures.draw(run, run.result.policy)),
        *_ended_jobs(run),
        element("p", f"See also: {', '.join(element('code', text(command)) for command in commands)}", class_="soft"),
    )
    return page(title, body)


def _log_summary(run: RunOutcome) -> str:
    live = f"; {counted(len(run.unfinished), 'job')} still live" if run.unfinished else ""
    return (
        f"decided by {text(run.result.policy)}; jobs held {percent(run.result.utilisation)} of the GPU time until"
        f" the last one ended{live}."
    )


def _ended_jobs(run: RunOutcome) -> Iterable[str]:
    jobs = sorted(run.history.finished, key=lambda job: job.finished_at, reverse=True)
    heads = ("job", "outcome", "waited", "ran", "in total", "GPU time", "resizes", "restarts")
    head = element("thead", element("tr", *(element("th", name, scope="col") for name in heads)))
    rows = (element("tr", *_job_cells(job)) for job in jobs[:_MOST_ROWS])
    left = f" The latest {_MOST_ROWS} of {counted(len(jobs), 'job')}." if len(jobs) > _MOST_ROWS else ""
    caption = element("caption", f"Jobs that ended.{left}")
    yield element("div", element("table", caption, head, element("tbody", *rows)), class_="scroll", tabindex="0")


def _job_cells(job: FinishedJob) -> Iterable[str]:
    yield element("th", text(job.job_id), scope="row")
    figures = (span(job.queueing_s), span(job.running_s), span(job.jct_s), span(job.gpu_s))
    for words in (job.outcome, *figures, str(job.resizes), str(job.restarts)):
        yield element("td", text(words))

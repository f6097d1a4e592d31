"""The page of a comparison: tables and pictures, and the figures as JSON beside it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from voda.simulator.report.pages import page, write_files
from voda.simulator.report.svg import element, text
from voda.simulator.virtual_clusters.experiment import ModeRun, PolicyFigures
from voda.simulator.virtual_clusters.modes import SharedWorkload
from voda.simulator.virtual_clusters.pictures import lateness_picture, later_s, queueing_picture, usage_picture
from voda.simulator.virtual_clusters.report import (
    MODE_HEADS,
    Row,
    anomaly_heads,
    anomaly_rows,
    anomaly_title,
    mode_rows,
    queueing_heads,
    queueing_rows,
)
from voda.text import counted


class SharingFigures(Struct, frozen=True, kw_only=True):
    """What `-o json` prints and results.json holds."""

    workload: str
    virtual_clusters: Sequence[PolicyFigures]
    """Of each policy."""


def write_page(
    directory: Path,
    shared: SharedWorkload,
    results: SharingFigures,
    runs: Sequence[Sequence[ModeRun]],
    *,
    command: str,
) -> Path:
    """Write results.json and index.html, and return the page's path; `runs`: those of each policy.

    Raises:
        InvalidInput: the folder cannot be made or written to.
    """
    title = f"{results.workload}: {counted(len(shared.nodes), 'virtual cluster')} of one cluster"
    body = [
        *_introduction(shared, title, command),
        _table("All virtual clusters", MODE_HEADS, mode_rows(results.virtual_clusters)),
    ]
    for figures, of_policy in zip(results.virtual_clusters, runs, strict=True):
        body += _policy(shared, figures, of_policy)
    return write_files(directory, page(title, body), msgspec.json.format(msgspec.json.encode(results)) + b"\n")


def _introduction(shared: SharedWorkload, title: str, command: str) -> Iterable[str]:
    workload = shared.workload
    nodes = f"{counted(len(workload.nodes), 'node')} with {counted(shared.node_gpus, 'GPU')} each"
    yield element("h1", text(title))
    yield element("p", f"{counted(len(workload.arrivals), 'job')} on {nodes}, simulated with voda.", class_="soft")
    yield element("p", "Made by ", element("code", text(command)), class_="soft")
    yield element(
        "p",
        "An anomaly is a job that starts later than in a private cluster of its virtual cluster's quota, by more than"
        " the time that a reclaim takes; in brackets, how much later the worst job starts.",
    )


def _policy(shared: SharedWorkload, figures: PolicyFigures, runs: Sequence[ModeRun]) -> Iterable[str]:
    yield element("h2", text(figures.policy))
    yield element("h3", "Mean queueing of each virtual cluster")
    yield _table("From submission to end, without GPUs", queueing_heads(figures), queueing_rows(figures))
    yield element("figure", queueing_picture(figures))
    if curves := [(run.mode, seconds) for run in runs if len(seconds := later_s(shared, runs, run.mode))]:
        yield element("h3", "How much later or earlier jobs start than in their private cluster")
        yield _table(anomaly_title(figures).capitalize(), anomaly_heads(figures), anomaly_rows(figures))
        yield element("figure", lateness_picture(curves, figures.reclaim_s))
    yield element("h3", "GPUs in use")
    yield element("figure", usage_picture(shared, runs))


def _table(caption: str, heads: Row, rows: Sequence[Row]) -> str:
    head = element("thead", element("tr", *(element("th", text(each), scope="col") for each in heads)))
    body = (
        element("tr", element("th", text(row[0]), scope="row"), *(element("td", text(each)) for each in row[1:]))
        for row in rows
    )
    table = element("table", element("caption", text(caption)), head, element("tbody", *body))
    return element("div", table, class_="scroll", tabindex="0")

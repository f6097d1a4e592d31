"""Microsoft's Philly cluster, September to December 2017: 82,247 jobs.

Source: Jeon et al., ATC'19, reduced to submission, run time, GPUs and virtual cluster by the Pollux artifact. The trace
does not say how jobs scale; synthetic.py draws that. Rule: a job's draws depend on the seed and its place in the
whole trace, so that every window shows the same job.
"""

import csv
import gzip
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.domain.rng import rng_at
from voda.simulator.data import PHILLY, find_file, find_folder, intact
from voda.simulator.workload import Arrival, Workload
from voda.simulator.workloads.request import WorkloadOptions, WorkloadRequest, parse_nodes
from voda.simulator.workloads.synthetic import TracedJob, draw_scaling, synthetic_jobs

DEFAULT_NODES = "128x8"
"""The trace keeps 374 GPUs busy on average, and 1,243 at its peak."""


class TraceRow(Struct, frozen=True, order=True):
    """One row of the trace; rows sort by submission."""

    submitted_at: float
    """The trace's wall clock, read as if it were UTC."""
    line: int
    duration_s: float
    gpus: int
    cluster: str


def load(variant: str, request: WorkloadRequest) -> Workload:
    """Return the trace or a window of it; see the catalogue.

    Raises:
        DataNotFound: the trace is not on this machine.
        InvalidInput: the window is empty or no window.
    """
    trace = read_trace(find_folder(PHILLY, request.data))
    begins_at, ends_at = _window(trace, request.options)
    jobs = synthetic_jobs(nodes := request.nodes or parse_nodes(DEFAULT_NODES))
    rng = rng_at(request.seed, "philly")
    arrivals: list[Arrival] = []
    for number, row in enumerate(trace, start=1):
        scaling = draw_scaling(rng, row.gpus)
        if begins_at <= row.submitted_at < ends_at:
            arrivals.append(jobs.arrival(_traced(row, number, begins_at), scaling))
            if len(arrivals) == request.options.jobs:
                break
    return Workload(name="philly", source=PHILLY.origin, arrivals=tuple(arrivals), nodes=nodes, begins_at=begins_at)


def read_trace(folder: Path) -> Sequence[TraceRow]:
    """Return the trace by submission time, then as in the file."""
    path = find_file(folder, PHILLY.marker)
    assert path is not None, "find_folder returns only folders that have it"
    opener = gzip.open if path.suffix == ".gz" else open
    with intact(path, PHILLY), opener(path, "rt", encoding="utf-8", newline="") as file:
        trace = sorted(_row(line, row) for line, row in enumerate(csv.DictReader(file), start=2))
        if not trace:
            raise ValueError("no jobs")
        return trace


def instant_of(text: str) -> float:
    """Return the instant of a day or a time of the trace's clock, seconds since the Unix epoch.

    Raises:
        InvalidInput: it is neither.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"philly: {text[:40]!r} is no instant, expected such as 2017-10-01 or 2017-10-01T12:00:00"
        ) from None
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()


def _window(trace: Sequence[TraceRow], options: WorkloadOptions) -> tuple[float, float]:
    first, last = trace[0].submitted_at, trace[-1].submitted_at
    begins_at = instant_of(options.begins) if options.begins else first
    ends_at = instant_of(options.ends) if options.ends else math.inf
    if options.jobs < 0:
        raise InvalidInput(f"philly: {options.jobs} jobs requested, expected 0 (all) or more")
    if not any(begins_at <= row.submitted_at < ends_at for row in trace):
        raise InvalidInput(
            f"philly: no job was submitted from {options.begins or 'the beginning'} to before"
            f" {options.ends or 'the end'}; the trace runs from {_text(first)} to {_text(last)}"
        )
    return begins_at, ends_at


def _row(line: int, row: dict[str, str]) -> TraceRow:
    submitted_at = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp()
    duration_s, gpus = float(row["duration"]), int(row["num_gpus"])
    if not (0.0 < duration_s < math.inf and gpus >= 1):
        raise ValueError(f"line {line}: {duration_s} s on {gpus} GPUs")
    return TraceRow(submitted_at, line, duration_s, gpus, row["cluster"])


def _traced(row: TraceRow, number: int, begins_at: float) -> TracedJob:
    return TracedJob(
        job_id=f"philly-{number:05}",
        virtual_cluster=row.cluster,
        submitted_s=row.submitted_at - begins_at,
        duration_s=row.duration_s,
        gpus=row.gpus,
    )


def _text(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%S")

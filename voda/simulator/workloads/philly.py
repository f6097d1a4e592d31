"""Microsoft's Philly cluster, September to December 2017: 82,247 jobs.

Source: Jeon et al., ATC'19, reduced to submission, run time, GPUs and virtual cluster by the Pollux artifact. It keeps
374 GPUs busy on average, and 1,243 at its peak.
"""

import csv
import gzip
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from voda.simulator.data import PHILLY, find_file, find_folder, intact
from voda.simulator.workload import Workload
from voda.simulator.workloads.request import WorkloadRequest
from voda.simulator.workloads.traces import Trace, TracedJob, workload_of


class TraceRow(Struct, frozen=True, order=True):
    """One row of the trace; rows sort by submission."""

    submitted_at: float
    """The trace's wall clock, read as if it were UTC."""
    line: int
    duration_s: float
    gpus: int
    cluster: str


def load(variant: str, request: WorkloadRequest) -> Workload:
    """Return the trace or a window of it; see the catalogue."""
    rows = _read_trace(find_folder(PHILLY, request.data))
    begins_at = rows[0].submitted_at
    jobs = [
        TracedJob(
            job_id=f"philly-{number:05}",
            virtual_cluster=row.cluster,
            submitted_s=row.submitted_at - begins_at,
            duration_s=row.duration_s,
            gpus=row.gpus,
        )
        for number, row in enumerate(rows, start=1)
    ]
    return workload_of(Trace(name="philly", source=PHILLY.origin, jobs=jobs, begins_at=begins_at), request)


def _read_trace(folder: Path) -> Sequence[TraceRow]:
    """Return the trace by submission time, then as in the file."""
    path = find_file(folder, PHILLY.marker)
    assert path is not None, "find_folder returns only folders that have it"
    opener = gzip.open if path.suffix == ".gz" else open
    with intact(path, PHILLY), opener(path, "rt", encoding="utf-8", newline="") as file:
        trace = sorted(_row(line, row) for line, row in enumerate(csv.DictReader(file), start=2))
        if not trace:
            raise ValueError("no jobs")
        return trace


def _row(line: int, row: dict[str, str]) -> TraceRow:
    submitted_at = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp()
    duration_s, gpus = float(row["duration"]), int(row["num_gpus"])
    if not (0.0 < duration_s < math.inf and gpus >= 1):
        raise ValueError(f"line {line}: {duration_s} s on {gpus} GPUs")
    return TraceRow(submitted_at, line, duration_s, gpus, row["cluster"])

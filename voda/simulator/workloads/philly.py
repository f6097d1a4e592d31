"""Microsoft's Philly cluster, September to December 2017: 82,247 jobs.

Source: Jeon et al., ATC'19, reduced to submission, run time, GPUs and virtual cluster by the Pollux artifact. The trace
does not say how jobs scale; `draw_scaling` draws that, from the ranges that docs/workloads.md describes. Rule: a job's
draws depend on the seed and its place in the whole trace, so that every window shows the same job.
"""

import csv
import gzip
import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.rng import rng_at
from voda.simulator.data import PHILLY, find_file, find_folder, intact
from voda.simulator.workload import Arrival, Costs, SpeedupProfile, Workload, speedup_law
from voda.simulator.workloads.request import WorkloadOptions, WorkloadRequest, parse_nodes, total_gpus

DEFAULT_NODES = "128x8"
"""The trace keeps 374 GPUs busy on average, and 1,243 at its peak."""

EFFICIENCY = (0.6, 0.95)
"""T(n)/n at the requested size (at 2, where 1 was requested)."""
SPAN_PENALTY = (0.0, 0.3)
RESTART = Costs(start_s=30.0, resize_s=30.0, migrate_s=30.0)
EPOCH_S = 600.0
"""Of run time at the requested size; short and long jobs have shorter and longer epochs."""
MOST_EPOCHS = 10


class TracedJob(Struct, frozen=True, kw_only=True):
    job_id: str
    virtual_cluster: str = ""
    """Of the trace; a part of the job's category."""
    submitted_s: float
    duration_s: float
    """On the requested GPUs."""
    gpus: int


class SpeedupParameters(Struct, frozen=True):
    """How a job scales: a and b of `speedup_law`, and the penalty for spanning nodes."""

    a: float
    b: float
    span_penalty: float


def draw_scaling(rng: random.Random, gpus: int) -> SpeedupParameters:
    """Draw how a job scales that requests so many GPUs.

    A job loses between 5 % and 40 % at its requested size; the loss is split at random between the serial share and the
    communication.
    """
    size = max(2, gpus)
    lost = 1.0 / rng.uniform(*EFFICIENCY) - 1.0
    serial = rng.random()
    a, b = serial * lost / (size - 1), (1.0 - serial) * lost / (size * (size - 1))
    return SpeedupParameters(a, b, rng.uniform(*SPAN_PENALTY))


class SyntheticJobs:
    """Turns traced jobs into arrivals at one cluster."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self._cluster_gpus = total_gpus(nodes)
        self._largest_node_gpus = max(node.gpus for node in nodes)

    def arrival(self, job: TracedJob, scaling: SpeedupParameters) -> Arrival:
        """Return the job, elastic from 1 replica to twice its request, or to the whole cluster if that is less."""
        profile = self._profile(job, scaling)
        spec = JobSpec(
            job_id=job.job_id,
            category=f"{job.virtual_cluster or 'any'}-{job.gpus}gpu",
            requested_replicas=min(job.gpus, self._cluster_gpus),
            max_replicas=len(profile.speedup) - 1,
            epochs=profile.epochs,
        )
        return Arrival(spec=spec, submitted_s=job.submitted_s, profile=profile, virtual_cluster=job.virtual_cluster)

    def _profile(self, job: TracedJob, scaling: SpeedupParameters) -> SpeedupProfile:
        speedup = speedup_law(scaling.a, scaling.b, 2 * job.gpus)
        # A job larger than a node spanned nodes when its run time was measured.
        penalty = 1.0 + scaling.span_penalty if job.gpus > self._largest_node_gpus else 1.0
        return SpeedupProfile(
            epochs=min(MOST_EPOCHS, 1 + int(job.duration_s / EPOCH_S)),
            work_s=job.duration_s * speedup[job.gpus] / penalty,
            speedup=speedup[: self._cluster_gpus + 1],
            span_penalty=scaling.span_penalty,
            costs=RESTART,
        )


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
    trace = _read_trace(find_folder(PHILLY, request.data))
    begins_at, ends_at = _window(trace, request.options)
    jobs = SyntheticJobs(nodes := request.nodes or parse_nodes(DEFAULT_NODES))
    rng = rng_at(request.seed, "philly")
    arrivals: list[Arrival] = []
    for number, row in enumerate(trace, start=1):
        scaling = draw_scaling(rng, row.gpus)
        if begins_at <= row.submitted_at < ends_at:
            job = TracedJob(
                job_id=f"philly-{number:05}",
                virtual_cluster=row.cluster,
                submitted_s=row.submitted_at - begins_at,
                duration_s=row.duration_s,
                gpus=row.gpus,
            )
            arrivals.append(jobs.arrival(job, scaling))
            if len(arrivals) == request.options.jobs:
                break
    return Workload(name="philly", source=PHILLY.origin, arrivals=tuple(arrivals), nodes=nodes, begins_at=begins_at)


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


def _instant(text: str) -> float:
    """Return the instant of a day or a time of the trace's clock, seconds since the Unix epoch."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"philly: {text[:40]!r} is no instant, expected such as 2017-10-01 or 2017-10-01T12:00:00"
        ) from None
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()


def _window(trace: Sequence[TraceRow], options: WorkloadOptions) -> tuple[float, float]:
    first, last = trace[0].submitted_at, trace[-1].submitted_at
    begins_at = _instant(options.begins) if options.begins else first
    ends_at = _instant(options.ends) if options.ends else math.inf
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


def _text(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%S")

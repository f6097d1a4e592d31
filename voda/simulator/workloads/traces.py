"""What traces of clusters have in common: jobs that ran for a while on so many GPUs, a window of them, how they scale.

A trace does not say how its jobs scale; `draw_scaling` draws that, from the ranges that docs/workloads.md describes.
Rule: a job's draws depend on the seed and its place in the whole trace, so that every window shows the same job.
"""

import gzip
import math
import random
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.domain.job import MOST_REPLICAS, JobSpec
from voda.domain.node import Node
from voda.domain.rng import rng_at
from voda.simulator.workload import Arrival, Costs, SpeedupProfile, Workload, speedup_law
from voda.simulator.workloads.request import WorkloadOptions, WorkloadRequest, parse_nodes, total_gpus
from voda.text import counted

DEFAULT_NODES: Final = "128x8"
EFFICIENCY: Final = (0.6, 0.95)
"""T(n)/n at the requested size (at 2, where 1 was requested)."""
SPAN_PENALTY: Final = (0.0, 0.3)
RESTART: Final = Costs(start_s=30.0, resize_s=30.0, migrate_s=30.0)
EPOCH_S: Final = 600.0
"""Of run time at the requested size; short and long jobs have shorter and longer epochs."""
MOST_EPOCHS: Final = 10
LONGEST_RUN_S: Final = 1e9
"""About 30 years."""
_NOT_ENDED: Final = frozenset({"PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "CONFIGURING", "COMPLETING"})
_ENDED: Final = {
    "completed": frozenset({"COMPLETED", "COMPLETE", "PASS", "SUCCEEDED", "SUCCESS"}),
    "canceled": frozenset({"CANCELLED", "CANCELED", "KILLED", "REVOKED"}),
    "failed": frozenset(
        {"FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "ERROR"}
    ),
}
"""How a job ended -> the words of Slurm and of public traces."""
_MOST_NAMED: Final = 12
_MOST_LINE: Final = 1_000_000
_MOST_LINES: Final = 50_000_000
"""Several times as many as the largest public traces have."""


class TracedJob(Struct, frozen=True, kw_only=True):
    job_id: str
    user: str = ""
    virtual_cluster: str = ""
    """Of the trace; a part of the job's category."""
    state: str = ""
    """How it ended, in the words of the trace."""
    submitted_s: float
    """After the trace's beginning."""
    duration_s: float
    """On the requested GPUs, without the time that it was suspended."""
    gpus: int


class Trace(Struct, frozen=True, kw_only=True):
    """A whole trace."""

    name: str
    """Of the stream of what is drawn for it, and in errors."""
    source: str
    jobs: Sequence[TracedJob]
    """By submission."""
    begins_at: float
    """Instant of submitted_s == 0, seconds since the Unix epoch; the trace's wall clock read as UTC without a zone."""
    zone: str = ""
    """Whose clock it is, such as UTC; empty: the trace does not say."""
    left_out: tuple[str, ...] = ()
    """What its jobs lack of the file, for people: one sentence each."""


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
        self._cluster_gpus = min(total_gpus(nodes), MOST_REPLICAS)
        self._largest_node_gpus = max(node.gpus for node in nodes)

    def arrival(self, job: TracedJob, scaling: SpeedupParameters) -> Arrival:
        """Return the job, elastic from 1 replica to twice its request, or to the whole cluster if that is less."""
        profile = self._profile(job, scaling)
        spec = JobSpec(
            job_id=job.job_id,
            category=f"{job.virtual_cluster or 'any'}-{job.gpus}gpu",
            user=job.user,
            labels={"state": job.state} if job.state else {},
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


def workload_of(trace: Trace, request: WorkloadRequest) -> Workload:
    """Return a trace, or the window of it that is asked for, on the cluster that is asked for.

    Raises:
        InvalidInput: the window is none of the trace's.
    """
    first, end = _window(trace, request.options)
    jobs = SyntheticJobs(nodes := request.nodes or parse_nodes(DEFAULT_NODES))
    rng = rng_at(request.seed, trace.name)
    arrivals: list[Arrival] = []
    for job in trace.jobs:
        scaling = draw_scaling(rng, job.gpus)
        if first <= job.submitted_s < end:
            arrival = jobs.arrival(job, scaling)
            arrivals.append(
                Arrival(
                    spec=arrival.spec,
                    submitted_s=job.submitted_s - first,
                    profile=arrival.profile,
                    virtual_cluster=job.virtual_cluster,
                )
            )
            if len(arrivals) == request.options.jobs:
                break
    return Workload(
        name=trace.name,
        source=trace.source,
        arrivals=tuple(arrivals),
        nodes=nodes,
        begins_at=trace.begins_at + first,
        left_out=trace.left_out,
    )


def _window(trace: Trace, options: WorkloadOptions) -> tuple[float, float]:
    first, last = trace.jobs[0].submitted_s, trace.jobs[-1].submitted_s
    begins_s = _instant(options.begins, trace) - trace.begins_at if options.begins else first
    ends_s = _instant(options.ends, trace) - trace.begins_at if options.ends else math.inf
    if options.jobs < 0:
        raise InvalidInput(f"{trace.name}: {options.jobs} jobs requested, expected 0 (all) or more")
    if not any(begins_s <= job.submitted_s < ends_s for job in trace.jobs):
        raise InvalidInput(
            f"{trace.name}: no job was submitted from {options.begins or 'the beginning'} to before"
            f" {options.ends or 'the end'}; the trace runs from {_text(trace.begins_at + first)} to"
            f" {_text(trace.begins_at + last)}"
        )
    return begins_s, ends_s


def _instant(text: str, trace: Trace) -> float:
    """Return the instant of a day or a time of the trace's clock, seconds since the Unix epoch."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{trace.name}: {text[:40]!r} is no instant, expected such as 2017-10-01 or 2017-10-01T12:00:00"
        ) from None
    if instant.tzinfo is not None and not trace.zone:
        raise InvalidInput(
            f"{trace.name}: {text[:40]!r} has an offset, which means nothing here: the trace's times name no zone;"
            " leave it out"
        )
    try:
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    except OverflowError:
        raise InvalidInput(f"{trace.name}: {text[:40]!r} is out of the calendar") from None


def _text(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def end_state(text: str) -> str:
    """Return how a job ended: completed, failed or canceled; empty: it has not ended.

    Raises:
        ValueError: it is none of the states that traces have, such as COMPLETED, `CANCELLED by 0` or Pass.
    """
    state = (text.split() or [""])[0].removesuffix("+").upper()
    if state in _NOT_ENDED:
        return ""
    for ended, names in _ENDED.items():
        if state in names:
            return ended
    raise ValueError(f"{text.strip()[:40]!r} is none, expected such as COMPLETED, FAILED, CANCELLED, TIMEOUT, RUNNING")


def ignored_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the sentence that names columns without a meaning; none without them."""
    if not columns:
        return ()
    named = [column[:40] or "''" for column in columns[:_MOST_NAMED]]
    more = len(columns) - len(named)
    return (f"ignored: {', '.join([*named, *([f'{more} more columns'] if more else [])])}",)


class LeftOut:
    """Counts the jobs of a file that are no part of the workload, by the reason."""

    def __init__(self) -> None:
        self._jobs: dict[str, int] = {}

    def add(self, reason: str) -> None:
        """Count one job; the reason follows `left out: 3 jobs`."""
        self._jobs[reason] = self._jobs.get(reason, 0) + 1

    def has(self, job: TracedJob) -> bool:
        """Return whether a job cannot be part of a workload, and count it then."""
        if job.gpus < 1:
            self.add("without GPUs")
        elif job.gpus > MOST_REPLICAS:
            self.add(f"of more than {MOST_REPLICAS:,} GPUs")
        elif job.duration_s <= 0:
            self.add("that never ran")
        else:
            return False
        return True

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for each reason."""
        return tuple(f"left out: {counted(count, 'job')} {reason}" for reason, count in self._jobs.items())


def numbered_lines(path: Path, most: int = _MOST_LINES) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file, which may be compressed by gzip, with their numbers from 1.

    Raises:
        InvalidInput: it cannot be read, is no UTF-8 text, or has more than `most` lines or one of more than a million
            characters.
    """
    try:
        with _opened(path) as file:
            number = 0
            while line := file.readline(_MOST_LINE):
                number += 1
                if number > most:
                    raise InvalidInput(f"{path}: has more lines than a trace may have, {most:,}: simulate a part of it")
                if len(line) == _MOST_LINE:
                    raise InvalidInput(f"{path}, line {number}: is longer than {_MOST_LINE:,} characters")
                yield number, line.rstrip("\r\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInput(f"{path}: is no whole gzip file: {error}") from error
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is not UTF-8 text, save it as such: {error.reason}") from error


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="\n")
    return path.open(encoding="utf-8-sig", newline="\n")

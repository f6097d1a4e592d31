"""Traces in the Standard Workload Format, version 2.2, of the Parallel Workloads Archive (Feitelson et al.).

A line a job, of 18 fields, -1 where nothing is known; what follows a `;` is a comment. A job that was interrupted has a
line for each of its parts too, with a status of its own: they count only where no line has the whole job. Rule:
processors are simulated as GPUs; a bad line is an error with its number, and nothing is guessed.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.simulator.workload import Workload
from voda.simulator.workloads.request import WorkloadRequest
from voda.simulator.workloads.traces import LONGEST_RUN_S, LeftOut, Trace, TracedJob, numbered_lines, workload_of

_FIELDS: Final = 18
_BIGGEST: Final = 2**53
_STATES: Final[Mapping[int, str]] = {-1: "", 0: "failed", 1: "completed", 5: "canceled"}
_PARTS: Final[Mapping[int, str]] = {2: "", 3: "completed", 4: "failed"}
"""Of the lines that have one part of a job: the last one says how it ended."""
_BEGINNING: Final = re.compile(r";\s*UnixStartTime\s*:\s*(.*)")


class _Line(Struct, frozen=True, kw_only=True):
    """One line; -1 = not known."""

    number: int
    submitted_s: float
    ran_s: float
    processors: int
    status: int
    user: int


def load(name: str, request: WorkloadRequest) -> Workload:
    """Return the workload of a file; see the catalogue."""
    path = Path(name)
    beginnings: list[str] = []
    lines: dict[int, list[_Line]] = {}
    for line in _read(path, beginnings):
        lines.setdefault(line.number, []).append(line)
    left_out = LeftOut()
    jobs = [job for number, found in lines.items() if not left_out.has(job := _job(number, found))]
    if not jobs:
        raise InvalidInput("; ".join([f"{path}: has no jobs that ran on GPUs", *left_out.sentences()]))
    begins_at = _begins_at(path, beginnings)
    trace = Trace(
        name="swf",
        source=name,
        jobs=sorted(jobs, key=lambda job: job.submitted_s),
        begins_at=0.0 if begins_at is None else begins_at,
        zone="UTC" if begins_at is not None else "",
        left_out=left_out.sentences(),
    )
    if begins_at is None and (request.options.begins or request.options.ends):
        raise InvalidInput(f"{path}: has no UnixStartTime in its header, so that --from and --to mean nothing here")
    return workload_of(trace, request)


def _job(number: int, lines: list[_Line]) -> TracedJob:
    """Return the job of the lines with one number, in the order of the file."""
    whole = next((line for line in lines if line.status not in _PARTS), None)
    parts = lines if whole is None else [whole]
    user = next((line.user for line in parts if line.user >= 0), -1)
    return TracedJob(
        job_id=f"swf-{number}",
        user=f"user-{user}" if user >= 0 else "",
        state=_PARTS[parts[-1].status] if whole is None else _STATES[whole.status],
        # The parts after the first one say how long they waited alone.
        submitted_s=max(0.0, next((line.submitted_s for line in parts if line.submitted_s >= 0), 0.0)),
        duration_s=sum(max(0.0, line.ran_s) for line in parts),
        gpus=max(line.processors for line in parts),
    )


def _begins_at(path: Path, beginnings: Sequence[str]) -> float | None:
    text = "".join(beginnings)
    if not text:
        return None
    try:
        begins_at = float(text.split()[0])
    except ValueError:
        begins_at = math.nan
    if not 0 <= begins_at <= 2**33:
        raise InvalidInput(f"{path}: UnixStartTime is {text[:40]!r}, expected seconds since 1970")
    return begins_at or None


def _read(path: Path, beginnings: list[str]) -> Iterator[_Line]:
    """Yield the lines of jobs, and add the UnixStartTime that a comment says first."""
    for place, text in numbered_lines(path):
        fields, comment, rest = text.partition(";")
        if comment and not beginnings and (said := _BEGINNING.match(comment + rest)) is not None:
            beginnings.append(said[1].strip())
        if fields.strip():
            yield _line(f"{path}, line {place}", fields.split())


def _line(where: str, fields: list[str]) -> _Line:
    if len(fields) != _FIELDS:
        raise InvalidInput(f"{where}: has {len(fields)} fields, expected {_FIELDS}")
    number, submitted_s, _, ran_s, allocated, *_ = (_number(where, index, field) for index, field in enumerate(fields))
    requested, status, user = (_number(where, index, fields[index]) for index in (7, 10, 11))
    if status not in {*_STATES, *_PARTS}:
        raise InvalidInput(f"{where}: status (field 11) is {fields[10][:20]}, expected -1 or 0 to 5")
    if ran_s > LONGEST_RUN_S or submitted_s > LONGEST_RUN_S:
        raise InvalidInput(f"{where}: submission and run time are expected to be up to {LONGEST_RUN_S:g} seconds")
    return _Line(
        number=int(number),
        submitted_s=submitted_s,
        ran_s=ran_s,
        processors=math.ceil(allocated if allocated > 0 else requested),
        status=int(status),
        user=int(user),
    )


def _number(where: str, index: int, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= _BIGGEST:
        raise InvalidInput(f"{where}: field {index + 1} is {text[:40]!r}, expected a number")
    return number

"""What Slurm's accounting prints: `sacct --parsable2 --allusers --format=JobID,User,State,Submit,Elapsed,AllocTRES`.

Rows of steps are parts of a job and left out; components of a heterogeneous job are one job; each task of an array is a
job; a job that was requeued is one, with all its runs where the file has them (`--duplicates`). `Elapsed` has no time
that a job was suspended, which End - Start has. Rule: a bad row is an error with its line, and nothing is guessed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.simulator.workload import Workload
from voda.simulator.workloads.request import WorkloadRequest
from voda.simulator.workloads.traces import (
    LONGEST_RUN_S,
    LeftOut,
    Trace,
    TracedJob,
    end_state,
    ignored_columns,
    numbered_lines,
    workload_of,
)

_REQUIRED: Final = ("JobID", "State", "Submit")
_ELAPSED: Final = ("ElapsedRaw", "Elapsed")
_GPUS: Final = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
"""What says how many GPUs: the first that says any. Where GPUs stand in several, they are the same ones."""
_USED: Final = frozenset({*_REQUIRED, *_ELAPSED, *_GPUS, "User", "NNodes", "Partition", "JobIDRaw"})
_FREE_TEXT: Final = frozenset(
    {"AdminComment", "Comment", "Constraints", "Extra", "JobName", "SubmitLine", "SystemComment", "WCKey", "WorkDir"}
)
"""Columns that may have a `|` of their own, which sacct does not escape."""
_ID: Final = re.compile(r"([0-9]{1,18}(?:_[0-9]{1,18})?)(?:\+([0-9]{1,9}))?", re.ASCII)
_WAITING_ARRAY: Final = re.compile(r"[0-9]{1,18}_\[[0-9,%:-]*(?:\.\.\.)?\]?", re.ASCII)
_SPAN: Final = re.compile(r"(?:(?:([0-9]{1,6})-)?([0-9]{1,4}):)?([0-9]{1,4}):([0-9]{1,2})(?:\.[0-9]+)?", re.ASCII)
_GRES: Final = re.compile(r"(?:gres:)?gpu(?::[^:,(]+)?:([0-9]{1,9})(?:\([^)]*\))?", re.ASCII)


class _Run(Struct, frozen=True, kw_only=True):
    """One row that is no step: a run of a job, or of a component of it."""

    component: int
    user: str
    partition: str
    state: str
    """Empty: it has not ended."""
    submitted_at: float
    ran_s: float
    gpus: int


def load(name: str, request: WorkloadRequest) -> Workload:
    """Return the workload of a file; see the catalogue."""
    path, left_out = Path(name), LeftOut()
    runs: dict[str, list[_Run]] = {}
    ignored: list[str] = []
    for job, run in _read(path, ignored):
        if run is None:
            left_out.add("of an array that had not started")
        else:
            runs.setdefault(job, []).append(run)
    ended = {job: found for job, found in runs.items() if not _is_under_way(found, left_out)}
    jobs = [traced for job, found in ended.items() if not left_out.has(traced := _job(job, found))]
    if not jobs:
        raise InvalidInput("; ".join([f"{path}: has no jobs that ran on GPUs", *left_out.sentences()]))
    jobs.sort(key=lambda job: job.submitted_s)
    begins_at = jobs[0].submitted_s
    trace = Trace(
        name="sacct",
        source=name,
        jobs=[_from_beginning(job, begins_at) for job in jobs],
        begins_at=begins_at,
        left_out=(*ignored_columns(ignored), *left_out.sentences()),
    )
    return workload_of(trace, request)


def _is_under_way(runs: Sequence[_Run], left_out: LeftOut) -> bool:
    if runs[-1].state:
        return False
    left_out.add("that had not ended")
    return True


def _job(job: str, runs: Sequence[_Run]) -> TracedJob:
    """Return the job of the rows with one id, in the order of the file; submitted_s is an instant yet."""
    by_component: dict[int, list[_Run]] = {}
    for run in runs:
        by_component.setdefault(run.component, []).append(run)
    parts = by_component.values()
    return TracedJob(
        job_id=f"job-{job}",
        user=runs[0].user,
        virtual_cluster=runs[0].partition,
        state=runs[-1].state,
        submitted_s=min(run.submitted_at for run in runs),
        duration_s=max(sum(run.ran_s for run in part) for part in parts),
        gpus=sum(max(run.gpus for run in part) for part in parts),
    )


def _from_beginning(job: TracedJob, begins_at: float) -> TracedJob:
    return TracedJob(
        job_id=job.job_id,
        user=job.user,
        virtual_cluster=job.virtual_cluster,
        state=job.state,
        submitted_s=job.submitted_s - begins_at,
        duration_s=job.duration_s,
        gpus=job.gpus,
    )


def _read(path: Path, ignored: list[str]) -> Iterator[tuple[str, _Run | None]]:
    """Yield (job, run); None: tasks that wait. Columns that are not used are added to `ignored`."""
    columns: list[str] = []
    for place, text in numbered_lines(path):
        if not text.strip():
            continue
        if not columns:
            columns = _checked_columns(path, text)
            ignored += [column for column in columns if column not in _USED]
            continue
        where = f"{path}, line {place}"
        cells = dict(zip(columns, _cells(where, columns, text), strict=True))
        job_id = cells["JobID"].strip()
        if "." in job_id and "[" not in job_id:
            continue
        if _WAITING_ARRAY.fullmatch(job_id):
            yield job_id, None
        elif (found := _ID.fullmatch(job_id)) is None:
            raise InvalidInput(f"{where}: JobID is {job_id[:40]!r}, expected such as 17, 17_2, 17+0 or 17.batch")
        else:
            yield found[1], _run(where, cells, int(found[2] or 0))


def _checked_columns(path: Path, header: str) -> list[str]:
    columns = [column.strip() for column in header.split("|")]
    for needed in (*((name,) for name in _REQUIRED), _ELAPSED, _GPUS):
        if not any(name in columns for name in needed):
            raise InvalidInput(
                f"{path}: has no column {' or '.join(needed)}, expected what sacct --parsable2 prints with"
                " --format=JobID,User,State,Submit,Elapsed,AllocTRES"
            )
    for column in columns:
        if columns.count(column) > 1:
            raise InvalidInput(f"{path}: column {column[:40]!r} is there {columns.count(column)} times, expected once")
    return columns


def _cells(where: str, columns: Sequence[str], text: str) -> list[str]:
    """Return a row's cells; what is too much is a `|` in the only column of free text."""
    cells = text.split("|")
    more = len(cells) - len(columns)
    free = [index for index, column in enumerate(columns) if column in _FREE_TEXT]
    if more > 0 and len(free) == 1:
        at = free[0]
        return [*cells[:at], "|".join(cells[at : at + more + 1]), *cells[at + more + 1 :]]
    if more:
        hint = "; a '|' in a name is not escaped: leave JobName and the like out of --format" if more > 0 else ""
        raise InvalidInput(f"{where}: {len(cells)} cells, expected {len(columns)} as in the header{hint}")
    return cells


def _run(where: str, cells: Mapping[str, str], component: int) -> _Run:
    try:
        state = end_state(cells["State"])
    except ValueError as error:
        raise InvalidInput(f"{where}: State: {error}") from error
    return _Run(
        component=component,
        user=_name(where, "User", cells),
        partition=_name(where, "Partition", cells),
        state=state,
        submitted_at=_instant(where, cells["Submit"].strip()),
        ran_s=_elapsed_s(where, cells),
        gpus=_gpus(where, cells),
    )


def _name(where: str, column: str, cells: Mapping[str, str]) -> str:
    name = cells.get(column, "").strip()
    if len(name) > 200 or not name.isprintable():
        raise InvalidInput(f"{where}: {column} is {name[:40]!r}, expected a name of up to 200 printable characters")
    return name


def _instant(where: str, text: str) -> float:
    """Return an instant of the cluster's clock, which names no zone, read as if it were UTC."""
    try:
        if (instant := datetime.fromisoformat(text)).tzinfo is None:
            return instant.replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        pass
    raise InvalidInput(f"{where}: Submit is {text[:40]!r}, expected such as 2024-03-01T12:00:00, without an offset")


def _elapsed_s(where: str, cells: Mapping[str, str]) -> float:
    if (raw := cells.get("ElapsedRaw", "").strip()).isdecimal() and raw.isascii() and len(raw) < 12:
        seconds = float(raw)
    else:
        text = cells.get("Elapsed", raw).strip()
        found = _SPAN.fullmatch(text)
        if found is None:
            raise InvalidInput(f"{where}: Elapsed is {text[:40]!r}, expected [days-]hours:minutes:seconds")
        days, hours, minutes, rest = (int(part or 0) for part in found.groups())
        seconds = 86_400.0 * days + 3_600 * hours + 60 * minutes + rest
    if seconds > LONGEST_RUN_S:
        raise InvalidInput(f"{where}: Elapsed is {seconds:g} s, expected up to {LONGEST_RUN_S:g}")
    return seconds


def _gpus(where: str, cells: Mapping[str, str]) -> int:
    """Return the GPUs of a job, once."""
    for column in _GPUS:
        text = cells.get(column, "").strip()
        if found := _of_tres(text) if column.endswith("TRES") else _of_gres(text) * _nodes(where, cells, text):
            if found > 2**31:
                raise InvalidInput(f"{where}: {column} has {found:,} GPUs, expected fewer")
            return found
    return 0


def _of_tres(text: str) -> int:
    """Return the GPUs of `cpu=2,gres/gpu:a100=2,gres/gpu=2`: those of all types, where they stand as a sum too."""
    amounts = {name: amount for name, _, amount in (part.partition("=") for part in text.split(","))}
    if "gres/gpu" in amounts:
        return _count(amounts["gres/gpu"])
    return sum(_count(amount) for name, amount in amounts.items() if name.startswith("gres/gpu:"))


def _of_gres(text: str) -> int:
    """Return the GPUs on each node of `gpu:a100:2(IDX:0-1),gpu:1`."""
    return sum(int(found[1]) for found in _GRES.finditer(text))


def _nodes(where: str, cells: Mapping[str, str], gres: str) -> int:
    """Return the nodes of a job, each of which has its GRES."""
    if not gres:
        return 0
    if not (nodes := _count(cells.get("NNodes", "").strip())):
        raise InvalidInput(
            f"{where}: its GPUs stand in {gres[:40]!r} alone, which is for each node: add AllocTRES or NNodes to the"
            " --format"
        )
    return nodes


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0

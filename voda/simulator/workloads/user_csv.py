"""The user's own workload: a CSV file with one row per job.

Rule: a bad row is an error with file, line, column and reason; nothing is guessed. Columns without a meaning are named
once and ignored. Columns: docs/workloads.md.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.job import MOST_REPLICAS, JobSpec, validated
from voda.domain.node import Node
from voda.simulator.workload import Arrival, Costs, SpeedupProfile, Workload, speedup_law
from voda.simulator.workloads.request import WorkloadRequest, parse_nodes
from voda.simulator.workloads.traces import LeftOut, end_state, ignored_columns, numbered_lines

DEFAULT_NODES = "4x4"
REQUIRED = ("name", "submitted_s", "epochs")
_OF_SCALING = ("a", "b", "speedup", "span_penalty", "restart_s")
_OF_SIZES = ("epoch_s", "work_s", "requested", "min", "max", "gpus_per_replica")
_OF_JOBS = ("priority", "virtual_cluster", "user", "state")
COLUMNS = (*REQUIRED, *_OF_SIZES, *_OF_JOBS, *_OF_SCALING)
MOST_EPOCHS = 1_000_000
LONGEST_S = 1e9
"""About 30 years."""
_LATEST = 2.0**33
_FIRST_YEAR = 1980
_UNIX_TIMES = 1e8
"""Seconds; if the first job came later after the beginning, by three years, they are Unix times."""


def load(name: str, request: WorkloadRequest) -> Workload:
    """Return the workload of a file; see the catalogue."""
    nodes = request.nodes or parse_nodes(DEFAULT_NODES)
    line_of: dict[str, int] = {}
    found: list[tuple[CsvRow, Arrival]] = []
    left_out, ignored = LeftOut(), list[str]()
    for row in _read_rows(Path(name), ignored):
        first = line_of.setdefault(row.text("name"), row.line)
        if first != row.line:
            raise row.error("name", f"{row.text('name')} is taken by line {first}")
        if (arrival := _arrival(row, nodes, left_out)) is not None:
            found.append((row, arrival))
    if not found:
        why = f"{name}: has no jobs, expected one row per job below the header"
        raise InvalidInput("; ".join([why, *left_out.sentences()]))
    arrivals, begins_at = _from_beginning(found)
    return Workload(
        name=Path(name).stem,
        source=name,
        arrivals=tuple(arrivals),
        nodes=nodes,
        left_out=(*ignored_columns(ignored), *left_out.sentences()),
        **({} if begins_at is None else {"begins_at": begins_at}),
    )


def _from_beginning(found: Sequence[tuple["CsvRow", Arrival]]) -> tuple[Sequence[Arrival], float | None]:
    """Return the jobs by submission, after the first one where that was at a Unix time, which is the second then."""
    first = min(arrival.submitted_s for _, arrival in found)
    begins_at = first if first >= _UNIX_TIMES else 0.0
    for row, arrival in found:
        if arrival.submitted_s - begins_at > LONGEST_S:
            raise row.error(
                "submitted_s",
                f"{row.text('submitted_s')[:40]!r} is {arrival.submitted_s - begins_at:g} s after the beginning,"
                f" expected up to {LONGEST_S:g}: all of them seconds after the beginning, or all of them Unix times",
            )
    moved = [replace(arrival, submitted_s=arrival.submitted_s - begins_at) for _, arrival in found]
    return sorted(moved, key=lambda arrival: arrival.submitted_s), begins_at or None


class CsvRow:
    """One line of the file, with errors that name it."""

    def __init__(self, path: Path, line: int, cells: Mapping[str, str]) -> None:
        self.path = path
        self.line = line
        self._cells = cells

    def error(self, column: str, reason: str) -> InvalidInput:
        return InvalidInput(f"{self.path}, line {self.line}, column {column}: {reason}")

    def text(self, column: str) -> str:
        return self._cells.get(column, "").strip()

    def whole(self, column: str, default: int | None, *, least: int, most: int) -> int:
        """Return a whole number from a range; `default` where the cell is empty, None = it must not be."""
        value = self.number(column, default, least=least, most=most)
        if value != int(value):
            raise self.error(column, f"{self.text(column)[:40]!r} is no whole number")
        return int(value)

    def number(self, column: str, default: float | None, *, least: float, most: float) -> float:
        """Return a number from a range; `default` where the cell is empty, None = it must not be."""
        text = self.text(column)
        if not text and default is not None:
            return default
        return self.parsed(column, text, least=least, most=most)

    def parsed(self, column: str, text: str, *, least: float, most: float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise self.error(column, f"{text[:40]!r} is no number from {least:g} to {most:g}")
        return value


def _read_rows(path: Path, ignored: list[str]) -> Iterator[CsvRow]:
    """Yield the rows; columns without a meaning are added to `ignored`."""
    try:
        lines = csv.reader((text + "\n" for _, text in numbered_lines(path)), strict=True)
        columns = _checked_columns(path, next(lines, []))
        ignored += [column for column in columns if column not in COLUMNS]
        for cells in lines:
            if any(cell.strip() for cell in cells):
                yield _row(path, lines.line_num, columns, cells)
    except csv.Error as error:
        raise InvalidInput(f"{path}, line {lines.line_num}: is no CSV: {error}") from error


def _row(path: Path, line: int, columns: Sequence[str], cells: Sequence[str]) -> CsvRow:
    if len(cells) != len(columns):
        raise InvalidInput(f"{path}, line {line}: {len(cells)} cells, expected {len(columns)} as in the header")
    return CsvRow(path, line, dict(zip(columns, cells, strict=True)))


def _checked_columns(path: Path, header: Sequence[str]) -> Sequence[str]:
    columns = [column.strip() for column in header]
    for column in columns:
        if column in COLUMNS and columns.count(column) > 1:
            raise InvalidInput(f"{path}: column {column} is there {columns.count(column)} times, expected once")
    if missing := [column for column in REQUIRED if column not in columns]:
        raise InvalidInput(f"{path}: has no column {missing[0]}, expected a header with {', '.join(REQUIRED)}")
    return columns


def _arrival(row: CsvRow, nodes: tuple[Node, ...], left_out: LeftOut) -> Arrival | None:
    """Return the job of a row; None: it is left out."""
    state = _state(row)
    if row.whole("gpus_per_replica", 1, least=0, most=1_024) == 0:
        left_out.add("without GPUs")
        return None
    if state is None:
        left_out.add("that had not ended")
        return None
    spec = _spec(row, state)
    room = sum(node.gpus // spec.gpus_per_replica for node in nodes)
    if spec.min_replicas > room:
        raise row.error(
            "min", f"{spec.min_replicas} replicas of {spec.gpus_per_replica} GPUs never fit: the nodes take {room}"
        )
    return Arrival(
        spec=spec,
        submitted_s=_submitted(row),
        profile=_profile(row, spec),
        virtual_cluster=row.text("virtual_cluster"),
    )


def _state(row: CsvRow) -> str | None:
    """Return how a job ended; empty: the row does not say; None: it has not."""
    if not (text := row.text("state")):
        return ""
    try:
        return end_state(text) or None
    except ValueError as error:
        raise row.error("state", str(error)) from error


def _submitted(row: CsvRow) -> float:
    """Return the seconds after the beginning or since 1970, which an instant such as 2020-06-09T18:41:01Z says too."""
    text = row.text("submitted_s")
    try:
        instant = datetime.fromisoformat(text) if "-" in text[1:] else None
        if instant is not None and instant.year >= _FIRST_YEAR:
            return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    return row.parsed("submitted_s", text, least=0.0, most=_LATEST)


def _user(row: CsvRow) -> str:
    user = row.text("user")
    if len(user) > 200 or not user.isprintable():
        raise row.error("user", f"{user[:40]!r} is no name of up to 200 printable characters")
    return user


def _spec(row: CsvRow, state: str) -> JobSpec:
    least = row.whole("min", 1, least=1, most=MOST_REPLICAS)
    requested = row.whole("requested", least, least=least, most=MOST_REPLICAS)
    spec = JobSpec(
        job_id=row.text("name"),
        name=row.text("name"),
        min_replicas=least,
        requested_replicas=requested,
        max_replicas=row.whole("max", requested, least=requested, most=MOST_REPLICAS),
        gpus_per_replica=Gpus(row.whole("gpus_per_replica", 1, least=1, most=1_024)),
        epochs=row.whole("epochs", None, least=1, most=MOST_EPOCHS),
        priority=row.whole("priority", 0, least=-1_000_000, most=1_000_000),
        user=_user(row),
        labels={"state": state} if state else {},
    )
    try:
        return validated(spec)
    except InvalidInput as error:
        raise row.error("name", str(error)) from error


def _profile(row: CsvRow, spec: JobSpec) -> SpeedupProfile:
    restart_s = row.number("restart_s", 30.0, least=0.0, most=LONGEST_S)
    return SpeedupProfile(
        epochs=spec.epochs,
        work_s=_work_s(row, spec.epochs),
        speedup=_speedup(row, spec.max_replicas),
        span_penalty=row.number("span_penalty", 0.0, least=0.0, most=100.0),
        costs=Costs(start_s=restart_s, resize_s=restart_s, migrate_s=restart_s),
    )


def _work_s(row: CsvRow, epochs: int) -> float:
    if bool(row.text("epoch_s")) == bool(row.text("work_s")):
        raise row.error("epoch_s", "give either epoch_s (one epoch) or work_s (all of them), on one replica")
    if row.text("work_s"):
        return row.number("work_s", None, least=1e-3, most=LONGEST_S)
    return epochs * row.number("epoch_s", None, least=1e-3, most=LONGEST_S)


def _speedup(row: CsvRow, most: int) -> Sequence[float]:
    listed = row.text("speedup").split()
    if not listed:
        a, b = (row.number(column, 0.0, least=0.0, most=100.0) for column in "ab")
        return speedup_law(a, b, most)
    if row.text("a") or row.text("b"):
        raise row.error("speedup", "give either speedup or a and b")
    if len(listed) != most:
        raise row.error("speedup", f"{len(listed)} figures, expected {most}: one for each size from 1 to max")
    figures = (row.parsed("speedup", figure, least=1e-3, most=1e6) for figure in listed)
    return (0.0, *figures)

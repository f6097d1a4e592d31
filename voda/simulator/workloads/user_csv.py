"""The user's own workload: a CSV file with one row per job.

Rule: a bad row is an error with file, line, column and reason; nothing is guessed. Columns: docs/workloads.md.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from voda.domain.errors import InvalidInput
from voda.domain.gpus import Gpus
from voda.domain.job import MOST_REPLICAS, JobSpec, validated
from voda.domain.node import Node
from voda.simulator.workload import Arrival, Costs, SpeedupProfile, Workload, speedup_law
from voda.simulator.workloads.request import WorkloadOptions, WorkloadRequest, parse_nodes

DEFAULT_NODES = "4x4"
REQUIRED = ("name", "submitted_s", "epochs")
_OF_SCALING = ("a", "b", "speedup", "span_penalty", "restart_s")
_OF_JOBS = ("epoch_s", "work_s", "requested", "min", "max", "gpus_per_replica", "priority", "virtual_cluster")
COLUMNS = (*REQUIRED, *_OF_JOBS, *_OF_SCALING)
MOST_EPOCHS = 1_000_000
LONGEST_S = 1e9
"""About 30 years."""


def load(name: str, request: WorkloadRequest) -> Workload:
    """Return the workload of a file; see the catalogue."""
    if request.options != WorkloadOptions():
        raise InvalidInput(f"workload {name}: a CSV file is run as it is, without options")
    nodes = request.nodes or parse_nodes(DEFAULT_NODES)
    line_of: dict[str, int] = {}
    arrivals: list[Arrival] = []
    for row in _read_rows(Path(name)):
        arrival = _arrival(row, nodes)
        first = line_of.setdefault(arrival.spec.job_id, row.line)
        if first != row.line:
            raise row.error("name", f"{arrival.spec.job_id} is taken by line {first}")
        arrivals.append(arrival)
    if not arrivals:
        raise InvalidInput(f"{name}: has no jobs, expected one row per job below the header")
    arrivals.sort(key=lambda arrival: arrival.submitted_s)
    return Workload(name=Path(name).stem, source=name, arrivals=tuple(arrivals), nodes=nodes)


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


def _read_rows(path: Path) -> Iterator[CsvRow]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, strict=True)
            columns = _checked_columns(path, next(lines, []))
            for cells in lines:
                if any(cell.strip() for cell in cells):
                    yield _row(path, lines.line_num, columns, cells)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is not UTF-8 text, save it as such: {error.reason}") from error
    except csv.Error as error:
        raise InvalidInput(f"{path}, line {lines.line_num}: is no CSV: {error}") from error


def _row(path: Path, line: int, columns: Sequence[str], cells: Sequence[str]) -> CsvRow:
    if len(cells) != len(columns):
        raise InvalidInput(f"{path}, line {line}: {len(cells)} cells, expected {len(columns)} as in the header")
    return CsvRow(path, line, dict(zip(columns, cells, strict=True)))


def _checked_columns(path: Path, header: Sequence[str]) -> Sequence[str]:
    columns = [column.strip() for column in header]
    for column in columns:
        if column not in COLUMNS:
            raise InvalidInput(f"{path}: unknown column {column[:40]!r}, expected some of {', '.join(COLUMNS)}")
        if columns.count(column) > 1:
            raise InvalidInput(f"{path}: column {column} is there {columns.count(column)} times, expected once")
    if missing := [column for column in REQUIRED if column not in columns]:
        raise InvalidInput(f"{path}: has no column {missing[0]}, expected a header with {', '.join(REQUIRED)}")
    return columns


def _arrival(row: CsvRow, nodes: tuple[Node, ...]) -> Arrival:
    spec = _spec(row)
    room = sum(node.gpus // spec.gpus_per_replica for node in nodes)
    if spec.min_replicas > room:
        raise row.error(
            "min", f"{spec.min_replicas} replicas of {spec.gpus_per_replica} GPUs never fit: the nodes take {room}"
        )
    return Arrival(
        spec=spec,
        submitted_s=row.number("submitted_s", None, least=0.0, most=LONGEST_S),
        profile=_profile(row, spec),
        virtual_cluster=row.text("virtual_cluster"),
    )


def _spec(row: CsvRow) -> JobSpec:
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

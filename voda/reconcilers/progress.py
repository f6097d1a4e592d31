"""The progress collector turns rows of CSV files, which training programs write, into events.

A program that cannot reach the API, or was written for vodascheduler, writes one file per job, `<job id or name>.csv`,
with a header. The columns, in any order: `epoch` (from 0), `epoch_time_sec`, `step_time_sec`, `workers`; the collector
ignores `start_time`, `global_epochs` and `total_epochs`; every other column of numbers is a metric.

Rules: the log decides what is new. A row counts if it has more epochs than the log, so reading a file twice, also after
a restart, does no harm. Where jobs run as their users, a file counts if the job's user owns it. The collector skips
what it cannot use.
"""

import asyncio
import csv
import logging
import math
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from voda.domain.errors import InvalidInput, StoreNotWritable, TransientError
from voda.domain.job import MOST_REPLICAS, Job, JobSpec
from voda.events.types import JobProgressed
from voda.reconcilers.watcher import Watcher
from voda.untrusted_files import UnsafeFile, UntrustedFolder

_log = logging.getLogger(__name__)

INTERVAL_S: Final = 2.0
MOST_FILES: Final = 10_000
_MOST_NAMES: Final = 100_000
"""Looked at in the folder."""
MOST_BYTES: Final = 1_000_000
"""Read of one file in one step; the rest in the next."""
MOST_LINE_BYTES: Final = 20_000
MOST_ROWS: Final = 100
"""Of one file in one step: the last ones suffice, because a later epoch implies the earlier ones."""
MOST_METRICS: Final = 50
MOST_EPOCHS: Final = 1e9
_NAME_BYTES: Final = 64
_UNUSED: Final = frozenset({"epoch", "epoch_time_sec", "step_time_sec", "workers", "start_time"}) | {
    "global_epochs",
    "total_epochs",
}


@dataclass(slots=True)
class _Reading:
    """How far a file was read."""

    inode: int = -1
    offset: int = 0
    columns: list[str] = field(default_factory=list)
    is_invalid: bool = False
    """The file is no CSV file of progress; read again when somebody replaces it."""


async def any_owner(_spec: JobSpec) -> int | None:
    """Return None: nobody knows as which user id a job runs, as in a cluster, or all run as one."""
    return None


class ProgressCollector:
    """Reads a folder of CSV files, which need not exist yet, and records what is new of the live jobs.

    `owner` returns the user id whose files are a job's, None = anybody's; InvalidInput where its user has no account.
    """

    def __init__(
        self,
        folder: Path,
        *,
        watcher: Watcher,
        jobs: Callable[[], Mapping[str, Job]],
        owner: Callable[[JobSpec], Awaitable[int | None]] = any_owner,
    ) -> None:
        self._folder = folder
        self._owner = owner
        self._watcher = watcher
        self._jobs = jobs
        self._readings: dict[str, _Reading] = {}
        self._recorded: dict[str, float] = {}
        """job id -> epochs recorded by this collector; the projection of the log may lag behind for a moment."""

    async def run(self, interval_s: float = INTERVAL_S) -> None:
        while True:
            try:
                await self.step()
            except (OSError, TransientError, StoreNotWritable) as error:
                _log.warning("cannot collect folder=%s reason=%s", self._folder, error)
            await asyncio.sleep(interval_s)

    async def step(self) -> int:
        """Read every file once, and return how many rows were recorded."""
        jobs = self._jobs()
        by_age = sorted(jobs.items(), key=lambda item: (item[1].submitted_at, item[0]))
        named: dict[str, dict[str, Job]] = {}
        for job_id, job in reversed(by_age):
            named.setdefault(job.spec.name or job_id, {}).setdefault(job.spec.user, job)
        self._recorded = {job_id: epochs for job_id, epochs in self._recorded.items() if job_id in jobs}
        count = 0
        for file in await asyncio.to_thread(self._list):
            stem = file.removesuffix(".csv")
            # A job of that id, else the latest of that name; of each user one, as others may take the name.
            for job in [*([jobs[stem]] if stem in jobs else []), *named.get(stem, {}).values()]:
                if (recorded := await self._collect(file, job)) is not None:
                    count += recorded
                    break
        return count

    def _list(self) -> list[str]:
        names = UntrustedFolder(self._folder, uid=None).list_names(
            "", most=_MOST_NAMES, wanted=lambda name: name.endswith(".csv")
        )
        self._readings = {name: self._readings[name] for name in names if name in self._readings}
        return sorted(names)[:MOST_FILES]

    async def _collect(self, file: str, job: Job) -> int | None:
        """Record what is new in a file and return how many rows that is; None: it is not the job's."""
        try:
            files = UntrustedFolder(self._folder, uid=await self._owner(job.spec))
        except InvalidInput:
            return None
        reading = self._readings.setdefault(file, _Reading())
        before = _Reading(reading.inode, reading.offset, reading.columns, reading.is_invalid)
        count = 0
        try:
            for fact in await asyncio.to_thread(_new_rows, files, file, reading, job):
                if fact.epochs_done > max(job.epochs_done, self._recorded.get(fact.job_id, 0.0)):
                    await self._watcher.record([fact])
                    self._recorded[fact.job_id] = fact.epochs_done
                    count += 1
        except (TransientError, StoreNotWritable):
            # Read again what could not be written.
            self._readings[file] = before
            raise
        except UnsafeFile as error:
            _log.debug("not read file=%s job_id=%s reason=%s", file, job.spec.job_id, error)
            return None
        return count


def _new_rows(files: UntrustedFolder, path: str, reading: _Reading, job: Job) -> list[JobProgressed]:
    """Return the complete new rows, the last MOST_ROWS of them; raises UnsafeFile."""
    try:
        text = _new_text(files, path, reading)
    except UnsafeFile:
        raise
    except OSError as error:
        _log.debug("cannot read file=%s reason=%s", path, error)
        return []
    lines = text.decode("utf-8", errors="replace").splitlines()
    if lines and not reading.columns:
        reading.columns = [name.strip() for name in _cells(lines.pop(0))]
        if "epoch" not in reading.columns:
            _log.warning("progress file skipped file=%s reason=%s", path, "no column epoch in its first line")
            reading.is_invalid = True
    if reading.is_invalid:
        return []
    rows = (_row(dict(zip(reading.columns, _cells(line), strict=False)), job) for line in lines[-MOST_ROWS:])
    return [row for row in rows if row is not None]


def _new_text(files: UntrustedFolder, path: str, reading: _Reading) -> bytes:
    """Return the new whole lines."""
    with files.opened(path) as handle:
        status = os.fstat(handle)
        if status.st_ino != reading.inode or status.st_size < reading.offset:
            reading.inode, reading.offset, reading.columns, reading.is_invalid = status.st_ino, 0, [], False
        if reading.is_invalid or status.st_size == reading.offset:
            return b""
        if reading.offset and os.pread(handle, 1, reading.offset - 1) != b"\n":
            # The file was written anew in place: begin again.
            reading.offset, reading.columns = 0, []
        chunk = os.pread(handle, MOST_BYTES, reading.offset)
    whole = chunk[: chunk.rfind(b"\n") + 1]
    if b"\0" in chunk or len(chunk) - len(whole) > MOST_LINE_BYTES:
        _log.warning("progress file skipped file=%s reason=%s", path, "it has no lines of text")
        reading.is_invalid = True
        return b""
    reading.offset += len(whole)
    return whole


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line[:MOST_LINE_BYTES]]), [])
    except csv.Error:
        return []


def _row(cells: Mapping[str, str], job: Job) -> JobProgressed | None:
    epoch = _number(cells.get("epoch"))
    if epoch is None or not 0 <= epoch < MOST_EPOCHS:
        return None
    workers = _number(cells.get("workers"))
    others = ((name[:_NAME_BYTES], _number(text)) for name, text in cells.items() if name and name not in _UNUSED)
    metrics = [(name, number) for name, number in others if number is not None]
    return JobProgressed(
        job_id=job.spec.job_id,
        epochs_done=epoch + 1,
        workers=int(workers) if workers is not None and 0 < workers <= MOST_REPLICAS else job.replicas,
        epoch_s=_span(cells.get("epoch_time_sec")),
        step_s=_span(cells.get("step_time_sec")),
        metrics=dict(metrics[:MOST_METRICS]),
    )


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _span(text: str | None) -> float | None:
    seconds = _number(text)
    return seconds if seconds is not None and 0 < seconds < MOST_EPOCHS else None

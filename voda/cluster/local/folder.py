"""A job's folder: where its files lie, and how they are written.

    D/jobs/<job_id>/              VODA_JOB_DIR, the program's own: checkpoints belong here
      logs/<replica>.log          what a replica prints
      mpi/                        what an operator mounts at /etc/mpi
      .voda/record.json           see record.py; last.json once the job is forgotten
      .voda/replicas/<replica>/   lock, grant, process.json, exit.json: see shim.py and rsh_agent.py

Rule: a file that is read again is written whole or not at all; no path leads out of the folder.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from voda.cluster.local.record import Exit, LocalJobRecord, ShimProcess
from voda.domain.errors import ActionRefused

_Kind = TypeVar("_Kind", LocalJobRecord, Exit, ShimProcess)
# As in domain/job.py; checked again because it becomes a path.
_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,126}[a-z0-9])?")


class JobFolder:
    """The folder of one job."""

    def __init__(self, jobs: Path, job_id: str) -> None:
        """Name the folder without creating it.

        Raises:
            ActionRefused: the job's id is no name of a folder.
        """
        if not _NAME.fullmatch(job_id):
            raise ActionRefused(f"job {job_id[:80]!r}: cannot be the name of a folder")
        self.path = jobs / job_id
        self.logs = self.path / "logs"
        self.mpi = self.path / "mpi"
        self.replicas = self.path / ".voda" / "replicas"
        self._record = self.path / ".voda" / "record.json"

    def make(self) -> None:
        """Create the folders that every job has."""
        for folder in (self.logs, self.mpi, self.replicas):
            folder.mkdir(parents=True, exist_ok=True)

    def log(self, replica: str) -> Path:
        """Return where a replica's output goes."""
        return self.logs / f"{replica}.log"

    def save(self, record: LocalJobRecord, *, durably: bool = False) -> None:
        """Write the record; `durably` waits for the disk."""
        write_whole(self._record, msgspec.json.encode(record), durably=durably)

    def load(self) -> LocalJobRecord | None:
        """Return the record; None if there is none, or none that can be read."""
        return _read(self._record, LocalJobRecord)

    def forget(self) -> None:
        """Rename the record, so that the job is not found again; outputs and checkpoints stay."""
        if self._record.exists():
            self._record.rename(self._record.with_name("last.json"))

    def grant(self, replica: str, run: int, devices: Sequence[str]) -> None:
        """Let processes of a replica start, on these devices."""
        folder = self.replicas / replica
        folder.mkdir(exist_ok=True)
        write_whole(folder / "grant", f"{run}\n{','.join(devices) or '-'}\n".encode())

    def revoke(self, replica: str) -> None:
        """Let no more processes of a replica start."""
        (self.replicas / replica / "grant").unlink(missing_ok=True)

    def alive(self, replica: str, run: int) -> ShimProcess | None:
        """Return the shim of a run; None before it has written itself down."""
        alive = _read(self.replicas / replica / "process.json", ShimProcess)
        return alive if alive is not None and alive.run == run else None

    def exit(self, replica: str, run: int) -> Exit | None:
        """Return how a run ended; None if it runs, or its shim was killed."""
        ended = _read(self.replicas / replica / "exit.json", Exit)
        return ended if ended is not None and ended.run == run else None

    def last_run(self, replica: str) -> int:
        """Return the number of the newest start that left a trace; 0 if none did."""
        home = self.replicas / replica
        traces = (_read(home / "process.json", ShimProcess), _read(home / "exit.json", Exit))
        return max((trace.run for trace in traces if trace is not None), default=0)


def write_whole(path: Path, content: bytes, *, durably: bool = False, mode: int = 0o644) -> None:
    """Write a file whole or not at all.

    Raises:
        OSError: disk full, or no right to write there.
    """
    draft = path.with_name(f"{path.name}.new")
    with draft.open("wb") as file:
        file.write(content)
        if durably:
            file.flush()
            os.fsync(file.fileno())
    if mode != 0o644:
        draft.chmod(mode)
    draft.replace(path)


def job_ids(jobs: Path) -> tuple[str, ...]:
    """Return the jobs with a record in a folder of jobs; a folder whose name no job could have is left out."""
    if not jobs.is_dir():
        return ()
    named = (path for path in jobs.iterdir() if _NAME.fullmatch(path.name))
    return tuple(sorted(path.name for path in named if (path / ".voda" / "record.json").is_file()))


def _read(path: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None

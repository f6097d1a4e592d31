"""A job's folder: where its files lie, and what they hold, so that the next voda can go on after a crash.

    D/jobs/<job_id>/              VODA_JOB_DIR, the program's own: checkpoints belong here
      logs/<replica>.log          what a replica prints
      mpi/                        what an operator mounts at /etc/mpi
      .voda/record.json           LocalJobRecord; last.json once the job is forgotten
      .voda/replicas/<replica>/   lock, grant, process.json, exit.json, cut, times: see shim.py and rsh_agent.py

Rules: a file that is read again is written whole or not at all; a job can write all of this, so nothing in it is opened
but by `files` (see untrusted_files.py). Of a job that runs as another user, only VODA_JOB_DIR is the user's: all else
lies where the user cannot write (see isolation/user_folders.py). The record is written before an act (the intent) and
after it (the outcome); the names on the disk stay, since a new voda reads the records of an older one.
"""

import errno
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from voda.accounts import Account
from voda.cluster.local.isolation.user_folders import RECORDS, make_user_folders, user_of_folder
from voda.cluster.local.processes.marked import MarkedProcess, find_marked, kill_found
from voda.cluster.local.processes.replica_folder import REPLICAS, UNREADABLE, ReplicaFolder, read_record
from voda.domain.errors import ActionRefused
from voda.domain.gpus import GpuRequest, Gpus
from voda.domain.job import RIGHT_AFTER_S
from voda.domain.reasons.failures import JobFailure
from voda.events.types import ExitCause
from voda.process_table import REPLICA_MARK, marked_processes
from voda.untrusted_files import RECORD_BYTES, UnsafeFile, UntrustedFolder

# As in domain/job.py; checked again because it becomes a path.
_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,126}[a-z0-9])?")
_REPLICA = re.compile(r"(launcher|(master|worker)-\d{1,9})")
_ORDER: Final = ("launcher", "master", "worker")
_RECORD = ".voda/record.json"
MOST_NAMES = 20_000
"""Of one folder that are looked at; more than a job can have replicas."""


class LocalJobRecord(Struct, kw_only=True, omit_defaults=True):
    """A job of the local cluster; changed in place by its owner."""

    job_id: str
    pool: str
    state: Literal["running", "halting", "halted", "stopping"] = "halted"
    kind: Literal["mpi", "torch"] = "mpi"
    grace_s: float = 30.0
    gpus_per_replica: Gpus = Gpus(1)
    size: int = 0
    """Workers that the last plan gave it; the next plan starts those that are missing."""
    sized_at: float = 0.0
    """When the plan gave it that."""
    ran_size: int = 0
    """The last size that it ran at for more than a moment before another one; 0: none."""
    devices: dict[int, tuple[str, ...]] = {}
    """worker index -> devices it holds, ending workers too."""
    share: GpuRequest | None = None
    """The part of a device that its worker holds; `devices` then names no device of it."""
    share_device: str = ""
    """Of which device."""
    leaving: set[int] = set()
    """Those workers in `devices` that have been told to end."""
    runs: dict[str, int] = {}
    """replica -> number of its newest run."""
    judged: dict[str, int] = {}
    """replica -> number of the newest run whose end has been dealt with."""
    done: set[int] = set()
    """Workers that ended well while their job waits for others; they hold their devices until it has ended."""
    port: int = 0
    """Where its torch agents meet."""
    generation: tuple[int, ...] | None = None
    """The workers whose agents were started for each other, to meet at `port`; empty: none, or agents that do not meet.
    Where it is not `wanted`, all of them have to end before others begin. None: an older voda started what runs."""
    failures: int = 0
    evictions: int = field(default=0, name="cuts")
    """How often others told a replica to end since the job was last halted or the machine booted."""
    not_before: float = 0.0
    """Instant before which nothing is started again after a failure."""
    forgiven_until: float = 0.0
    """Instant until which an end of the launcher does not count, because a worker was killed under it."""
    resumed_at: float = 0.0
    """Instant of the last start from a halt; the deadline counts from here."""
    ended: Literal["", "completed", "failed"] = ""
    reason: JobFailure | None = None
    succeeded_at: float = 0.0
    """Instant at which the first replica of a completed job ended; the others may end by themselves for a while."""
    boot_id: str = ""
    silent_since: float = 0.0
    """When it was started or resized, where it has printed nothing since and users were told; 0: they were not."""

    @property
    def wanted(self) -> tuple[int, ...]:
        """Return the indices of the workers that shall run."""
        return tuple(index for index in sorted(self.devices) if index not in self.leaving)

    def resize(self, size: int, now: float) -> None:
        """Note the size that a plan gives it."""
        if size == self.size:
            return
        if self.size and now - self.sized_at >= RIGHT_AFTER_S:
            self.ran_size = self.size
        self.size, self.sized_at = size, now

    def has_new_size(self, now: float) -> bool:
        """Return whether it was resized a moment ago and had run at another size: a failure is the resize's then."""
        return self.ran_size not in (0, self.size) and 0 <= now - self.sized_at < RIGHT_AFTER_S

    @property
    def cause(self) -> ExitCause:
        """Why a worker ends, where nothing else is known of it."""
        causes: dict[str, ExitCause] = {"completed": "finished", "failed": "failed"}
        return causes.get(self.ended, "stopped")

    @property
    def is_sized(self) -> bool:
        """Whether it runs, so that a plan can resize it."""
        return bool(self.devices) and self.size > 0 and self.state == "running" and not self.ended

    @property
    def expected(self) -> tuple[int, ...]:
        """Indices of the workers that shall run, or run again; not those that a shrink takes away."""
        return tuple(sorted({*self.wanted, *range(self.size)}))


class JobFolder:
    def __init__(self, jobs: Path, job_id: str, *, account: Account | None = None) -> None:
        """Name the folder without creating it.

        Args:
            jobs: the folder of all jobs.
            job_id: of the job.
            account: of the job; without it, what lies there shows whose it is.

        Raises:
            ActionRefused: the job's id is no name of a folder.
        """
        if not _NAME.fullmatch(job_id):
            raise ActionRefused(f"job {job_id[:80]!r}: cannot be the name of a folder")
        self.uid = user_of_folder(jobs, job_id) if account is None else account.uid
        """Of the user whose job it is; None: of the user who runs voda."""
        kept = f"{RECORDS}/{job_id}" if self.is_users else job_id
        self.path = jobs / job_id
        self.mpi = jobs / kept / "mpi"
        self.replicas = jobs / kept / ".voda" / "replicas"
        self.files = UntrustedFolder(jobs, kept, uid=None if self.is_users else os.geteuid())

    @property
    def is_users(self) -> bool:
        """Whether the job runs as another user than voda, which keeps its records apart from the job's files."""
        return self.uid is not None

    def make(self, account: Account | None = None) -> None:
        """Create the folder; `account` is that of the job, None where it runs as the user who runs voda.

        Raises:
            UnsafeFile: something else is there, or the folder is another's.
        """
        if account is not None:
            make_user_folders(self.path.parent, self.path.name, account)
        elif self.is_users:
            raise UnsafeFile(errno.EPERM, f"{self.path.name} belongs to uid {self.uid}, expected {os.geteuid()}")
        else:
            self.files.make(mode=0o700)
            for folder in ("logs", "mpi", REPLICAS):
                self.files.make(folder)

    def save(self, record: LocalJobRecord, *, durably: bool = False) -> None:
        """Write the record; `durably` waits for the disk."""
        self.files.write(_RECORD, msgspec.json.encode(record), durably=durably, mode=0o600 if self.is_users else None)

    def load(self) -> LocalJobRecord | None:
        """Return the record; None if there is none, or none that can be read."""
        return read_record(self.files, _RECORD, LocalJobRecord, most_bytes=RECORD_BYTES)

    def load_or_problem(self) -> LocalJobRecord | str:
        """Return the record, or why it cannot be read, one sentence."""
        try:
            return msgspec.json.decode(self.files.read(_RECORD), type=LocalJobRecord)
        except UNREADABLE as error:
            return str(error)

    def forget(self) -> None:
        """Rename the record, so that the job is not found again; outputs and checkpoints stay."""
        # What the job put in its place is no record, and says nothing to the next voda.
        with suppress(UnsafeFile, IsADirectoryError, NotADirectoryError):
            self.files.rename(_RECORD, "last.json")

    def replica(self, name: str) -> ReplicaFolder:
        """Return what lies of one replica there."""
        return ReplicaFolder(self.files, name, self.uid)

    def find_processes(self) -> tuple[MarkedProcess, ...]:
        """Return the job's processes; in a thread, see `find_marked`.

        Another user's process is none of the job's, whatever its environment says.
        """
        return find_marked(self.replicas, os.geteuid() if self.uid is None else self.uid)

    def kill(self, found: Iterable[MarkedProcess], replica: str = "") -> Sequence[int]:
        """Kill the processes that were found of the job, of one replica or all, and return their ids."""
        return kill_found(found, replica)

    def replica_names(self) -> list[str]:
        """Return the replicas with a folder, as many as a job can have."""
        return self.files.list_names(REPLICAS, most=MOST_NAMES, wanted=is_replica)


def is_replica(name: str) -> bool:
    """Return whether a replica can have that name."""
    return _REPLICA.fullmatch(name) is not None


def replica_rank(name: str) -> tuple[int, int]:
    """Return what sorts the names of replicas: the most telling one first."""
    role, _, index = name.partition("-")
    return _ORDER.index(role), int(index or 0)


def job_ids(jobs: Path) -> tuple[str, ...]:
    """Return the jobs with a record in a folder of jobs; a folder whose name no job could have is left out."""
    named: set[str] = set()
    for place in ("", RECORDS):
        named.update(UntrustedFolder(jobs, place, uid=None).list_names("", most=sys.maxsize, wanted=_NAME.fullmatch))
    return tuple(job_id for job_id in sorted(named) if JobFolder(jobs, job_id).files.exists(_RECORD))


def marked_job_ids(jobs: Path, uid: int | None) -> frozenset[str]:
    """Return the jobs of a folder of which processes of a user run, or of root, by what these say; None = of all users,
    of whom one may say so of another's job.
    """
    found, start = set[str](), os.fsencode(f"{REPLICA_MARK}={jobs}/")
    for _, environment in marked_processes(jobs, uid=uid):
        places = [entry.removeprefix(start) for entry in environment.split(b"\0") if entry.startswith(start)]
        found.update(os.fsdecode(place).removeprefix(f"{RECORDS}/").partition("/")[0] for place in places)
    return frozenset(filter(_NAME.fullmatch, found))

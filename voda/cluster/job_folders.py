"""The folders of jobs on this machine: which there are, what they take, and how they are deleted.

A folder is first renamed, so that all of it is gone from its place at once, and then emptied in steps; what a crash
leaves of that is found again by its name. Rules: everything here waits for the disk, so it runs in threads; a folder
whose job has a running replica is left alone.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from voda.cluster.local.folder import JobFolder
from voda.domain.errors import ActionRefused
from voda.untrusted_files import UntrustedFolder
from voda.untrusted_trees import RemovalStep, TreeSize, measure_tree, remove_step

_PLACES: Final = ("", ".records")
"""Where jobs' folders lie, below the folder of all jobs: voda's records of jobs of other users lie apart."""
_DELETED: Final = ".deleted-"
_MOST_CUT: Final = 20


class DeletedFolder(Struct, frozen=True):
    """A folder that was renamed, and is to be emptied."""

    job_id: str
    place: Path
    name: str
    owner: int | None = None
    """The uid of another user than voda's, whose it was; None: voda's own, or not known."""


class LocalJobFolders:
    """The folders below one folder of jobs."""

    def __init__(self, jobs: Path) -> None:
        self._jobs = jobs

    def job_ids(self) -> frozenset[str]:
        """Return the names of the folders that are there, also those of unknown jobs."""
        return frozenset(name for names in self._names() for name in names if not name.startswith("."))

    def deleted(self) -> Sequence[DeletedFolder]:
        """Return the folders that are to be emptied."""
        return [
            _deleted(self._jobs / place, name)
            for place, names in zip(_PLACES, self._names(), strict=True)
            for name in names
            if name.startswith(_DELETED)
        ]

    def path(self, job_id: str) -> Path:
        return self._jobs / job_id

    def is_in_use(self, job_id: str) -> bool:
        """Return whether a replica of an ended job runs; a lock that its user may take says that of none."""
        try:
            folder = JobFolder(self._jobs, job_id)
        except ActionRefused:
            return False
        locked = [name for name in folder.replica_names() if folder.replica(name).is_locked()]
        if locked and all(folder.replica(name).is_lock_users() for name in locked):
            return bool(folder.find_processes())
        return bool(locked)

    def measure(self, job_id: str, *, most: int) -> TreeSize:
        """Return what a job's folder takes, looking at no more than `most` entries."""
        sizes = [self._measure(place, job_id, most) for place in _PLACES]
        return TreeSize(
            size_bytes=sum(size.size_bytes for size in sizes),
            files=sum(size.files for size in sizes),
            is_complete=all(size.is_complete for size in sizes),
            exceeds=any(size.exceeds for size in sizes),
        )

    def cut_replicas(self, job_id: str) -> Sequence[str]:
        """Return the first replicas whose output outgrew its limit."""
        try:
            folder = JobFolder(self._jobs, job_id)
        except ActionRefused:
            return ()
        return [name for name in sorted(folder.replica_names()) if folder.replica(name).was_cut()][:_MOST_CUT]

    def take_away(self, job_id: str) -> bool:
        """Rename a job's folder, so that it is gone from its place; return whether there was one.

        Raises:
            OSError: it cannot be renamed.
        """
        was_there = False
        for place in _PLACES:
            folder = self._jobs / place / job_id
            with suppress(FileNotFoundError):
                owner = folder.lstat().st_uid
                # Emptying makes it voda's own: the name tells whose it was.
                suffix = "" if owner == os.geteuid() else f".{owner}"
                os.rename(folder, folder.with_name(f"{_DELETED}{job_id}{suffix}"))
                was_there = True
        return was_there

    def empty(self, deleted: DeletedFolder, *, most: int) -> RemovalStep:
        """Delete about `most` entries of a folder that was taken away; where voda is root its user cannot reach it."""
        return remove_step(deleted.place, deleted.name, most=most, owner=deleted.owner)

    def _measure(self, place: str, name: str, most: int) -> TreeSize:
        try:
            return measure_tree(self._jobs / place, name, most=most)
        except FileNotFoundError:
            return TreeSize()

    def _names(self) -> Sequence[Sequence[str]]:
        return [UntrustedFolder(self._jobs, place, uid=None).list_names("", most=sys.maxsize) for place in _PLACES]


def _deleted(place: Path, name: str) -> DeletedFolder:
    job_id, _, owner = name.removeprefix(_DELETED).partition(".")
    return DeletedFolder(job_id, place, name, int(owner) if owner.isdecimal() else None)

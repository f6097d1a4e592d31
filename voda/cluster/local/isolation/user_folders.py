"""The folders of a job that runs as another user than voda.

    jobs/                   voda's, 0711
      <job_id>/             the user's, 0700: VODA_JOB_DIR; `logs` and `mpi` in it are links to those below
      .records/             voda's, 0711
        <job_id>/           voda's, 0710 for the user's group; laid out as the folder of any job (see folder.py)
          logs/             voda's, 0755; each file in it is the user's, 0600
          mpi/              voda's, 0755

Rules: voda believes nothing that the user can write, so its records lie where only voda can make, rename or remove a
name; it makes the user's folder, gives it away as its last act, and never writes in it again.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from voda.accounts import Account
from voda.untrusted_files import UnsafeFile

RECORDS: Final = ".records"
"""Folder beside the jobs' own; no job can have that name."""
_MODES: Final = {"logs": 0o755, "mpi": 0o755, ".voda": 0o711}
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def has_user_folders(jobs: Path) -> bool:
    """Return whether jobs have run here as users other than voda's, or were to."""
    with suppress(OSError):
        return stat.S_ISDIR((jobs / RECORDS).lstat().st_mode)
    return False


def user_of_folder(jobs: Path, job_id: str) -> int | None:
    """Return the uid of the user whose a job's folder is, -1 where that is not known any more; None: voda's own."""
    with suppress(OSError):
        if (owner := (jobs / job_id).lstat().st_uid) != os.geteuid():
            return owner
    with suppress(OSError):
        (jobs / RECORDS / job_id).lstat()
        return -1
    return None


def make_user_folders(jobs: Path, job_id: str, account: Account) -> None:
    """Make the folders of a user's job, or set right what a crash left of that.

    Raises:
        UnsafeFile: the folder is another's.
        OSError: the disk refuses.
    """
    with _opened(jobs) as top:
        os.fchmod(top, 0o711)
        with _made(RECORDS, top, 0o711) as records, _made(job_id, records, 0o710, gid=account.gid) as record:
            for name, mode in _MODES.items():
                with _made(name, record, mode) as made:
                    if name == ".voda":
                        with _made("replicas", made, 0o755):
                            pass
        _make_own(job_id, top, account)


def _make_own(job_id: str, jobs: int, account: Account) -> None:
    with suppress(FileExistsError):
        os.mkdir(job_id, 0o700, dir_fd=jobs)
    with _opened(job_id, jobs) as own:
        if (owner := os.fstat(own).st_uid) == account.uid:
            return
        # One of voda's own may be half made; one with records in it is that of a job of voda's own user.
        if owner != os.geteuid() or ".voda" in os.listdir(own):
            expected = f"expected {account.uid}, that of its owner {account.name}"
            raise UnsafeFile(errno.EPERM, f"{job_id} belongs to uid {owner}, {expected}")
        for name in ("logs", "mpi"):
            with suppress(FileExistsError):
                os.symlink(f"../{RECORDS}/{job_id}/{name}", name, dir_fd=own)
        os.fchown(own, account.uid, account.gid)


@contextmanager
def _made(name: str, parent: int, mode: int, *, gid: int = -1) -> Iterator[int]:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    with _opened(name, parent) as handle:
        if gid >= 0:
            os.fchown(handle, -1, gid)
        # Whatever the umask.
        os.fchmod(handle, mode)
        yield handle


@contextmanager
def _opened(path: Path | str, parent: int | None = None) -> Iterator[int]:
    handle = os.open(path, _FOLDER, dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)

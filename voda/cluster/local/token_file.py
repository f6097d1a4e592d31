"""The file of a pool's fencing token, which a job of voda's own user may remove, lock, or replace by anything.

Rules: it is replaced whole, never changed, so a reader needs no lock; whatever lies in its place costs neither time nor
memory, counts as no token, and is moved out of the way by the next write.
"""

import fcntl
import os
import re
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from voda.process_table import lock_holder, open_process, try_lock
from voda.untrusted_files import UntrustedFolder
from voda.untrusted_trees import remove_step

_FOLDER: Final = ".leaders"
"""Beside the jobs' folders; no job can have that name."""
_TOKEN_BYTES: Final = 1_024
_MOVED: Final = re.compile(rf"{re.escape(_FOLDER)}-[0-9]+")
_MOST_LISTED: Final = 100_000
_MOST_REMOVED: Final = 1_000
"""Entries at a time, some 20 ms; what is left goes the next time."""


class FencingToken(Struct, frozen=True, kw_only=True):
    """The leader of a local pool."""

    id: str
    """Of this leadership alone."""
    epoch: int
    pid: Annotated[int, Meta(ge=1, le=1 << 22)]
    start: int
    """Of the process, in ticks since boot."""

    @property
    def is_of_another_process(self) -> bool:
        """Whether another process than this one has it, and lives."""
        if self.pid == os.getpid() or (pidfd := open_process(self.pid, self.start)) is None:
            return False
        os.close(pidfd)
        return True


class TokenFile:
    """The token of one pool, in a folder of jobs."""

    def __init__(self, jobs: Path, pool: str) -> None:
        self._jobs = jobs
        self._jobs_folder = UntrustedFolder(jobs, uid=None)
        self._folder = UntrustedFolder(jobs, _FOLDER, uid=os.geteuid())
        self._name = f"{quote(pool, safe='')}.json"
        self._moved = count(1)

    def make(self) -> None:
        """Make an empty file where there is none, and clear the way to it; raises OSError where the disk refuses."""
        try:
            self._make()
        except OSError:
            self._clear_way()
            self._make()

    def read(self) -> FencingToken | None:
        """Return the token; None where there is none that can be read."""
        return _token_in(self._folder, self._name)

    def write(self, token: FencingToken) -> None:
        """Put a token in place of whatever is there; raises OSError where the disk refuses."""
        content = msgspec.json.encode(token)
        try:
            self._write(content)
        except OSError:
            self._clear_way()
            self._write(content)

    def lock(self) -> int | None:
        """Return a descriptor of the locked file, see `unlock`; None where somebody else has the lock.

        Raises:
            OSError: there is no file that can be locked.
        """
        file = self._folder.open(self._name, os.O_RDWR)
        # A file that was replaced meanwhile locks nobody out.
        if try_lock(file) and os.fstat(file).st_nlink:
            return file
        os.close(file)
        return None

    def remove_moved(self) -> None:
        """Remove folders that were moved out of the way, unless they hold a token of another process that lives.

        Nobody reads them, but a leader that was stopped in the middle of a turn may have a file of one open.
        """
        left = _MOST_REMOVED
        for name in self._jobs_folder.list_names("", most=_MOST_LISTED, wanted=_MOVED.fullmatch):
            if left <= 0:
                return
            with suppress(OSError):
                if not self._has_living_leader(name):
                    left -= remove_step(self._jobs, name, most=left).removed

    def _has_living_leader(self, name: str) -> bool:
        folder = UntrustedFolder(self._jobs, name, uid=os.geteuid())
        names = folder.list_names("", most=_MOST_REMOVED, wanted=lambda file: file.endswith(".json"))
        tokens = [token for file in names if (token := _token_in(folder, file)) is not None]
        return any(token.is_of_another_process for token in tokens)

    def holder(self) -> str:
        """Name the process that took the lock, as far as the kernel tells."""
        with suppress(OSError), self._folder.opened(self._name) as file:
            if (pid := lock_holder(file)) not in (None, os.getpid()):
                return f"process {pid}"
        return "another process"

    def _make(self) -> None:
        self._folder.make(mode=0o700)
        with self._folder.opened(self._name, os.O_RDWR | os.O_CREAT):
            pass

    def _write(self, content: bytes) -> None:
        self._folder.make(mode=0o700)
        self._folder.write(self._name, content, mode=0o600)

    def _clear_way(self) -> None:
        """Move the folder away, with what a job put there; other pools' leaders write their tokens again."""
        names = (f"{_FOLDER}-{number}" for number in self._moved)
        with suppress(OSError):
            self._jobs_folder.rename(_FOLDER, next(name for name in names if not self._jobs_folder.exists(name)))


def _token_in(folder: UntrustedFolder, name: str) -> FencingToken | None:
    with suppress(OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return msgspec.json.decode(folder.read(name, _TOKEN_BYTES), type=FencingToken)
    return None


def unlock(lock: int | None) -> None:
    """Release a lock of `TokenFile.lock`, also where a process that is being started has the descriptor too."""
    if lock is not None:
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)

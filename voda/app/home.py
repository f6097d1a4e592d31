"""The folder of this machine's voda: its log, its lock, its secrets, and where the command line finds the server.

Rule: one voda at a time works on a folder. The kernel drops the lock with the process, however that ends; it is not
filelock's, because it names its holder.
"""

import fcntl
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from voda.auth.secret_files import write_once
from voda.cluster.local.isolation.user_folders import RECORDS
from voda.domain.errors import AlreadyExists, InvalidInput, StoreNotWritable
from voda.files import sync, take_rights, unsafe_folder, write_whole

_PASSABLE: Final = stat.S_IXGRP | stat.S_IXOTH
_PRIVATE: Final = ("admin.token", "tokens.json", "secret", "lock", "log.place")


class ServerFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A running server, as the command line finds it."""

    url: str
    pid: int
    version: str
    certificate: str = ""
    """File that a caller on this machine may trust, if the server speaks TLS."""
    socket: str = ""
    """At which users of this machine ask without a token; empty: there is none."""


class Home:
    """A folder of mode 0700, or 0711 where jobs of other users reach their folders in it, and the names in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "voda.db"
        self.jobs = folder / "jobs"
        self._lock = folder / "lock"
        self._server = folder / "server.json"
        self._place = folder / "log.place"

    def make(self) -> None:
        """Create the folder for its owner alone, where it is missing.

        Raises:
            InvalidInput: something else is there, or it cannot be entered.
            StoreNotWritable: it cannot be written.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.jobs.mkdir(mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise InvalidInput(f"{error.filename or self.folder} is no folder; name another with --home") from error
        except OSError as error:
            what = "written to" if self.folder.is_dir() else "made"
            raise StoreNotWritable(
                f"the folder {self.folder} cannot be {what}: {error.strerror}; name another with --home"
            ) from error

    def let_users_through(self, public: Collection[Path] = ()) -> None:
        """Let users reach what is theirs in the folder, but neither list it nor read the files of voda.

        Nobody can read afterwards what the folder's own mode kept from them before, but for `public` files.

        Raises:
            InvalidInput: somebody else could put files in the place of voda's.
            StoreNotWritable: the modes cannot be changed.
        """
        self._refuse_foreign()
        try:
            reached = self.folder.stat().st_mode
            names = {self.jobs.name, self._server.name, *(path.name for path in public if self._holds(path))}
            take_rights(self.folder, _kept_out(reached), keep=names)
            take_rights(self.jobs, _kept_out(reached & self.jobs.stat().st_mode), keep={RECORDS})
            self.folder.chmod(stat.S_IMODE(self.folder.stat().st_mode) | _PASSABLE)
            self.jobs.chmod(0o700 | _PASSABLE)
            # A log that was made by a copy or an import may be readable for all.
            for file in (*self.folder.glob(f"{self.log.name}*"), *(self.folder / name for name in _PRIVATE)):
                if file.is_file() and not file.is_symlink():
                    file.chmod(0o600)
        except OSError as error:
            raise StoreNotWritable(f"{self.folder}: its modes cannot be changed: {error.strerror}") from error

    def _refuse_foreign(self) -> None:
        for folder in (self.folder, self.jobs):
            found, foreign = folder.stat(), unsafe_folder(folder)
            if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                foreign = folder
            if foreign is not None:
                where = f"the folder {foreign}" + ("" if foreign == folder else f" above {folder}")
                raise InvalidInput(
                    f"others than user id {os.geteuid()} own or may write {where}, and could put files in the place of"
                    " voda's: name another with --home, or add --single-user"
                )

    def _holds(self, path: Path) -> bool:
        return path.absolute().parent == self.folder.absolute()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for the length of the block.

        Raises:
            AlreadyExists: another process holds the lock.
            StoreNotWritable: the lock cannot be written.
        """
        try:
            # Not inheritable: a training process must not keep the lock of a voda that is gone.
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreNotWritable(f"{self._lock} cannot be written: {error.strerror}") from error
        try:
            self._take(handle)
            yield
        finally:
            os.close(handle)

    def bind(self, log: str) -> None:
        """Remember which log the jobs of this folder belong to.

        Raises:
            InvalidInput: they belong to another log; with this one, voda would stop them all.
        """
        bound = write_once(self._place, log)
        # The process that wrote it may have died before it was sure to last, and the log rests on it.
        sync(self.folder)
        if bound != log:
            raise InvalidInput(
                f"the jobs in {self.folder} belong to the log {bound}, got {log}: go on with that one, name another"
                f" folder with --home, or remove {self._place} once none of its jobs runs"
            )

    @contextmanager
    def private_files(self) -> Iterator[None]:
        """Create files in the block that only their owner can read; for a start only, when nothing else runs."""
        before = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(before)

    def publish(self, server: ServerFile) -> None:
        """Say where the server is asked; StoreNotWritable: it cannot be written."""
        try:
            write_whole(self._server, msgspec.json.encode(server))
            # Everybody who reaches the folder may know the address, whatever umask voda runs with.
            self._server.chmod(0o644)
        except OSError as error:
            raise StoreNotWritable(f"{self._server} cannot be written: {error.strerror}") from error

    def withdraw(self, pid: int) -> None:
        """Remove the published server if it is of this process."""
        with suppress(OSError, msgspec.MsgspecError):
            if msgspec.json.decode(self._server.read_bytes(), type=ServerFile).pid == pid:
                self._server.unlink(missing_ok=True)

    def _take(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
            raise AlreadyExists(
                f"a voda (process {holder}) works on {self.folder} already; use it, stop it, or name another folder"
                " with --home"
            ) from error
        # On a full disk, one that finds the lock taken is not told by whom.
        with suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)


def _kept_out(mode: int) -> int:
    """Return all rights of those whom a folder of this mode keeps out."""
    return (0 if mode & stat.S_IXGRP else stat.S_IRWXG) | (0 if mode & stat.S_IXOTH else stat.S_IRWXO)

"""Opens files that others can write, such as a job's, so that whatever lies there costs neither time nor memory.

A folder is walked from a root that voda made, name by name, and no link on the way counts. A file in it has to be a
regular one, of the uid that is expected: a link, a FIFO, a socket or a device is refused, and none of them blocks.
Rules: nothing is read without a bound, whatever size a file shows or grows to; what is written replaces what lies
there, and goes through no link. A program that stands alone (cluster/local/processes/shim.py) keeps the same rules by
itself.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

RECORD_BYTES: Final = 1 << 20
"""Most that a file read whole may hold."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HOSTILE: Final = frozenset(
    {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}
    | {errno.EAGAIN}
)
"""Errors that another try would not get rid of, unlike a full disk; EAGAIN: a job keeps a lease on its file."""
_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class UnsafeFile(OSError):
    """What lies at a path is not what voda expects there; one sentence says what it is."""

    def __str__(self) -> str:
        return str(self.args[-1])


class UntrustedFolder:
    """A folder that others can write, and all below it.

    Args:
        root: a folder that voda made; links on the way to it count.
        name: of the folder below it; empty: the root itself.
        uid: owner of the files; None: files of any owner are read.
    """

    def __init__(self, root: Path, name: str = "", *, uid: int | None) -> None:
        self._root = root
        self._names = _split(name) if name else ()
        self._uid = uid

    def open(self, path: str, flags: int = os.O_RDONLY) -> int:
        """Return a descriptor of a regular file; with O_CREAT the file is made where it is missing.

        Raises:
            FileNotFoundError: there is none.
            UnsafeFile: something else is there, or another's file, or the folders on the way are not there to write in.
            OSError: the disk refuses.
        """
        with self._parent_of(path, for_writing=bool(flags & os.O_CREAT)) as (parent, name):
            try:
                handle = os.open(name, flags | _SAFE, 0o644, dir_fd=parent)
            except OSError as error:
                raise _refusal(path, error, parent, name) from error
            try:
                self._check(path, os.fstat(handle))
            except UnsafeFile:
                os.close(handle)
                raise
        return handle

    def read(self, path: str, most_bytes: int = RECORD_BYTES) -> bytes:
        """Return what a small file holds.

        Raises:
            FileNotFoundError, UnsafeFile, OSError: as `open`; also where it holds more.
        """
        with self.opened(path) as handle:
            content = os.pread(handle, most_bytes + 1, 0) if os.fstat(handle).st_size <= most_bytes else b""
            if os.fstat(handle).st_size > most_bytes or len(content) > most_bytes:
                raise UnsafeFile(errno.EFBIG, f"{path} holds more than {most_bytes} bytes")
        return content

    @contextmanager
    def opened(self, path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
        """Keep a file open for the block; see `open`."""
        handle = self.open(path, flags)
        try:
            yield handle
        finally:
            os.close(handle)

    def exists(self, path: str) -> bool:
        """Return whether anything is there, also what `open` refuses."""
        with suppress(OSError), self._parent_of(path) as (parent, name):
            os.stat(name, dir_fd=parent, follow_symlinks=False)
            return True
        return False

    def list_names(self, path: str, *, most: int, wanted: Callable[[str], object] = bool) -> list[str]:
        """Return the wanted names among the first `most` of a folder; empty where there is no such folder."""
        try:
            with self._folder((*self._names, *(_split(path) if path else ()))) as folder, os.scandir(folder) as entries:
                return [entry.name for entry in islice(entries, most) if wanted(entry.name)]
        except OSError:
            return []

    def make(self, path: str = "", *, mode: int | None = None) -> None:
        """Make the folder, or one below it, and those on the way; raises UnsafeFile where something else is there.

        Without a `mode` it has the usual one, as the umask says.
        """
        with self._folder((*self._names, *(_split(path) if path else ())), make=True) as folder:
            if mode is not None:
                os.fchmod(folder, mode)

    def write(self, path: str, content: bytes, *, durably: bool = False, mode: int | None = None) -> None:
        """Write a file whole or not at all, in place of whatever is there; `durably` waits until it is on the disk.

        Without a `mode` it has the usual one, as the umask says.

        Raises:
            UnsafeFile: a folder lies there, or none on the way.
            OSError: disk full, or no right to write there.
        """
        with self._parent_of(path, for_writing=True) as (parent, name):
            # A draft of its own: where several processes write one file, none moves another's draft away.
            draft = f"{name}.{os.getpid()}.new"
            try:
                with os.fdopen(_new_file(draft, parent), "wb") as file:
                    file.write(content)
                    if durably:
                        file.flush()
                        os.fsync(file.fileno())
                    if mode is not None:
                        os.fchmod(file.fileno(), mode)
                os.replace(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
                if durably:
                    os.fsync(parent)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=parent)
                raise _refusal(path, error, parent, name) from error

    def remove(self, path: str) -> None:
        """Remove a file, where there is one."""
        with suppress(FileNotFoundError), self._parent_of(path) as (parent, name):
            os.unlink(name, dir_fd=parent)

    def rename(self, path: str, name: str) -> None:
        """Give a file another name in its folder, where there is one."""
        with suppress(FileNotFoundError), self._parent_of(path) as (parent, before):
            os.replace(before, name, src_dir_fd=parent, dst_dir_fd=parent)

    @contextmanager
    def _parent_of(self, path: str, *, for_writing: bool = False) -> Iterator[tuple[int, str]]:
        *names, name = _split(path)
        with self._folder((*self._names, *names), for_writing=for_writing) as parent:
            yield parent, name

    @contextmanager
    def _folder(self, names: tuple[str, ...], *, for_writing: bool = False, make: bool = False) -> Iterator[int]:
        handle = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for count, name in enumerate(names, start=1):
                try:
                    below = _open_folder(name, handle, make=make)
                except OSError as error:
                    path = "/".join(names[:count])
                    if for_writing and isinstance(error, FileNotFoundError):
                        raise UnsafeFile(errno.ENOENT, f"the folder {path} is gone") from error
                    raise _refusal(path, error, handle, name, expected="a folder") from error
                os.close(handle)
                handle = below
            yield handle
        finally:
            os.close(handle)

    def _check(self, path: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
            raise UnsafeFile(errno.EINVAL, f"{path} is {kind}, expected a regular file")
        if self._uid is not None and status.st_uid != self._uid:
            raise UnsafeFile(errno.EPERM, f"{path} belongs to uid {status.st_uid}, expected {self._uid}")


def _split(path: str) -> tuple[str, ...]:
    names = tuple(path.split("/"))
    if not all(names) or {".", ".."} & {*names} or "\0" in path:
        raise UnsafeFile(errno.EINVAL, f"{path[:80]!r} leads out of its folder")
    return names


def _open_folder(name: str, parent: int, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def _new_file(name: str, parent: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o644, dir_fd=parent)
    except FileExistsError:
        # Left by a crash, or put there by a job.
        os.unlink(name, dir_fd=parent)
        return os.open(name, flags, 0o644, dir_fd=parent)


def _refusal(path: str, error: OSError, parent: int, name: str, expected: str = "a regular file") -> OSError:
    """Return the error to raise where a file could not be used: an UnsafeFile where what lies there is the cause."""
    if error.errno not in _HOSTILE:
        return error
    found = ""
    with suppress(OSError):
        found = _KINDS.get(stat.S_IFMT(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode), "")
    if found and found != expected:
        return UnsafeFile(error.errno, f"{path} is {found}, expected {expected}")
    return UnsafeFile(error.errno, f"{path} cannot be used: {os.strerror(error.errno or 0).lower()}")

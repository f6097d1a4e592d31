"""Measures and deletes folders that others filled, whatever lies in them.

A folder is walked by descriptors, never by a path, so that it may be nested more deeply than a path is long, and no
link in it counts. What is mounted in it is neither entered nor deleted, nor, in a folder that belongs to another user
than us, a third user's folder. A folder without rights is given some first.
Rules: at most three folders are open at a time; deleting goes in steps, each of which may be taken again.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_BLOCK_BYTES: Final = 512
"""Unit of st_blocks, whatever the file system's own is."""
_REASONS: Final = {errno.EBUSY: "something is mounted on it", errno.EPERM: "it is immutable, or another user's"}
_MOST_REMEMBERED: Final = 1_000_000
"""Folders and further names of files in a tree that is measured: its memory shall not be ours."""
_ATTEMPTS: Final = 100
"""Names tried for a folder that is moved up."""
_Mount = tuple[int, str]
"""Device, and id of the mount: a folder of the same file system may be mounted within another."""


class TreeSize(Struct, frozen=True, kw_only=True):
    """What a folder takes on the disk."""

    size_bytes: int = 0
    """Blocks that deleting it would free: a sparse file counts as what it takes, a file that has a name elsewhere as
    nothing."""
    files: int = 0
    """Of any kind, without folders."""
    is_complete: bool = True
    """False: there is more, which could not be read or was beyond the bound."""
    exceeds: bool = False
    """Whether it has more entries than were looked at, or more folders than are remembered."""


class RemovalStep(Struct, frozen=True, kw_only=True):
    """What one step of a deletion came to."""

    removed: int
    """Files and folders that it deleted or moved towards it; 0: a further step would not help."""
    is_gone: bool
    problem: str = ""
    """Why something of it stays, one sentence."""


def measure_tree(root: Path, name: str, *, most: int) -> TreeSize:
    """Return what the folder `name` in `root` takes, looking at no more than `most` entries; empty where it is gone.

    Raises:
        OSError: `root` or /proc cannot be read.
    """
    with _opened(root) as parent:
        try:
            top = os.open(name, _FOLDER, dir_fd=parent)
        except FileNotFoundError:
            return TreeSize()
        except OSError:
            return TreeSize(is_complete=False)
        return _Measurement(top, most).run()


class _Measurement:
    """A walk by one descriptor, down by names and up by `..`."""

    def __init__(self, top: int, most: int) -> None:
        self._here = top
        self._mount = _mount_of(top)
        self._left = most
        self._bytes = os.fstat(top).st_blocks * _BLOCK_BYTES
        self._files = 0
        self._is_complete = True
        self._exceeds = False
        self._remembered = 0
        """Folders, and names of files with several."""
        self._links: dict[int, int] = {}
        """Inode -> how many of its names were seen, of files with several."""

    def run(self) -> TreeSize:
        try:
            self._walk()
        finally:
            os.close(self._here)
        return TreeSize(size_bytes=self._bytes, files=self._files, is_complete=self._is_complete, exceeds=self._exceeds)

    def _walk(self) -> None:
        path, pending = [_identity(self._here)], [self._scan()]
        while pending:
            if pending[-1]:
                if self._enter(pending[-1].pop()):
                    path.append(_identity(self._here))
                    pending.append(self._scan())
                continue
            pending.pop()
            path.pop()
            if not pending:
                return
            above = os.open("..", _FOLDER, dir_fd=self._here)
            os.close(self._here)
            self._here = above
            if _identity(above) != path[-1]:
                # It was moved meanwhile; where it is now is not ours to look at.
                self._is_complete = False
                return

    def _enter(self, name: str) -> bool:
        try:
            below = os.open(name, _FOLDER, dir_fd=self._here)
        except OSError:
            self._is_complete = False
            return False
        if _mount_of(below) != self._mount:
            os.close(below)
            return False
        os.close(self._here)
        self._here = below
        return True

    def _scan(self) -> list[str]:
        """Count what is in the folder, and return the folders in it."""
        folders: list[str] = []
        try:
            with os.scandir(self._here) as entries:
                for entry in entries:
                    if self._left <= 0 or self._remembered > _MOST_REMEMBERED:
                        self._is_complete, self._exceeds = False, True
                        return []
                    self._left -= 1
                    if self._count(entry.stat(follow_symlinks=False)):
                        self._remembered += 1
                        folders.append(entry.name)
        except OSError:
            self._is_complete = False
        return folders

    def _count(self, status: os.stat_result) -> bool:
        """Count an entry, and return whether it is a folder."""
        if stat.S_ISDIR(status.st_mode):
            if status.st_dev == self._mount[0]:
                self._bytes += status.st_blocks * _BLOCK_BYTES
            return True
        self._files += 1
        if status.st_nlink > 1:
            self._remembered += 1
            seen = self._links[status.st_ino] = self._links.get(status.st_ino, 0) + 1
            if seen != status.st_nlink:
                return False
        self._bytes += status.st_blocks * _BLOCK_BYTES
        return False


def remove_step(root: Path, name: str, *, most: int, owner: int | None = None) -> RemovalStep:
    """Delete about `most` entries of the folder `name` in `root`, and itself once it is empty.

    Folders within folders are moved up first, so that no path and no stack grows with their depth. With an `owner`,
    the uid whose folder it is or was, and where we are root, it becomes ours alone: its owner cannot go on filling it.

    Raises:
        OSError: `root` or /proc cannot be read.
    """
    with _opened(root) as parent:
        try:
            top = _open_for_removal(name, parent)
        except FileNotFoundError:
            return RemovalStep(removed=0, is_gone=True)
        except OSError as error:
            return _without_folder(name, parent, error)
        try:
            removal = _Removal(top, most, owner)
            if _mount_of(parent) == removal.mount:
                if owner is not None and os.geteuid() == 0:
                    _take_over(top)
                removal.run()
            else:
                removal.problem = f"something is mounted on {name}"
        finally:
            os.close(top)
        if not removal.is_empty:
            return RemovalStep(removed=removal.removed, is_gone=False, problem=removal.problem)
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            return RemovalStep(removed=removal.removed, is_gone=False, problem=_reason(name, error))
        return RemovalStep(removed=removal.removed + 1, is_gone=True)


def _without_folder(name: str, parent: int, error: OSError) -> RemovalStep:
    """Delete what is no folder, such as a link that lies in its place."""
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        try:
            os.unlink(name, dir_fd=parent)
        except OSError as refusal:
            error = refusal
        else:
            return RemovalStep(removed=1, is_gone=True)
    return RemovalStep(removed=0, is_gone=False, problem=_reason(name, error))


class _Removal:
    """One step within an open folder."""

    def __init__(self, top: int, most: int, owner: int | None) -> None:
        self.mount = _mount_of(top)
        owner = os.fstat(top).st_uid if owner is None else owner
        self._owner = owner if owner != os.geteuid() else None
        """Of another user's folder, who may have moved a third user's folder into it; None: of our own."""
        self.removed = 0
        self.problem = ""
        self.is_empty = False
        self._top = top
        self._most = most

    def run(self) -> None:
        stays = False
        with os.scandir(self._top) as entries:
            for entry in entries:
                if self.removed >= self._most:
                    return
                try:
                    is_gone = self._remove(entry.name, is_folder=entry.is_dir(follow_symlinks=False))
                except FileNotFoundError:
                    is_gone = True
                except OSError as error:
                    self.problem, is_gone = _reason(entry.name, error), False
                self.removed += is_gone
                stays = stays or not is_gone
        self.is_empty = not stays

    def _remove(self, name: str, *, is_folder: bool) -> bool:
        if not is_folder:
            os.unlink(name, dir_fd=self._top)
            return True
        try:
            os.rmdir(name, dir_fd=self._top)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return True
        folder = _open_for_removal(name, self._top, self._owner)
        try:
            if _mount_of(folder) != self.mount:
                self.problem = f"something is mounted on {name}"
                return False
            is_empty = self._empty(folder)
        finally:
            os.close(folder)
        if is_empty:
            os.rmdir(name, dir_fd=self._top)
        return is_empty

    def _empty(self, folder: int) -> bool:
        """Delete the files of a folder and move the folders in it up, as many as are left to this step."""
        is_empty = True
        with os.scandir(folder) as entries:
            for entry in entries:
                if self.removed >= self._most:
                    return False
                try:
                    if entry.is_dir(follow_symlinks=False):
                        self._move_up(entry.name, folder)
                    else:
                        os.unlink(entry.name, dir_fd=folder)
                    self.removed += 1
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self.problem, is_empty = _reason(entry.name, error), False
        return is_empty

    def _move_up(self, name: str, folder: int) -> None:
        # Its own rights count too, because its `..` changes.
        handle = _open_for_removal(name, folder, self._owner)
        inode = os.fstat(handle).st_ino
        os.close(handle)
        for attempt in range(_ATTEMPTS):
            try:
                os.rename(name, f".{inode}.{attempt}", src_dir_fd=folder, dst_dir_fd=self._top)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR) or attempt == _ATTEMPTS - 1:
                    raise
            else:
                return


@contextmanager
def _opened(root: Path) -> Iterator[int]:
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _open_for_removal(name: str, parent: int, owner: int | None = None) -> int:
    """Return the descriptor of a folder of this owner, None = of anybody.

    A folder that its owner may not read, write or enter is given these rights.
    """
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        status = os.fstat(handle)
        if owner is not None and status.st_uid != owner:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            # A descriptor of this kind cannot be changed itself, only by its name in /proc, which is no link to follow.
            with suppress(OSError):
                os.chmod(f"/proc/self/fd/{handle}", stat.S_IRWXU)
        return os.open(".", _FOLDER, dir_fd=handle)
    finally:
        os.close(handle)


def _take_over(folder: int) -> None:
    with suppress(OSError):
        # In this order: its owner could change the mode.
        os.fchown(folder, os.geteuid(), os.getegid())
        os.fchmod(folder, stat.S_IRWXU)


def _mount_of(handle: int) -> _Mount:
    with open(f"/proc/self/fdinfo/{handle}", encoding="ascii") as file:
        for line in file:
            if line.startswith("mnt_id:"):
                return os.fstat(handle).st_dev, line
    raise OSError(errno.ENOSYS, "/proc/self/fdinfo names no mount")


def _identity(handle: int) -> tuple[int, int]:
    status = os.fstat(handle)
    return status.st_dev, status.st_ino


def _reason(name: str, error: OSError) -> str:
    why = _REASONS.get(error.errno or 0) or os.strerror(error.errno or 0).lower()
    return f"{name[:80]!r} cannot be deleted: {why}"

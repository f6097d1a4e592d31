"""Files that others read at any time: written whole or not at all, and flushed to the disk where they must last; and
folders that only voda may change.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import BinaryIO


def sync(path: Path) -> None:
    """Wait until a file's content, or the names of a folder's files, are on the disk.

    A file's name survives a power cut only once its folder is flushed.

    Raises:
        OSError: the disk refuses, or there is no such file or folder.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_private(path: str | Path, flags: int) -> int:
    """Open a file that, if it is made by this, only its owner can read; the `opener` of Python's open."""
    return os.open(path, flags, 0o600)


def write_whole(
    path: Path,
    content: bytes,
    *,
    durably: bool = False,
    mode: int = 0o644,
    publish: Callable[[Path, Path], object] = os.replace,
) -> None:
    """Write a file whole or not at all; see `replaced_file`."""
    with replaced_file(path, durably=durably, mode=mode, publish=publish) as file:
        file.write(content)


@contextmanager
def replaced_file(
    path: Path,
    *,
    durably: bool = False,
    mode: int = 0o644,
    draft: Path | None = None,
    publish: Callable[[Path, Path], object] = os.replace,
) -> Iterator[BinaryIO]:
    """Open a draft for writing, which takes the place of a file at the end of the block; it is gone where that raises.

    Args:
        path: of the file.
        durably: wait until its content and its name are on the disk.
        mode: of a new file, from its first byte on; the umask takes from it.
        draft: in the same folder; None: of a name that no other thread or process uses. One that a killed process left
            stays there, unless the name is given.
        publish: moves the draft (first argument) into the file's place.

    Raises:
        OSError: disk full, or no right to write there.
    """
    draft = draft or path.with_name(f"{path.name}.{os.getpid()}-{get_ident()}.new")
    draft.unlink(missing_ok=True)
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            if durably:
                file.flush()
                os.fsync(file.fileno())
        publish(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    if durably:
        sync(path.parent)


def unsafe_folder(folder: Path) -> Path | None:
    """Return this folder, or the one above it, in which others than root and voda's user could replace names; None:
    there is none.

    As sshd's StrictModes, but a sticky folder such as /tmp passes: only the owner of a name replaces it there, and that
    owner is looked at too. Links on the way count like folders.
    """
    for path in dict.fromkeys((*_way_to(folder.resolve()), *_way_to(folder.absolute()))):
        found = path.lstat()
        is_open = bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)) and not found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, os.geteuid()) or (is_open and not stat.S_ISLNK(found.st_mode)):
            return path
    return None


def take_rights(folder: Path, rights: int, *, keep: Collection[str]) -> None:
    """Take these rights from the files and folders in a folder that belong to voda's user, but for some names.

    What lies deeper cannot be reached without passing them. No link is followed.

    Raises:
        OSError: the system refuses.
    """
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in {*os.listdir(top)}.difference(keep):
            found = os.lstat(name, dir_fd=top)
            is_plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
            if is_plain and found.st_uid == os.geteuid() and found.st_mode & rights:
                handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=top)
                try:
                    os.fchmod(handle, stat.S_IMODE(found.st_mode) & ~rights)
                finally:
                    os.close(handle)
    finally:
        os.close(top)


def _way_to(folder: Path) -> tuple[Path, ...]:
    return (*reversed(folder.parents), folder)

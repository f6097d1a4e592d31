"""Files that others read at any time: written whole or not at all, and flushed to the disk where they must last."""

import os
from pathlib import Path


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


def write_whole(path: Path, content: bytes, *, durably: bool = False, mode: int = 0o644) -> None:
    """Write a file whole or not at all; `durably` waits until its content and its name are on the disk.

    Raises:
        OSError: disk full, or no right to write there.
    """
    # A draft of its own: where several processes write one file, none moves another's draft away.
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with draft.open("wb") as file:
            file.write(content)
            if durably:
                file.flush()
                os.fsync(file.fileno())
        if mode != 0o644:
            draft.chmod(mode)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    if durably:
        sync(path.parent)

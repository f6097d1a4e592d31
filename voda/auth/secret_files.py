"""Reads and writes files that only their owner may read: secrets and hashes of tokens.

Rule: a file is there whole or not at all, of mode 0600 from its first byte on; `write_once` never replaces one.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from voda.domain.errors import InvalidInput, StoreNotWritable
from voda.files import write_whole

Stamp = tuple[int, int, int]
"""Changes whenever the file does."""
ABSENT: Stamp = (0, 0, 0)


def stamp_of(file: Path) -> Stamp:
    """Return what changes when the file does; ABSENT where there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return ABSENT
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_secret(file: Path) -> bytes:
    """Return the file's bytes, empty where there is no such file; raises InvalidInput where it cannot be read."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror or error}") from error


def write_once(file: Path, content: str) -> str:
    """Write a file of one line unless it is there already, and return the line that it holds.

    Raises:
        StoreNotWritable: the folder cannot be written.
        InvalidInput: what is there cannot be read.
    """
    if not (text := read_secret(file).decode("utf-8", "replace").strip()):
        _write(file, f"{content}\n".encode(), publish=_keep_first)
        text = read_secret(file).decode("utf-8", "replace").strip()
    return text


def replace_content(file: Path, content: bytes) -> None:
    """Replace the content of a file; raises StoreNotWritable where the folder cannot be written."""
    _write(file, content, publish=os.replace)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keep other processes that lock the same file from reading and replacing it for the length of the block."""
    lock = FileLock(file.with_name(f".{file.name}.lock"), mode=0o600)
    try:
        lock.acquire()
    except OSError as error:
        raise StoreNotWritable(f"{file} cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


def _write(file: Path, content: bytes, *, publish: Callable[[Path, Path], object]) -> None:
    try:
        write_whole(file, content, durably=True, mode=0o600, publish=publish)
    except OSError as error:
        raise StoreNotWritable(f"{file} cannot be written: {error.strerror or error}") from error


def _keep_first(draft: Path, file: Path) -> None:
    try:
        os.link(draft, file)
    except OSError:
        # A faster process has written it, or the file system has no hard links, or a full disk left it empty.
        if not read_secret(file).strip():
            os.replace(draft, file)

"""Reads and writes files that only their owner may read: secrets and hashes of tokens.

Rule: a file is there whole or not at all, of mode 0600 from its first byte on; `write_once` never replaces one.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from voda.domain.errors import InvalidInput, StoreNotWritable
from voda.files import sync

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
        with _beside(file, f"{content}\n".encode()) as draft:
            try:
                os.link(draft, file)
            except OSError:
                # A faster process has written it, or the file system has no hard links, or a full disk left it empty.
                if not read_secret(file).strip():
                    os.replace(draft, file)
        text = read_secret(file).decode("utf-8", "replace").strip()
    return text


def replace_content(file: Path, content: bytes) -> None:
    """Replace the content of a file; raises StoreNotWritable where the folder cannot be written."""
    with _beside(file, content) as draft:
        os.replace(draft, file)


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


@contextmanager
def _beside(file: Path, content: bytes) -> Iterator[Path]:
    """Yield a draft with the content in the same folder; it is gone afterwards unless it was moved."""
    try:
        # Of mode 0600 by its own promise.
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        draft = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(handle)
            yield draft
            sync(file.parent)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise StoreNotWritable(f"{file} cannot be written: {error.strerror or error}") from error

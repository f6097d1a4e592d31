"""Writes and reads files that only their owner may read, such as secrets and hashes of tokens.

Rule: a file exists whole or not at all, with mode 0600 from its first byte on; `write_once` never replaces a file.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from voda.domain.errors import InvalidInput, StoreNotWritable
from voda.fsync import sync_folder

Stamp = tuple[int, int, int]
"""A value that changes whenever the file does."""
ABSENT: Stamp = (0, 0, 0)


def stamp_of(file: Path) -> Stamp:
    """Return the file's stamp; ABSENT where there is no file."""
    try:
        status = os.stat(file)
    except OSError:
        return ABSENT
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_file(file: Path) -> bytes:
    """Return the file's bytes; empty where there is no such file.

    Raises:
        InvalidInput: it cannot be read.
    """
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror or error}") from error


def write_once(file: Path, content: str) -> str:
    """Write the file unless it exists, and return its one line, without the line break.

    Raises:
        StoreNotWritable: the folder cannot be written.
        InvalidInput: the existing file cannot be read.
    """
    if text := _text(file):
        # Its writer may have died before the folder was durable.
        sync_folder(file.parent)
        return text
    with _beside(file, f"{content}\n".encode()) as draft:
        try:
            os.link(draft, file)
        except FileExistsError:
            # An empty file was left behind by a full disk; another process wrote one with content.
            if not _text(file):
                os.replace(draft, file)
        except OSError:
            # A file system without hard links.
            os.replace(draft, file)
    return _text(file)


def _text(file: Path) -> str:
    return read_file(file).decode("utf-8", "replace").strip()


def replace_content(file: Path, content: bytes) -> None:
    """Replace the file's content.

    Raises:
        StoreNotWritable: the folder cannot be written.
    """
    with _beside(file, content) as draft:
        os.replace(draft, file)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock for the block, so that other processes that lock the file wait.

    Raises:
        StoreNotWritable: the folder cannot be written.
    """
    try:
        handle = os.open(file.with_name(f".{file.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreNotWritable(f"{file} cannot be written: {error.strerror or error}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _beside(file: Path, content: bytes) -> Iterator[Path]:
    """Yield a draft with the content in the same folder; it is removed afterwards unless it was moved."""
    try:
        # mkstemp makes files of mode 0600.
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        draft = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(handle)
            yield draft
            sync_folder(file.parent)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise StoreNotWritable(f"{file} cannot be written: {error.strerror or error}") from error

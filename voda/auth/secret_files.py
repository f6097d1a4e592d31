"""Files that nobody but their owner may read: secrets and hashes of tokens.

Rule: a file is there whole or not at all, of mode 0600 from its first byte on; one written once is never replaced.
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
    """Write the file unless it is there already, and return what it holds: one line, without its end.

    Raises:
        StoreNotWritable: the folder cannot be written.
        InvalidInput: what is there cannot be read.
    """
    if not (text := read_secret(file).decode("utf-8", "replace_content").strip()):
        with _beside(file, f"{content}\n".encode()) as draft:
            try:
                os.link(draft, file)
            except FileExistsError:
                # An empty file is what a full disk left behind; one with content was written by somebody faster.
                if not read_secret(file).strip():
                    os.replace(draft, file)
        text = read_secret(file).decode("utf-8", "replace_content").strip()
    return text


def replace_content(file: Path, content: bytes) -> None:
    """Put the content in the place of the file's.

    Raises:
        StoreNotWritable: the folder cannot be written.
    """
    with _beside(file, content) as draft:
        os.replace(draft, file)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keep other processes that ask for the same from reading and replacing the file meanwhile.

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
            sync_folder(file.parent)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise StoreNotWritable(f"{file} cannot be written: {error.strerror or error}") from error

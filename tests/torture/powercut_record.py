"""Runs a program under the shim of powercut_shim.c, and reads what it recorded.

Rule: a record counts only if replaying all of it gives, byte for byte, the folder that the program left behind.
"""

import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

_SOURCE = Path(__file__).with_name("powercut_shim.c")
_HEAD = struct.Struct("=cQQII")
_COMPILE_S = 120


class Kind(StrEnum):
    """What an operation does; the letters are the shim's."""

    CREATE = "C"
    WRITE = "W"
    TRUNCATE = "T"
    SYNC = "S"
    SYNC_FOLDER = "D"
    LINK = "L"
    UNLINK = "U"
    RENAME = "R"
    MAKE_FOLDER = "M"
    UNKNOWN = "!"


class Operation(NamedTuple):
    """One operation on the folder, in the order in which the kernel did them."""

    kind: Kind
    inode: int
    offset: int
    """First byte of a write; size after a truncation."""
    path: str
    data: bytes
    """What was written; the new path of a rename."""


class NoCompiler(RuntimeError):
    """The shim cannot be built."""


class Unreplayable(RuntimeError):
    """The program did something to its files that the shim cannot record."""


def built_shim(folder: Path) -> Path:
    """Compile the shim into the folder and return its path.

    Raises:
        NoCompiler: there is none, or it refuses the source.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompiler("the power cut needs a C compiler for its shim: install the package gcc (and libc6-dev)")
    shim = folder / "powercut_shim.so"
    command = [compiler, "-O1", "-fPIC", "-shared", "-o", str(shim), str(_SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    if done.returncode != 0:
        raise NoCompiler(f"{compiler} cannot build {_SOURCE.name}: {done.stderr.strip()[-500:]}")
    return shim


def environment(shim: Path, folder: Path, journal: Path) -> Mapping[str, str]:
    """Return the variables under which a program's doings in the folder are recorded."""
    # Resolved: the shim compares with the kernel's own names.
    return {
        "LD_PRELOAD": str(shim),
        "VODA_POWERCUT_FOLDER": str(folder.resolve()),
        "VODA_POWERCUT_JOURNAL": str(journal),
    }


def operations(journal: Path) -> Sequence[Operation]:
    """Read the shim's record.

    Raises:
        Unreplayable: it holds an operation that cannot be replayed.
    """
    found = list(_parsed(journal.read_bytes()))
    for operation in found:
        if operation.kind is Kind.UNKNOWN:
            raise Unreplayable(f"{operation.data.decode()} on {operation.path}: teach the shim to record it")
    return found


def _parsed(raw: bytes) -> Iterator[Operation]:
    at = 0
    # A process killed amid a record leaves a part of it: of an operation that nobody was told of.
    while at + _HEAD.size <= len(raw):
        kind, inode, offset, path_bytes, data_bytes = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        if at + path_bytes + data_bytes > len(raw):
            return
        path = raw[at : at + path_bytes].decode()
        data = raw[at + path_bytes : at + path_bytes + data_bytes]
        at += path_bytes + data_bytes
        yield Operation(Kind(kind.decode()), inode, offset, path, data)


def scratch() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder for records and rebuilt disks; where there is one, in memory, where flushing costs nothing."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="voda-powercut-", dir=memory if memory.is_dir() else None)

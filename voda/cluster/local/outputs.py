"""What the replicas of local jobs print: files in the jobs' folders, read as they grow.

Rules: a file that got shorter was cut by its shim (see shim.py): reading goes on from its beginning. A job can put
anything into its folder, so every read is bounded and in a thread of its own.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from voda.cluster.local.folder import MOST_NAMES, JobFolder, is_replica, log_path
from voda.domain.errors import ActionRefused, InvalidInput
from voda.untrusted_files import UnsafeFile

_CHUNK_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 1 << 30
"""Read of one output before following it: far more than a shim lets it grow to."""
_LOOK_EVERY_S: Final = 0.1
_READ_S: Final = 10.0
_ORDER: Final = ("launcher", "master", "worker")
_RULE: Final = re.compile(r"-{40,}")
_MPIRUN: Final = re.compile(r"\b(prterun|mpirun|mpiexec|orterun|PRTE|MPI_ABORT|Primary job)\b")
_NOTE: Final = re.compile(r"voda run: (starts \d|the program failed)")
_LONGEST_BOX: Final = 20
"""Lines."""
_T = TypeVar("_T")


class LocalOutputs:
    """An adapter of the Outputs port, over a folder of jobs' folders."""

    def __init__(self, folder: Path) -> None:
        self._jobs = folder

    async def replicas(self, job_id: str) -> Sequence[str]:
        with suppress(ActionRefused, OSError):
            return await _in_thread(lambda: _replicas(JobFolder(self._jobs, job_id)))
        return ()

    async def read(self, job_id: str, replica: str, *, tail_bytes: int | None, follow: bool) -> AsyncIterator[bytes]:
        known = await self.replicas(job_id)
        if replica not in known:
            names = ", ".join(known) or "(none)"
            raise InvalidInput(f"job {job_id} has no output of a replica {replica[:80]!r}: expected one of {names}")
        folder = JobFolder(self._jobs, job_id)
        try:
            at, left = await _in_thread(lambda: _bounds(folder, replica, tail_bytes))
        except OSError as error:
            # The answer has begun, so a line of it says why it is short.
            yield f"[voda: the output cannot be read: {error}]\n".encode()
            return
        while True:
            # Checked first: one more read gets what is printed between the last read and the end.
            is_over = not follow or await _in_thread(lambda: _has_ended(folder))
            while follow or left > 0:
                if (chunk := await _in_thread(partial(_chunk, folder, replica, at))) is None:
                    break
                at, content = chunk
                left -= len(content)
                yield content
            if is_over:
                return
            await asyncio.sleep(_LOOK_EVERY_S)


def last_lines(folder: JobFolder, name: str, run: int, *, lines: int = 5, most_bytes: int = 8000) -> str:
    """Return the end of what a replica's program printed in one run, without what mpirun says of it.

    Empty where it printed nothing, or it cannot be read.
    """
    alive = folder.alive(name, run)
    try:
        with folder.files.opened(log_path(name)) as file:
            size = os.fstat(file).st_size
            at = max(size - most_bytes, min(alive.log_at if alive else 0, size), 0)
            printed = os.pread(file, most_bytes, at).decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return ""
    except UnsafeFile as error:
        return f"(not read: {error})"
    except OSError:
        return ""
    return "\n".join(_of_program([line.rstrip() for line in printed if line.strip()])[-lines:])


def _of_program(lines: list[str]) -> list[str]:
    """Return the lines without mpirun's boxes and the launcher's notes; all of them where there are no others."""
    kept, index = list[str](), 0
    while index < len(lines):
        index, first = _after_box(lines, index), index
        if index == first:
            kept += [] if _NOTE.match(lines[index]) else [lines[index]]
            index += 1
    return kept or lines


def _after_box(lines: list[str], index: int) -> int:
    """Return the index behind a box of mpirun that begins at an index; the same where none does."""
    if _RULE.fullmatch(lines[index]):
        for end in range(index + 1, min(index + _LONGEST_BOX, len(lines))):
            if _RULE.fullmatch(lines[end]):
                return end + 1 if any(map(_MPIRUN.search, lines[index:end])) else index
    return index


async def _in_thread(read: Callable[[], _T]) -> _T:
    """Return what a thread reads; raise TimeoutError, an OSError, where the disk does not answer."""
    try:
        async with asyncio.timeout(_READ_S):
            return await asyncio.to_thread(read)
    except TimeoutError as error:
        raise TimeoutError(f"the disk did not answer within {_READ_S:g} s") from error


def _replicas(folder: JobFolder) -> Sequence[str]:
    found = folder.files.list_names("logs", most=MOST_NAMES, wanted=_is_output)
    names = {name.removesuffix(".log") for name in found}
    if record := folder.load():
        # More files than are looked at may hide those of the replicas.
        names |= {name for name in record.runs if is_replica(name) and folder.files.exists(log_path(name))}
    return tuple(sorted(names, key=_rank))


def _is_output(file: str) -> bool:
    return file.endswith(".log") and is_replica(file.removesuffix(".log"))


def _rank(name: str) -> tuple[int, int]:
    role, _, index = name.partition("-")
    return _ORDER.index(role), int(index or 0)


def _bounds(folder: JobFolder, replica: str, tail_bytes: int | None) -> tuple[int, int]:
    """Return the first line's offset that is at most `tail_bytes` before the end, and how many bytes follow it."""
    tail_bytes = _MOST_BYTES if tail_bytes is None else tail_bytes
    with folder.files.opened(log_path(replica)) as file:
        size = os.fstat(file).st_size
        at = max(0, size - tail_bytes)
        if at == 0:
            return 0, size
        before = os.pread(file, min(tail_bytes + 1, _CHUNK_BYTES), at - 1)
    newline = before.find(b"\n")
    at += max(newline, 0)
    return at, size - at


def _chunk(folder: JobFolder, replica: str, at: int) -> tuple[int, bytes] | None:
    """Return the next offset and the bytes up to it; None at the end of the file, or where it cannot be read."""
    try:
        with folder.files.opened(log_path(replica)) as file:
            at = 0 if os.fstat(file).st_size < at else at
            content = os.pread(file, _CHUNK_BYTES, at)
    except OSError:
        return None
    return (at + len(content), content) if content else None


def _has_ended(folder: JobFolder) -> bool:
    """Return whether nothing more will be printed: the job is stopped or has ended, and no replica runs."""
    record = folder.load()
    if record is not None and not record.ended and record.state != "stopping":
        return False
    return not any(map(folder.is_locked, folder.replica_names()))

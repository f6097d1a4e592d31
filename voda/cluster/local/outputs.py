"""What the replicas of local jobs print: files in the jobs' folders, read as they grow.

Rules: a file that got shorter was cut by its shim (see shim.py): reading goes on from its beginning. A job can put
anything into its folder, so every read is bounded and in a thread of its own.
"""

import asyncio
import os
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from voda.cluster.local.folder import MOST_NAMES, JobFolder, is_replica, replica_rank
from voda.cluster.local.processes import shim
from voda.cluster.port import EVERY_LINE, LineTimes
from voda.domain.errors import ActionRefused, InvalidInput, ServerBusy
from voda.programs.last_words import MOST_BYTES, LastWords, hint, is_not_found, last_words
from voda.untrusted_files import UnsafeFile

_CHUNK_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 1 << 30
"""Read of one output before following it: far more than a shim lets it grow to."""
_LOOK_EVERY_S: Final = 0.1
_READ_S: Final = 10.0
_LATEST: Final = 253_402_300_799.0
"""The last second of the year 9999: no calendar has later ones."""
_MOST_TIMES_BYTES: Final = 4 << 20
_INSTANT_BYTES: Final = shim.INSTANT.size
_T = TypeVar("_T")


class LocalOutputs:
    """An adapter of the Outputs port, over a folder of jobs' folders."""

    def __init__(self, folder: Path) -> None:
        self._jobs = folder

    async def replicas(self, job_id: str) -> Sequence[str]:
        try:
            return await _in_thread(lambda: _replicas(JobFolder(self._jobs, job_id)))
        except TimeoutError as error:
            # There may be some.
            raise ServerBusy(f"job {job_id}: its output was not found in time: {error}; try again") from error
        except (ActionRefused, OSError):
            return ()

    async def read(
        self,
        job_id: str,
        replica: str,
        *,
        tail_bytes: int | None,
        follow: bool,
        times: LineTimes = EVERY_LINE,
    ) -> AsyncIterator[bytes]:
        known = await self.replicas(job_id)
        if replica not in known:
            names = ", ".join(known) or "(none)"
            raise InvalidInput(f"job {job_id} has no output of a replica {replica[:80]!r}: expected one of {names}")
        folder = JobFolder(self._jobs, job_id)
        clock = _LineClock(folder, replica)
        try:
            at, left = await _in_thread(lambda: _bounds(folder, replica, tail_bytes))
            if times.since is not None:
                begin = await _in_thread(partial(clock.offset_at, times.since))
                at, left = max(at, begin), left - max(0, begin - at)
            while True:
                # Checked first: one more read gets what is printed between the last read and the end.
                is_over = not follow or await _in_thread(lambda: _has_ended(folder))
                while follow or left > 0:
                    if (chunk := await _in_thread(partial(_chunk, folder, replica, at))) is None:
                        break
                    at, content = chunk
                    left -= len(content)
                    if times.are_shown:
                        content = await _in_thread(partial(clock.stamped, content, at - len(content)))
                    yield content
                if is_over:
                    return
                await asyncio.sleep(_LOOK_EVERY_S)
        except OSError as error:
            # The answer has begun, so a line of it says why it is short.
            yield f"[voda: the output cannot be read: {error}]\n".encode()


class _LineClock:
    """When the lines of an output were printed: within a second by its shim's notes, else by the file's last change."""

    def __init__(self, folder: JobFolder, replica: str) -> None:
        self._folder = folder
        self._replica = replica
        self._sizes: list[int] = []
        """Ascending; by the instant at the same place, the output had that size."""
        self._instants: list[float] = []
        self._changed_at = 0.0
        self._is_at_begin = True
        """Whether the next byte is the first of a line."""

    def offset_at(self, since: float) -> int:
        """Return where the first line begins that was printed at `since` or later."""
        self._load()
        before = bisect_left(self._instants, since)
        with self._folder.files.opened(self._folder.replica(self._replica).log) as file:
            if before == len(self._instants) and self._changed_at < since:
                return os.fstat(file).st_size
            at = self._sizes[before - 1] if before else 0
            # A line of which a part was printed before is an earlier one.
            around = os.pread(file, _CHUNK_BYTES, at - 1) if at else b"\n"
        return at + max(around.find(b"\n"), 0)

    def stamped(self, content: bytes, at: int) -> bytes:
        """Return a part of the output that begins at an offset, with its instant before each line that begins in it."""
        if not self._sizes or at + len(content) > self._sizes[-1]:
            self._load()
        found: list[bytes] = []
        for line in _lines(content):
            if self._is_at_begin:
                found.append(f"{datetime.fromtimestamp(self._instant_of(at), UTC):%Y-%m-%dT%H:%M:%SZ} ".encode())
            found.append(line)
            self._is_at_begin = line.endswith(b"\n")
            at += len(line)
        return b"".join(found)

    def _instant_of(self, offset: int) -> float:
        after = bisect_right(self._sizes, offset)
        return self._instants[after] if after < len(self._instants) else self._changed_at

    def _load(self) -> None:
        with self._folder.files.opened(self._folder.replica(self._replica).log) as file:
            self._changed_at = max(0.0, min(os.fstat(file).st_mtime, _LATEST))
        try:
            content = self._folder.files.read(self._folder.replica(self._replica).times, _MOST_TIMES_BYTES)
        except OSError:
            return
        self._sizes, self._instants = [], []
        for size, instant in shim.INSTANT.iter_unpack(content[: len(content) // _INSTANT_BYTES * _INSTANT_BYTES]):
            if self._sizes and size < self._sizes[-1]:
                # The output was cut to its end, and what was noted of that has moved with it.
                moved = size - self._sizes[-1]
                kept = bisect_right(self._sizes, -moved)
                self._sizes = [before + moved for before in self._sizes[kept:]]
                del self._instants[:kept]
            # The job may have written here itself.
            if 0 <= instant <= _LATEST and (not self._instants or self._instants[-1] <= instant):
                self._sizes.append(size)
                self._instants.append(instant)


def _lines(content: bytes) -> list[bytes]:
    """Return the lines of a part of an output; only a line feed ends one."""
    *whole, rest = content.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def read_last_words(folder: JobFolder, name: str, run: int) -> LastWords:
    """Return what a replica's program said last in one run; nothing where it printed nothing, or it cannot be read."""
    alive = folder.replica(name).alive(run)
    try:
        with folder.files.opened(folder.replica(name).log) as file:
            size = os.fstat(file).st_size
            at = max(size - MOST_BYTES, min(alive.log_at if alive else 0, size), 0)
            return last_words(os.pread(file, MOST_BYTES, at))
    except FileNotFoundError:
        return LastWords()
    except UnsafeFile as error:
        return LastWords(lines=(f"(not read: {error})",))
    except OSError:
        return LastWords()


def read_reason(folder: JobFolder, name: str, runs: Mapping[str, int], path: str) -> LastWords:
    """Return what a replica that failed said last in its newest run; where it only speaks of the end of another one, as
    all that wait for a rank do, what that one said. `path` is the job's PATH.
    """
    said = read_last_words(folder, name, runs[name])
    for other, run in runs.items() if said.is_echo else ():
        first = read_last_words(folder, other, run)
        if not first.is_own:
            # It may have been started again already.
            first = read_last_words(folder, other, run - 1)
        if first.exception and not first.is_echo:
            return replace(said, exception=f"{other}: {first.exception}")
    if not is_not_found(said.text()):
        return said
    python = None
    if not folder.is_users:
        # Of a user's job root would tell what lies in folders that its user cannot look into.
        python = shutil.which("python", path=path) or shutil.which("python3", path=path) or ""
    return replace(said, hint=hint(said.text(), python, path))


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
        names |= {name for name in record.runs if is_replica(name) and folder.files.exists(folder.replica(name).log)}
    return tuple(sorted(names, key=replica_rank))


def _is_output(file: str) -> bool:
    return file.endswith(".log") and is_replica(file.removesuffix(".log"))


def _bounds(folder: JobFolder, replica: str, tail_bytes: int | None) -> tuple[int, int]:
    """Return the first line's offset that is at most `tail_bytes` before the end, and how many bytes follow it."""
    tail_bytes = _MOST_BYTES if tail_bytes is None else tail_bytes
    with folder.files.opened(folder.replica(replica).log) as file:
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
        with folder.files.opened(folder.replica(replica).log) as file:
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
    return not any(folder.replica(name).is_locked() for name in folder.replica_names())

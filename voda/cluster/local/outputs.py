"""What the replicas of local jobs print: files in the jobs' folders, read as they grow.

Rule: a file that got shorter was cut by its shim (see shim.py): reading goes on from its beginning.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from voda.cluster.local.folder import JobFolder
from voda.domain.errors import ActionRefused, InvalidInput
from voda.process_table import is_locked

_CHUNK_BYTES: Final = 64 << 10
_LOOK_EVERY_S: Final = 0.1
_ORDER: Final = ("launcher", "master", "worker")
_REPLICA = re.compile(r"(launcher|(master|worker)-\d+)")


class LocalOutputs:
    """An adapter of the Outputs port, over a folder of jobs' folders."""

    def __init__(self, folder: Path) -> None:
        self._jobs = folder

    async def replicas(self, job_id: str) -> Sequence[str]:
        with suppress(ActionRefused, OSError):
            found = [path.stem for path in JobFolder(self._jobs, job_id).logs.iterdir() if path.suffix == ".log"]
            return tuple(sorted((name for name in found if _REPLICA.fullmatch(name)), key=_rank))
        return ()

    async def read(self, job_id: str, replica: str, *, tail_bytes: int | None, follow: bool) -> AsyncIterator[bytes]:
        known = await self.replicas(job_id)
        if replica not in known:
            names = ", ".join(known) or "(none)"
            raise InvalidInput(f"job {job_id} has no output of a replica {replica[:80]!r}: expected one of {names}")
        folder = JobFolder(self._jobs, job_id)
        at = _beginning(folder.log(replica), tail_bytes)
        while True:
            # Checked first: one more read gets what is printed between the last read and the end.
            is_over = not follow or _has_ended(folder)
            while chunk := _chunk(folder.log(replica), at):
                at, content = chunk
                yield content
            if is_over:
                return
            await asyncio.sleep(_LOOK_EVERY_S)


def last_lines(folder: JobFolder, name: str, run: int, *, lines: int = 5, most_bytes: int = 2000) -> str:
    """Return the end of what a replica printed in one run; empty where it printed nothing."""
    alive = folder.alive(name, run)
    try:
        with folder.log(name).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - most_bytes, min(alive.log_at if alive else 0, size)))
            printed = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return "\n".join([line.rstrip() for line in printed if line.strip()][-lines:])


def _rank(name: str) -> tuple[int, int]:
    role, _, index = name.partition("-")
    return _ORDER.index(role), int(index or 0)


def _beginning(path: Path, tail_bytes: int | None) -> int:
    """Return the offset of the first line's beginning that is at most `tail_bytes` before the end."""
    if tail_bytes is None:
        return 0
    with path.open("rb") as file:
        size = file.seek(0, 2)
        at = max(0, size - tail_bytes)
        if at == 0:
            return 0
        file.seek(at - 1)
        before = file.read(min(tail_bytes + 1, _CHUNK_BYTES))
    newline = before.find(b"\n")
    return at + newline if newline >= 0 else at


def _chunk(path: Path, at: int) -> tuple[int, bytes] | None:
    """Return the next offset and the bytes up to it; None at the end of the file."""
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) < at:
                at = 0
            file.seek(at)
            content = file.read(_CHUNK_BYTES)
    except OSError:
        return None
    return (at + len(content), content) if content else None


def _has_ended(folder: JobFolder) -> bool:
    """Return whether nothing more will be printed: the job is stopped or has ended, and no replica runs."""
    record = folder.load()
    if record is not None and not record.ended and record.state != "stopping":
        return False
    with suppress(OSError):
        return not any(is_locked(home / "lock") for home in folder.replicas.iterdir())
    return True

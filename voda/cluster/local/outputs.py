"""What the replicas of local jobs print: files in the jobs' folders, read as they grow.

Rule: a file that got shorter was cut by its shim (see shim.py, Log): reading goes on from its beginning.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from voda.cluster.local.processes.folder import Folder
from voda.cluster.local.processes.process_table import is_locked
from voda.domain.errors import ActionRefused, InvalidInput

_CHUNK_BYTES: Final = 64 << 10
_LOOK_EVERY_S: Final = 0.1
_ORDER: Final = ("launcher", "master", "worker")
_REPLICA = re.compile(r"(launcher|(master|worker)-\d+)")


class LocalOutputs:
    """An adapter of the Outputs port."""

    def __init__(self, folder: Path) -> None:
        """Read the outputs in a folder of jobs' folders."""
        self._jobs = folder

    async def replicas(self, job_id: str) -> Sequence[str]:
        """See Outputs.replicas."""
        with suppress(ActionRefused, OSError):
            found = [path.stem for path in Folder(self._jobs, job_id).logs.iterdir() if path.suffix == ".log"]
            return tuple(sorted((name for name in found if _REPLICA.fullmatch(name)), key=_rank))
        return ()

    async def read(self, job_id: str, replica: str, *, tail_bytes: int | None, follow: bool) -> AsyncIterator[bytes]:
        """See Outputs.read."""
        known = await self.replicas(job_id)
        if replica not in known:
            names = ", ".join(known) or "(none)"
            raise InvalidInput(f"job {job_id} has no output of a replica {replica[:80]!r}: expected one of {names}")
        folder = Folder(self._jobs, job_id)
        at = _beginning(folder.log(replica), tail_bytes)
        while True:
            # Asked first: what is printed after the last look and before the end is read by one more look.
            is_over = not follow or _has_ended(folder)
            while chunk := _chunk(folder.log(replica), at):
                at, content = chunk
                yield content
            if is_over:
                return
            await asyncio.sleep(_LOOK_EVERY_S)


def _rank(name: str) -> tuple[int, int]:
    role, _, index = name.partition("-")
    return _ORDER.index(role), int(index or 0)


def _beginning(path: Path, tail_bytes: int | None) -> int:
    """Return where to begin: a line's beginning, at most `tail_bytes` before the end."""
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
    """Return what follows in the file and where it ends; None where nothing does."""
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) < at:
                at = 0
            file.seek(at)
            content = file.read(_CHUNK_BYTES)
    except OSError:
        return None
    return (at + len(content), content) if content else None


def _has_ended(folder: Folder) -> bool:
    """Say whether nothing more will be printed: the job is stopped or has ended, and no replica is at work."""
    record = folder.load()
    if record is not None and not record.ended and record.state != "stopping":
        return False
    with suppress(OSError):
        return not any(is_locked(home / "lock") for home in folder.replicas.iterdir())
    return True

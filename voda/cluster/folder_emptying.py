"""Deletes what is in the folders that were taken away, in steps with pauses.

Rule: one step at a time, in turn: neither a large folder nor one that a process goes on filling holds up another.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Final

from voda.cluster.job_folders import DeletedFolder, LocalJobFolders

_log = logging.getLogger(__name__)

_STEP: Final = 500
"""Entries deleted in one go; some milliseconds on a quick disk."""
_LONGEST_PAUSE_S: Final = 0.5
_ROUND_S: Final = 30.0


class FolderEmptying:
    """Empties folders.

    Args:
        folders: where they lie.
        round_s: for how long a round goes on; a shorter one is for tests.
    """

    def __init__(self, folders: LocalJobFolders, *, round_s: float = _ROUND_S) -> None:
        self._folders = folders
        self._round_s = round_s
        self._turn = asyncio.Lock()
        self._warned: set[str] = set()
        """Folders of which the server's log said that they cannot be emptied."""

    async def run(self, deleted: Iterable[DeletedFolder]) -> bool:
        """Empty the folders, a step of each in turn; return False where more is to be done than a round takes."""
        left, end = deque(deleted), _now() + self._round_s
        while left and _now() < end:
            if await self._step(left[0]):
                left.rotate(-1)
            else:
                left.popleft()
        for folder in left:
            self._say_that_it_stays(folder, "it is large, or something goes on writing into it")
        return not left

    async def _step(self, deleted: DeletedFolder) -> bool:
        """Return whether another step would help."""
        async with self._turn:
            began = _now()
            step = await asyncio.to_thread(partial(self._folders.empty, deleted, most=_STEP))
        if step.is_gone:
            return False
        if not step.removed:
            self._say_that_it_stays(deleted, step.problem)
            return False
        await asyncio.sleep(min(_now() - began, _LONGEST_PAUSE_S))
        return True

    def _say_that_it_stays(self, deleted: DeletedFolder, problem: str) -> None:
        if deleted.name not in self._warned:
            self._warned.add(deleted.name)
            where = deleted.place / deleted.name
            _log.warning("job_id=%s its deleted folder %s is not empty yet: %s", deleted.job_id, where, problem)


def _now() -> float:
    return asyncio.get_running_loop().time()

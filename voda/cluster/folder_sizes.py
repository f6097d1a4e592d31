"""Measures the folders of jobs in threads of its own, so that a large tree holds up no other read of the disk.

Rules: one measurement of a folder at a time, and who asks meanwhile gets the same one; one that nobody waits for any
more is not begun.
"""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

from voda.cluster.job_folders import LocalJobFolders
from voda.domain.errors import ServerBusy
from voda.untrusted_trees import TreeSize

_THREADS: Final = 2
_MEASURED: Final = 10_000_000
"""Entries of an ended job's folder that are looked at."""
_LOOKED_AT: Final = 100_000
"""Entries that are looked at while a user waits."""
_TIMEOUT_S: Final = 20.0
"""For how long somebody waits."""


class _SharedMeasurement:
    def __init__(self, future: Future[TreeSize]) -> None:
        self.future = future
        self.waiting = 0


class FolderSizes:
    """What the folders of jobs take.

    Args:
        folders: where they lie.
        timeout_s: for how long a user waits; a shorter one is for tests.
    """

    def __init__(self, folders: LocalJobFolders, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._folders = folders
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(_THREADS, "voda-trees")
        self._under_way: dict[tuple[str, int], _SharedMeasurement] = {}
        self._kept: dict[str, TreeSize] = {}
        """Of the folders of ended jobs, once measured: nobody writes there any more."""

    async def now(self, job_id: str) -> TreeSize:
        """Return what a folder takes at this moment.

        Raises:
            ServerBusy: it was not measured in time.
        """
        return await self._measured(job_id, _LOOKED_AT, self._timeout_s)

    async def of_ended(self, job_id: str, *, is_awaited: bool) -> TreeSize:
        """Return what the folder of an ended job takes, measured once; `is_awaited`: somebody waits for the answer.

        Raises:
            ServerBusy: it was not measured in time for who waits; the next call goes on with it.
        """
        if (tree := self._kept.get(job_id)) is None:
            tree = await self._measured(job_id, _MEASURED, self._timeout_s if is_awaited else None)
        return tree

    def forget(self, job_id: str) -> None:
        """Measure a folder anew the next time."""
        self._kept.pop(job_id, None)

    async def _measured(self, job_id: str, most: int, timeout_s: float | None) -> TreeSize:
        key = (job_id, most)
        if (one := self._under_way.get(key)) is None or one.future.done():
            one = self._under_way[key] = _SharedMeasurement(self._threads.submit(partial(self._measure, job_id, most)))
        one.waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                # Others wait for the same: it does not end with who asked first.
                return await asyncio.shield(asyncio.wrap_future(one.future))
        except TimeoutError as error:
            raise ServerBusy(f"job {job_id}: its folder was not measured within {timeout_s} s: try again") from error
        finally:
            one.waiting -= 1
            if not one.waiting:
                one.future.cancel()
            if one.future.done() and self._under_way.get(key) is one:
                del self._under_way[key]

    def _measure(self, job_id: str, most: int) -> TreeSize:
        tree = self._folders.measure(job_id, most=most)
        if most == _MEASURED:
            self._kept[job_id] = tree
        return tree

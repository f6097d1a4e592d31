"""The end on request with all jobs halted: each checkpoints, and resumes when voda is up again.

Rule: the plan stays as it is; the next start finds the jobs missing and starts them where the plan has them.
"""

import asyncio
import logging
from typing import Final

from voda.cluster.local.cluster import LocalCluster
from voda.domain.plan import HaltJob
from voda.reconcilers.watcher import Watcher

_log = logging.getLogger(__name__)

_LIMIT_S: Final = 90.0
"""A grace of 30 s, the kill after it, and some patience; whoever sets a longer grace is cut off."""


async def halt_all(cluster: LocalCluster, watcher: Watcher) -> None:
    """Halt every job of the cluster, and record what it tells until it holds nothing."""
    try:
        async with asyncio.timeout(_LIMIT_S):
            for job_id in (await cluster.observe()).workers:
                await cluster.apply(HaltJob(job_id=job_id))
            await watcher.record(cluster.take_notices())
            while (await cluster.observe()).workers:
                await watcher.record([await anext(cluster.watch())])
    except TimeoutError:
        left = sorted((await cluster.observe()).workers)
        _log.warning("still at work after %.0f s jobs=%s", _LIMIT_S, ",".join(left))
    await watcher.record(cluster.take_notices())

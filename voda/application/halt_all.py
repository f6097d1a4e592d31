"""Halts all jobs before the service ends: each checkpoints, and resumes when voda is up again.

Rules: the plan stays as it is; the next start finds the jobs missing and starts them where the plan has them. A job
that cannot be halted, or an event that cannot be written, keeps no other job from being halted.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from voda.cluster.local.cluster import LocalCluster
from voda.domain.errors import Fenced, VodaError
from voda.domain.plan import HaltJob
from voda.events.types import Observation
from voda.reconcilers.watcher import Watcher

_log = logging.getLogger(__name__)

_LIMIT_S: Final = 90.0
"""The grace of 30 s, the kill after it, and some more; a job with a longer grace is cut off."""


async def halt_all(pools: Sequence[tuple[LocalCluster, Watcher]]) -> None:
    """Halt every job of all pools at once, and record what the clusters report until no worker is left."""
    async with asyncio.TaskGroup() as group:
        for cluster, watcher in pools:
            group.create_task(_halt(cluster, watcher))


async def _halt(cluster: LocalCluster, watcher: Watcher) -> None:
    try:
        async with asyncio.timeout(_LIMIT_S):
            await _halt_jobs(cluster)
            await _record(watcher, cluster.take_notices())
            while await _to_halt(cluster):
                await _record(watcher, [await anext(cluster.watch())])
    except Fenced as error:
        _log.warning("jobs not halted: %s", error)
        return
    except TimeoutError:
        left = sorted(await _to_halt(cluster))
        _log.warning("jobs still run after %.0f s jobs=%s", _LIMIT_S, ",".join(left))
    await _record(watcher, cluster.take_notices())


async def _halt_jobs(cluster: LocalCluster) -> None:
    for job_id in await _to_halt(cluster):
        try:
            await cluster.apply(HaltJob(job_id=job_id))
        except VodaError as error:
            _log.warning("job not halted job_id=%s reason=%s", job_id, error)


async def _to_halt(cluster: LocalCluster) -> Sequence[str]:
    """Return the jobs that have workers and may begin again; the others go on, and the next start takes them over."""
    workers = (await cluster.observe()).workers
    specs = {job_id: cluster.jobs[job_id].state.run_spec() for job_id in workers if job_id in cluster.jobs}
    return [job_id for job_id in workers if (spec := specs.get(job_id)) is None or spec.policy.is_restartable]


async def _record(watcher: Watcher, notices: Sequence[Observation]) -> None:
    try:
        await watcher.record(notices)
    except VodaError as error:
        _log.warning("observation not recorded, the next start finds it: %s", error)

"""The end with all jobs halted: of all pools at once, whatever stands in the way of one of them."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.local_jobs import Ground, a_ground, an_mpi_job
from voda.application.halt_all import halt_all
from voda.clock import SystemClock
from voda.domain.errors import StoreNotWritable
from voda.events.envelope import Fact
from voda.events.types import WorkerExited
from voda.log.memory import MemoryStore
from voda.reconcilers.watcher import Watcher

GRACE_S = 2.0
STUBBORN = 'trap "" TERM; echo up; while :; do sleep 0.05; done'


class FullStore(MemoryStore):
    """A log whose disk is full."""

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        raise StoreNotWritable("the disk is full")


def _watcher(store: MemoryStore) -> Watcher:
    return Watcher(store=store, clock=SystemClock())


async def _start(ground: Ground, *job_ids: str) -> None:
    for job_id in job_ids:
        await ground.start(an_mpi_job(job_id, STUBBORN, grace_s=GRACE_S, pool=ground.pool))
    for job_id in job_ids:
        await ground.until_logged("up", job_id=job_id)
    ground.cluster.take_notices()


@pytest.mark.slow
async def test_end_when_there_are_two_pools_halts_both_at_once_and_records_it(tmp_path: Path) -> None:
    store = MemoryStore()
    async with a_ground(tmp_path / "one") as one, a_ground(tmp_path / "two") as two:
        await _start(one, "a")
        await _start(two, "b")
        began = time.perf_counter()
        await halt_all([(one.cluster, _watcher(store)), (two.cluster, _watcher(store))])
        # Each alone takes its grace.
        assert time.perf_counter() - began >= GRACE_S
        assert not (await one.cluster.observe()).workers
        assert not (await two.cluster.observe()).workers
    first, second = (event.recorded_at for event in await store.read(0, 9) if isinstance(event.data, WorkerExited))
    assert abs(second - first) < GRACE_S


@pytest.mark.slow
async def test_end_when_the_log_has_no_room_halts_every_job_all_the_same(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        await _start(ground, "a", "b")
        await halt_all([(ground.cluster, _watcher(FullStore()))])
        assert not (await ground.cluster.observe()).workers

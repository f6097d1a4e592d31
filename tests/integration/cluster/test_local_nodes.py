"""The node of a local cluster, as its GPUs change."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from tests.local_jobs import FakeNvml, Ground, a_ground, an_mpi_job, gpus
from tests.waiting import until
from voda.cluster.local import cluster
from voda.cluster.local.devices import GpuMonitor, GpuReading, find_gpus
from voda.domain.errors import ActionRefused
from voda.events.types import NodeChanged
from voda.process_table import open_process, start_of


@pytest.mark.slow
async def test_node_when_a_gpu_breaks_offers_one_less_and_does_not_hand_it_out(tmp_path: Path) -> None:
    nvml = FakeNvml(*gpus(2))
    devices = find_gpus(nvml.gpus)
    async with a_ground(tmp_path, devices=devices, settings={"health": GpuMonitor(nvml.gpus, devices)}) as ground:
        assert (await ground.cluster.observe()).nodes["n1"].gpus == 2
        nvml.change(0, problem="it fell off the bus")
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(ground.cluster.run())
            await until(lambda: any(isinstance(notice, NodeChanged) for notice in ground.notices()))
            watching.cancel()
        assert [notice.node.gpus for notice in ground.told if isinstance(notice, NodeChanged)] == [1]
        with pytest.raises(ActionRefused, match="needs 2 more GPUs on node n1, 1 free"):
            await ground.start(an_mpi_job("a", "true"), workers=2)
        await ground.start(an_mpi_job("a", "cat /etc/mpi/devices"), workers=1)
        await ground.until_logged("1\n")


async def test_node_when_others_use_a_gpu_tells_so(tmp_path: Path) -> None:
    nvml = FakeNvml(*gpus(2))
    devices = find_gpus(nvml.gpus)
    nvml.change(1, processes=3)
    async with a_ground(tmp_path, devices=devices, settings={"health": GpuMonitor(nvml.gpus, devices)}) as ground:
        node = (await ground.cluster.observe()).nodes["n1"]
        assert (node.gpus, node.foreign_gpus, node.usable_gpus) == (2, 1, 1)


async def test_cluster_when_the_driver_has_a_bad_moment_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Moody(FakeNvml):
        answers: ClassVar[list[Exception | None]] = [None, RuntimeError("Unknown Error"), None]

        def gpus(self) -> Sequence[GpuReading]:
            if self.answers and (error := self.answers.pop()) is not None:
                raise error
            return super().gpus()

    monkeypatch.setattr(cluster, "HEALTH_EVERY_S", 0.02)
    nvml = FakeNvml(*gpus(2))
    devices, moody = find_gpus(nvml.gpus), Moody(*gpus(2))
    settings = {"health": GpuMonitor(moody.gpus, devices)}
    async with a_ground(tmp_path, devices=devices, settings=settings) as ground, asyncio.TaskGroup() as group:
        watching = group.create_task(ground.cluster.run())
        await until(lambda: not moody.answers)
        moody.change(0, problem="it fell off the bus")
        await until(lambda: any(isinstance(notice, NodeChanged) for notice in ground.notices()))
        watching.cancel()


def test_process_when_its_start_differs_is_another_one() -> None:
    start = start_of(os.getpid())
    assert start is not None
    pidfd = open_process(os.getpid(), start)
    assert pidfd is not None
    os.close(pidfd)
    assert open_process(os.getpid(), start - 1) is None


async def test_two_pools_when_on_one_machine_share_only_the_folder(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as first:
        second = Ground(folder=first.folder, settings={}, pool="other")
        await second.open()
        try:
            await first.start(an_mpi_job("a", "sleep 100", grace_s=0.1))
            await second.start(an_mpi_job("b", "sleep 100", pool="other", grace_s=0.1))
            await second.cluster.close()
            await second.open()
            assert set((await first.cluster.observe()).workers) == {"a"}
            assert set((await second.cluster.observe()).workers) == {"b"}
        finally:
            await second.end()

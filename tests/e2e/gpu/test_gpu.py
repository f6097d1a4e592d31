"""`voda up` on a real GPU (`make e2e-gpu`): what it shows of it, whole and in parts by MPS, and what others do."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import PROGRAM
from tests.gpu_machine import Up, a_program, an_up
from tests.local_jobs import base_environment
from tests.needs import needs_module
from tests.waiting import until, until_it_is
from voda.cluster.local.devices import GpuReading

pytestmark = [pytest.mark.slow, needs_module("torch", "no torch: pip install torch")]

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits-torch"
WITHIN_S = 90.0
ALONE_MIB = 1_024
"""Of memory that CUDA itself takes at most."""


def a_job(name: str, work: str, *arguments: object, **options: Any) -> dict[str, Any]:
    argv = [sys.executable, str(PROGRAM), work, *map(str, arguments)]
    return a_program(name, argv, launcher="plain", **options)


async def written(file: Path) -> Mapping[str, Any]:
    """Wait for what a program writes, and return it."""
    await until(file.exists, within_s=WITHIN_S)
    return saw(file)


def saw(file: Path) -> Mapping[str, Any]:
    seen: Mapping[str, Any] = json.loads(file.read_text())
    return seen


async def until_phase(up: Up, job_id: str, phase: str) -> None:
    async def is_in_it() -> bool:
        job = await up.get(f"jobs/{job_id}")
        assert phase == "Failed" or job["phase"] != "Failed", job["message"]
        return bool(job["phase"] == phase)

    await until_it_is(is_in_it, within_s=WITHIN_S, what=f"{job_id} is {phase}")


async def the_node(up: Up) -> Mapping[str, Any]:
    """Return the node of the first GPU, once it is in the log."""

    async def is_there() -> bool:
        return bool((await up.get("nodes"))["items"])

    await until_it_is(is_there, within_s=WITHIN_S)
    node: Mapping[str, Any] = (await up.get("nodes"))["items"][0]
    return node


async def test_whole_gpu_is_shown_as_the_driver_has_it_and_its_job_sees_it(gpu: GpuReading, tmp_path: Path) -> None:
    async with an_up(tmp_path / "home") as up:
        node = await the_node(up)
        shown = node["devices"][gpu.index]
        assert (shown["memory_mib"], node["used_gpus"]) == (gpu.memory_mib, 0)
        assert gpu.memory_mib > 1_024
        submitted = await up.submit(a_job("look", "look", tmp_path / "seen", 1))
        assert (submitted["job"]["share"], submitted["job"]["gpus_per_replica"]) == (None, 1)
        await until_phase(up, "look", "Completed")
    seen = await written(tmp_path / "seen")
    assert seen["devices"] == 1
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in seen["told"]
    assert seen["has_gib"] == {"1": True}


async def test_torchrun_trains_over_nccl(gpu: GpuReading, tmp_path: Path) -> None:
    async with an_up(tmp_path / "home") as up:
        argv = ["torchrun", str(EXAMPLE / "train.py"), "--epochs", "3", "--passes", "20"]
        await up.submit(a_program("digits", argv, workers="1"))
        await until_phase(up, "digits", "Completed")
        assert (await up.get("jobs/digits"))["gpus_per_replica"] == 1
    assert gpu.uuid


async def test_shares_by_mps_are_kept_to_their_part_of_processors_and_memory(
    gpu: GpuReading, mps: Path, tmp_path: Path
) -> None:
    async with an_up(tmp_path / "home", gpu_sharing="auto", mps=mps) as up:
        await up.submit(a_job("whole", "look", tmp_path / "whole"))
        await until_phase(up, "whole", "Completed")
        submitted = await up.submit(
            a_job("quarter", "look", tmp_path / "quarter", 1, 3, 6, gpu_milli=250, gpu_memory="4Gi")
        )
        assert submitted["job"]["share"] == {"milli": 250, "memory_mib": 4_096}
        await until_phase(up, "quarter", "Completed")
        whole, quarter = await written(tmp_path / "whole"), await written(tmp_path / "quarter")
        assert quarter["devices"] == 1
        assert quarter["told"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
        assert quarter["told"]["CUDA_VISIBLE_DEVICES"] == gpu.uuid
        # In steps of two or so.
        assert quarter["processors"] == pytest.approx(whole["processors"] / 4, abs=4)
        assert quarter["has_gib"] == {"1": True, "3": True, "6": False}


async def test_gpu_that_shares_held_is_whole_again_once_they_end_though_the_server_of_mps_stays_on_it(
    gpu: GpuReading, mps: Path, tmp_path: Path
) -> None:
    async with an_up(tmp_path / "home", gpu_sharing="auto", mps=mps) as up:
        stop = tmp_path / "stop"
        for name, milli in (("one", 600), ("two", 400)):
            await up.submit(a_job(name, "hold", tmp_path / name, stop, gpu_milli=milli, gpu_memory="4Gi"))
        for name in ("one", "two"):
            await written(tmp_path / name)
        await up.until_workers(one=1, two=1)
        await up.submit(a_job("third", "look", tmp_path / "third", gpu_milli=100))
        await up.submit(a_job("whole", "look", tmp_path / "whole"))
        assert (await up.get("jobs/third"))["replicas"] == (await up.get("jobs/whole"))["replicas"] == 0
        assert (await the_node(up))["devices"][gpu.index]["free_milli"] == 0
        stop.touch()
        for name in ("one", "two", "third", "whole"):
            await until_phase(up, name, "Completed")
        assert (await written(tmp_path / "one"))["ended"]
        assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in (await written(tmp_path / "whole"))["told"]


async def test_share_that_is_killed_leaves_its_neighbour_at_work(gpu: GpuReading, mps: Path, tmp_path: Path) -> None:
    async with an_up(tmp_path / "home", gpu_sharing="auto", mps=mps) as up:
        stop = tmp_path / "stop"
        for name in ("killed", "goes-on"):
            await up.submit(a_job(name, "hold", tmp_path / name, stop, gpu_milli=500, gpu_memory="8Gi"))
        for name in ("killed", "goes-on"):
            await written(tmp_path / name)
        await up.cancel("killed")
        await up.submit(a_job("next", "look", tmp_path / "next", 1, gpu_milli=500, gpu_memory="8Gi"))
        await until_phase(up, "next", "Completed")
        stop.touch()
        await until_phase(up, "goes-on", "Completed")
        assert (await written(tmp_path / "goes-on"))["ended"]
    assert gpu.uuid


async def test_shares_go_on_under_mps_while_voda_is_away(gpu: GpuReading, mps: Path, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    async with an_up(tmp_path / "home", leaves_jobs=True, gpu_sharing="auto", mps=mps) as up:
        await up.submit(a_job("stays", "hold", tmp_path / "stays", stop, gpu_milli=700, gpu_memory="4Gi"))
        await written(tmp_path / "stays")
    async with an_up(tmp_path / "home", gpu_sharing="auto", mps=mps) as up:
        await up.until_workers(stays=1)
        assert (await the_node(up))["devices"][gpu.index]["free_milli"] == 300
        stop.touch()
        await until_phase(up, "stays", "Completed")


async def test_gpu_that_another_program_uses_is_given_to_no_job_until_it_ends(gpu: GpuReading, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    argv = [sys.executable, str(PROGRAM), "hold", str(tmp_path / "foreign"), str(stop)]
    foreign = await asyncio.create_subprocess_exec(*argv, env=base_environment())
    try:
        await written(tmp_path / "foreign")
        async with an_up(tmp_path / "home") as up:
            await up.submit(a_job("waits", "look", tmp_path / "waits"))

            async def is_foreign() -> bool:
                return bool((await the_node(up))["foreign_gpus"])

            await until_it_is(is_foreign, within_s=WITHIN_S)
            assert (await up.get("jobs/waits"))["replicas"] == 0
            stop.touch()
            await until_phase(up, "waits", "Completed")
    finally:
        if foreign.returncode is None:
            foreign.kill()
        await foreign.wait()
    assert gpu.uuid

"""Parts of GPUs on a local cluster: several jobs on one GPU, what their programs are told, and what a crash leaves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.local_jobs import FOREVER, FakeNvml, Ground, a_ground, a_torch_job, gpus
from voda.cluster.local.devices import Device, find_gpus
from voda.domain.errors import ActionRefused
from voda.domain.gpus import ContainerGpus, GpuRequest, Gpus
from voda.domain.reasons.pods import WorkerGone
from voda.events.types import ShareAssigned, ShareReleased

TELLS = "echo $CUDA_VISIBLE_DEVICES $VODA_GPU_MILLI $VODA_GPU_MEMORY_MIB"
TELLS_MPS = f"{TELLS} $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


def sharable(count: int = 2) -> tuple[Device, ...]:
    return find_gpus(FakeNvml(*gpus(count, memory_mib=16_000)).gpus)


def a_share_job(job_id: str, script: str, milli: int, memory_mib: int = 0, **fields: Any) -> Any:
    request = GpuRequest(milli=milli, memory_mib=memory_mib)
    return a_torch_job(job_id, script, share=request, gpus_per_replica=Gpus(0), max_replicas=1, grace_s=0.5, **fields)


async def held(ground: Ground) -> Mapping[str, tuple[int, ...]]:
    """Return job -> the GPUs of which it has a part, as the cluster shows it."""
    shares = (await ground.cluster.observe()).shares
    assert shares is not None
    return {job_id: pod.containers["share"].gpus for job_id, pod in shares["n1"].pods.items()}


async def test_jobs_with_parts_share_a_gpu_and_their_programs_know_which(tmp_path: Path) -> None:
    async with a_ground(tmp_path, devices=sharable()) as ground:
        await ground.start(a_share_job("a", f"{TELLS}; {FOREVER}", 250, 4_000))
        await ground.start(a_share_job("b", f"{TELLS}; {FOREVER}", 500))
        await ground.until_logged("GPU-00 250 4000\n", job_id="a", replica="worker-0")
        await ground.until_logged("GPU-00 500 0\n", job_id="b", replica="worker-0")
        assert await held(ground) == {"a": (0,), "b": (0,)}
        share = ContainerGpus(gpus=(0,), request=GpuRequest(milli=250, memory_mib=4_000))
        facts = [fact for fact in ground.notices() if isinstance(fact, ShareAssigned)]
        assert facts[0] == ShareAssigned(node="n1", pod_uid="a", pod="default/a", containers={"share": share})
        with pytest.raises(ActionRefused, match="needs 2 more GPUs on node n1, 1 free"):
            await ground.start(a_torch_job("whole", "true"), workers=2)


async def test_programs_when_mps_runs_are_kept_to_their_part(tmp_path: Path) -> None:
    async with a_ground(tmp_path, devices=sharable(), settings={"mps": lambda: "/run/mps"}) as ground:
        await ground.start(a_share_job("a", f"{TELLS_MPS}; {FOREVER}", 250, 4_000))
        await ground.until_logged("GPU-00 250 4000 /run/mps 25 0=4000M\n", job_id="a", replica="worker-0")


async def test_parts_of_gpus_that_workers_hold_whole_are_nobodys(tmp_path: Path) -> None:
    async with a_ground(tmp_path, devices=sharable()) as ground:
        await ground.start(a_torch_job("whole", FOREVER, grace_s=0.5))
        await ground.start(a_share_job("a", FOREVER, 600))
        assert await held(ground) == {"a": (1,)}
        with pytest.raises(ActionRefused, match="job b: needs 500 milli of one GPU of node n1, none has it"):
            await ground.start(a_share_job("b", FOREVER, 500))
        assert await held(ground) == {"a": (1,)}


async def test_part_beside_named_jobs_is_of_their_gpu_and_of_an_unused_one_where_none_has_any(tmp_path: Path) -> None:
    async with a_ground(tmp_path, devices=sharable()) as ground:
        for name, beside in (("a", ()), ("b", ("x",)), ("c", ("b", "y"))):
            await ground.start(a_share_job(name, FOREVER, 300), beside=beside)
        assert await held(ground) == {"a": (0,), "b": (1,), "c": (1,)}
        with pytest.raises(ActionRefused, match="job d: needs 500 milli of one GPU of node n1, none has it"):
            await ground.start(a_share_job("d", FOREVER, 500), beside=("b",))
        with pytest.raises(ActionRefused, match="job d: needs 500 milli of one GPU of node n1, none has it"):
            await ground.start(a_share_job("d", FOREVER, 500), beside=())
        await ground.start(a_share_job("d", FOREVER, 500), beside=None)


async def test_part_when_its_job_ends_or_is_halted_is_released_before_its_worker_exits(tmp_path: Path) -> None:
    async with a_ground(tmp_path, devices=sharable(1)) as ground:
        await ground.start(a_share_job("a", "true", 900))
        await ground.until_workers(job_id="a")
        gone = ShareReleased(node="n1", pod_uid="a", pod="default/a", reason=WorkerGone())
        await ground.until_told(gone)
        names = [type(fact).__name__ for fact in ground.notices()]
        assert names.index("ShareReleased") < names.index("WorkerExited")
        await ground.start(a_share_job("b", FOREVER, 900))
        await ground.halt("b")
        await ground.until_workers(job_id="b")
        assert await held(ground) == {}
        await ground.start(a_torch_job("whole", FOREVER, grace_s=0.5))
        assert await ground.workers("whole") == (0,)


async def test_parts_when_voda_crashed_are_still_held_by_the_jobs_that_run(tmp_path: Path) -> None:
    async with a_ground(tmp_path, devices=sharable()) as ground:
        await ground.start(a_share_job("a", f"{TELLS}; {FOREVER}", 600))
        await ground.until_logged("600", job_id="a", replica="worker-0")
        await ground.cluster.close()
        await ground.open()
        assert await held(ground) == {"a": (0,)}
        assert await ground.workers("a") == (0,)
        await ground.start(a_share_job("b", FOREVER, 600))
        assert await held(ground) == {"a": (0,), "b": (1,)}


async def test_part_on_cpu_slots_is_refused(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        with pytest.raises(ActionRefused, match="needs 250 milli of one GPU of node n1, none has it"):
            await ground.start(a_share_job("a", "true", 250))


async def test_part_of_a_gpu_that_is_not_there_any_more_is_of_none_that_there_is(tmp_path: Path) -> None:
    async with a_ground(tmp_path, devices=sharable()) as ground:
        await ground.start(a_share_job("a", f"{TELLS}; {FOREVER}", 600))
        await ground.until_logged("GPU-00 600", job_id="a", replica="worker-0")
        await ground.cluster.close()
        ground.devices = sharable()[1:]
        await ground.open()
        assert await held(ground) == {"a": (1,)}
        await ground.start(a_torch_job("whole", f"echo $CUDA_VISIBLE_DEVICES; {FOREVER}", grace_s=0.5))
        await ground.until_logged("1\n", job_id="whole", replica="worker-0")


async def test_job_without_gpus_runs_beside_one_that_has_them_all_and_sees_none(tmp_path: Path) -> None:
    async with a_ground(tmp_path, devices=sharable()) as ground:
        await ground.start(a_torch_job("all", FOREVER, gpus_per_replica=2))
        await ground.start(a_torch_job("none", f"echo sees [$CUDA_VISIBLE_DEVICES]; {FOREVER}", gpus_per_replica=0))
        await ground.until_logged("sees []", job_id="none", replica="worker-0")
        assert await ground.workers("all") == (0,)

"""Workers with sick GPUs leave once the grace is over, unless most of their pool is silent."""

import pytest
from msgspec.structs import replace

from tests.kube.acting import Stage
from tests.kube.memory_api import MemoryApi
from tests.virtual_time import virtually
from voda.cluster.kubernetes.convergence.sick_gpus import SickGpuWatch
from voda.domain.job import SickGpu
from voda.domain.settings import Settings


async def pods_after_a_look(*, is_mostly_silent: bool, sick_for_s: float) -> dict[str, str]:
    """Look at a job of two workers, one of which has had a sick GPU for a while; return the pods that stay."""
    stage = Stage()
    stage.add_node("n1", gpus=2)
    now = stage.clock.now()
    sick = {1: SickGpu("GPU-1", "Unhealthy", now - sick_for_s)}
    stage.add_job("a", workers=2)
    stage.jobs["a"] = replace(stage.jobs["a"], workers={0: "n1", 1: "n1"}, sick_gpus=sick)
    for index in (0, 1):
        stage.add_worker("a", index, node="n1", phase="Running")
    gpu = {"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-1", "health": "Unhealthy"}]}
    statuses = [{"name": "worker", "allocatedResourcesStatus": [gpu]}]
    stage.set_status("a-worker-1", phase="Running", containerStatuses=statuses)
    stage.watch()
    watch = SickGpuWatch(
        inventory=stage.inventory,
        api=MemoryApi(stage.server),
        clock=stage.clock,
        settings=lambda _pool: Settings(node_grace_s=60.0),
        is_mostly_silent=lambda _pool: is_mostly_silent,
        publish=lambda _job_id, fact: stage.told.append(fact),
    )
    await watch.look(stage.jobs.values())
    assert stage.told == [], "the log has it"
    return stage.pods()


@pytest.mark.parametrize(
    ("is_mostly_silent", "sick_for_s", "stays"), [(False, 61.0, False), (False, 59.0, True), (True, 9e3, True)]
)
def test_worker_with_a_sick_gpu_leaves_after_the_grace_unless_most_of_its_pool_is_silent(
    sick_for_s: float, *, is_mostly_silent: bool, stays: bool
) -> None:
    pods = virtually(pods_after_a_look(is_mostly_silent=is_mostly_silent, sick_for_s=sick_for_s))
    assert ("a-worker-1" in pods) == stays
    assert "a-worker-0" in pods

"""Jobs that share a GPU in a pool with virtual clusters, from fact to fact: a reclaim, its deadline, and a replay."""

import pytest

from tests.builders import a_node, a_spec
from tests.reasons import sentences
from tests.unit.controller.test_reclaims import Stage
from tests.unit.planner.virtual_clusters.pools import some_cells
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.events.types import (
    JobCompleted,
    JobSubmitted,
    NodeJoined,
    SettingsChanged,
    ShareAssigned,
    ShareReleased,
    VirtualClustersApplied,
    WorkerExited,
    WorkerStarted,
)
from voda.planner.eligibility import held_jobs
from voda.timetravel.verify import verify

CLUSTERS = ("vision", "speech")
REQUEST = GpuRequest(milli=250)
GPUS = (GpuDevice(memory_mib=16_000),) * 2


@pytest.fixture
async def stage() -> Stage:
    """A machine of two GPUs, one for each virtual cluster; `nb` of `speech` has vision's, which is idle."""
    stage = Stage()
    await stage.add(
        NodeJoined(node=a_node("n1", gpus=2, devices=GPUS)),
        SettingsChanged(pool="default", settings={"ratelimit_s": 0.0}),
        VirtualClustersApplied(
            pool="default", cells=some_cells({"vision": {"node.gpu": 1}, "speech": {"node.gpu": 1}})
        ),
    )
    await stage.controller.lead("me")
    await stage.submit("own", "speech", least=1, most=1)
    await stage.add(WorkerStarted(job_id="own", workers={0: "n1"}))
    await start_share(stage, "nb", priority=-1, gpu=1)
    return stage


async def start_share(stage: Stage, job_id: str, *, priority: int, gpu: int) -> None:
    spec = a_spec(job_id, virtual_cluster="speech", priority=priority, share=REQUEST, gpus_per_replica=Gpus(0))
    share = ContainerGpus(gpus=(gpu,), request=REQUEST)
    await stage.add(JobSubmitted(spec=spec))
    await stage.controller.step()
    await stage.add(
        ShareAssigned(node="n1", pod_uid=job_id, pod=f"default/{job_id}", containers={"share": share}),
        WorkerStarted(job_id=job_id, workers={0: "n1"}),
    )
    await stage.controller.step()


async def leave(stage: Stage, job_id: str) -> None:
    await stage.add(
        ShareReleased(node="n1", pod_uid=job_id), WorkerExited(job_id=job_id, workers=(0,), cause="stopped")
    )


def guaranteed(stage: Stage) -> set[str]:
    return {*stage.controller.live.cluster.plan("default").guaranteed}


async def test_share_on_an_idle_cell_leaves_it_for_a_guarantee_within_the_grace_and_comes_back(stage: Stage) -> None:
    assert (await stage.nodes("nb"), guaranteed(stage)) == (("n1",), {"own"})
    await stage.submit("theirs", "vision", least=1, most=1)
    assert (await stage.nodes("nb"), guaranteed(stage)) == ((), {"own", "theirs"})
    state = stage.controller.live.state("default")
    assert held_jobs(state, 1_119.0) == {}
    assert sentences(held_jobs(state, 1_120.0)) == {
        "nb": "preempted: 1 worker did not leave cells that a guarantee needs within 2m 00s"
    }
    await leave(stage, "nb")
    await stage.add(WorkerStarted(job_id="theirs", workers={0: "n1"}))
    await stage.step_at(1_200.0)
    assert await stage.nodes("nb") == ()
    await stage.add(JobCompleted(job_id="theirs"))
    await stage.step_at(1_201.0)
    assert await stage.nodes("nb") == ("n1",)
    assert (await verify(stage.store)).difference is None


async def test_gpu_that_an_ended_or_canceled_share_has_not_left_yet_counts_as_free_and_not_as_others(
    stage: Stage,
) -> None:
    await stage.add(JobCompleted(job_id="nb"))
    await stage.submit("theirs", "vision", least=1, most=1)
    assert guaranteed(stage) == {"own", "theirs"}
    await leave(stage, "nb")
    await stage.step_at(1_001.0)
    assert guaranteed(stage) == {"own", "theirs"}
    assert (await verify(stage.store)).difference is None

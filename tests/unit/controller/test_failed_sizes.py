"""What a resize did is remembered: a size at which the program failed right after it is avoided for a while."""

from collections.abc import Mapping

import pytest

from tests.builders import a_node, a_spec
from tests.unit.controller.test_controller import Stage
from voda.events.text.stalls import avoided_sizes_text
from voda.events.types import (
    JobChanged,
    JobProgressed,
    JobSubmitted,
    NodeJoined,
    SettingsChanged,
    WorkerExited,
    WorkerStarted,
)
from voda.timetravel.verify import verify


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_size_at_which_a_resize_failed_is_left_for_the_one_that_ran_and_avoided_for_an_hour(stage: Stage) -> None:
    await stage.begin(policy="elastic-fifo", ratelimit_s=0)
    await stage.add(SettingsChanged(pool="default", settings={"heeds_resize_cost": False}))
    await stage.add(JobSubmitted(spec=a_spec("a", max_replicas=4)))
    await stage.step_at(1100)
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    await stage.step_at(1200)
    await stage.add(NodeJoined(node=a_node("n2", gpus=2)))
    await stage.step_at(1201)
    assert stage.controller.live.cluster.plan("default").replicas == {"a": 4}
    await stage.add(WorkerStarted(job_id="a", workers={2: "n2", 3: "n2"}))
    await stage.step_at(1210)
    await stage.add(WorkerExited(job_id="a", workers=(0, 1, 2, 3), cause="failed", retry_at=1212.0))
    await stage.step_at(1211)
    await stage.step_at(1212)
    assert stage.controller.live.cluster.plan("default").replicas == {"a": 2}
    job = stage.controller.live.cluster.jobs("default")["a"]
    assert avoided_sizes_text(job, 1213.0) == (
        "its program failed right after a resize to 4, and had run with 2 workers: no plan gives it 4 for another"
        " 60 minutes, unless its request changes"
    )
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    await stage.add(NodeJoined(node=a_node("n3", gpus=1)))
    await stage.step_at(1300)
    assert stage.controller.live.cluster.plan("default").replicas == {"a": 3}
    await stage.add(NodeJoined(node=a_node("n4", gpus=1)))
    await stage.step_at(1211 + 3600)
    assert stage.controller.live.cluster.plan("default").replicas == {"a": 4}
    assert (await verify(stage.store)).difference is None


@pytest.mark.parametrize(
    ("resized_at", "report", "failed_at", "avoided"),
    [(1200, None, 1210, {4: 4810.0}), (1150, None, 1151, {}), (1200, None, 1270, {}), (1200, 4, 1210, {})],
)
async def test_size_is_avoided_only_where_another_one_ran_and_the_program_did_not_go_on(
    stage: Stage, resized_at: float, report: int | None, failed_at: float, avoided: Mapping[int, float]
) -> None:
    await stage.begin(policy="elastic-fifo", ratelimit_s=0)
    await stage.add(SettingsChanged(pool="default", settings={"heeds_resize_cost": False}))
    await stage.add(JobSubmitted(spec=a_spec("a", max_replicas=4)))
    await stage.step_at(1100)
    await stage.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    await stage.step_at(resized_at)
    await stage.add(NodeJoined(node=a_node("n2", gpus=2)))
    await stage.step_at(resized_at)
    await stage.add(WorkerStarted(job_id="a", workers={2: "n2", 3: "n2"}))
    if report is not None:
        await stage.add(JobProgressed(job_id="a", epochs_done=0.1, workers=report))
    await stage.step_at(failed_at)
    await stage.add(WorkerExited(job_id="a", workers=(0, 1, 2, 3), cause="failed"))
    await stage.step_at(failed_at)
    job = stage.controller.live.cluster.jobs("default")["a"]
    assert job.avoided_sizes == avoided
    await stage.add(JobChanged(job_id="a", min_replicas=2))
    await stage.step_at(failed_at + 1)
    assert stage.controller.live.cluster.jobs("default")["a"].avoided_sizes == {}

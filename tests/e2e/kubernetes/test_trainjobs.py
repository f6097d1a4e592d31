"""TrainJobs on the real Kubeflow Trainer: their JobSets are taken in, and resized by their Jobs."""

from pathlib import Path

from tests.e2e.kubernetes.service import voda
from tests.e2e.kubernetes.test_jobsets import has_pods, record_of
from tests.kube import client as api
from tests.kube.objects import a_trainjob
from tests.kube.peers.jobs_world import TrainJobsWorld
from voda.application.change_job import cancel
from voda.application.halt_job import halt, resume
from voda.auth.callers import Caller
from voda.events.types import WorkerExited

ANN = Caller(user="ann", role="admin")


async def test_trainjob_when_others_come_and_go_is_resized_by_its_job_alone(
    trainjobs_world: TrainJobsWorld, tmp_path: Path
) -> None:
    world = trainjobs_world
    await world.add_runtime("torch")
    await world.add_node("gpu-1", gpus=6)
    async with voda(world, tmp_path) as it:
        await world.submit(a_trainjob("a", world.namespace, 2, least=1, most=6))
        await it.until_runs("a", 6)
        first, before = await world.uids("a"), await world.job("a", "TrainJob")
        await world.submit(a_trainjob("b", world.namespace, 4, least=4, most=4))
        await it.until_runs("a", 2)
        await it.until_runs("b", 4)
        assert await world.uids("a") == {index: first[index] for index in (0, 1)}
        await world.end_all("b")
        await it.until_ended("b", "Completed")
        await it.until_runs("a", 6)
        now = await world.uids("a")
        assert {index: now[index] for index in (0, 1)} == {index: first[index] for index in (0, 1)}
        assert {index for fact in await it.facts(WorkerExited, it.id("a")) for index in fact.workers} == {2, 3, 4, 5}
        after = await world.job("a", "TrainJob")
        assert after["metadata"]["generation"] == before["metadata"]["generation"]
        assert any(said.startswith("started with") for said in await world.told("a", "Started"))


async def test_trainjob_that_was_born_running_is_suspended_once_and_preempted_and_resumed(
    trainjobs_world: TrainJobsWorld, tmp_path: Path
) -> None:
    world = trainjobs_world
    await world.add_runtime("torch")
    await world.add_node("gpu-1", gpus=4)
    await world.submit(a_trainjob("rigid", world.namespace, 4, least=4, most=4, suspend=False))
    await world.until_it_is(lambda: has_pods(world, "rigid", 4))
    async with voda(world, tmp_path) as it:
        await it.until_runs("rigid", 4)
        assert len(await world.told("rigid", "Suspended")) == 1
        await world.submit(a_trainjob("urgent", world.namespace, 3, least=3, most=3, priority=10))
        await it.until_runs("urgent", 3)
        assert (await world.job("rigid", "TrainJob"))["spec"]["suspend"] is True
        assert await world.pods_of("rigid") == []
        await world.end_all("urgent")
        await it.until_ended("urgent", "Completed")
        await it.until_runs("rigid", 4)
        await world.end_all("rigid")
        await it.until_ended("rigid", "Completed")


async def test_trainjob_when_halted_has_no_pods_and_when_canceled_is_deleted_as_a_whole(
    trainjobs_world: TrainJobsWorld, tmp_path: Path
) -> None:
    world = trainjobs_world
    await world.add_runtime("torch")
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(a_trainjob("a", world.namespace, 1, least=1, most=2))
        await it.until_runs("a", 2)
        await halt(it.service.backend.journal, record_of(it, "a"), ANN)
        await it.until_runs("a", 0)
        await resume(it.service.backend.journal, record_of(it, "a"), ANN)
        await it.until_runs("a", 2)
        await cancel(it.service.backend.journal, record_of(it, "a"), ANN)
        await it.until_ended("a", "Canceled")
        await world.until_gone("a")
        assert await world.client.find(api.TRAINJOBS, "a", world.namespace) is None


async def test_trainjob_of_several_replicated_jobs_is_refused_and_told_so_on_itself(
    trainjobs_world: TrainJobsWorld, tmp_path: Path
) -> None:
    world = trainjobs_world
    await world.add_runtime("several", "node", "evaluator")
    async with voda(world, tmp_path) as it:
        trainjob = await world.submit(a_trainjob("a", world.namespace, 1, runtime="several"))
        await world.until_it_is(lambda: world.told("a", "Invalid"))
        events = await world.client.list(api.EVENTS, world.namespace)
        (invalid,) = [each for each in events if each["reason"] == "Invalid"]
        assert invalid["involvedObject"]["uid"] == trainjob["metadata"]["uid"]
        assert invalid["involvedObject"]["kind"] == "TrainJob"
        assert "spec.replicatedJobs: expected one, got 2 (node, evaluator)" in invalid["message"]
        assert it.service.backend.journal.view.job_registry.live_named(world.namespace, "a") is None

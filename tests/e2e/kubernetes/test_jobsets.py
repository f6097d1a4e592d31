"""What is of JobSets and TrainJobs alone, on their real controllers; what they share with Jobs is in test_jobs.py."""

import json
from pathlib import Path

from tests.e2e.kubernetes.service import voda
from tests.e2e.kubernetes.test_jobs import ANN
from tests.e2e.kubernetes.test_jobs_submitted import submit
from tests.kube import client as api
from tests.kube.objects import a_jobset, a_trainjob
from tests.kube.peers.jobs_world import JobsWorld
from voda.application.change_job import cancel


async def test_jobset_that_its_failure_policy_restarts_gets_the_size_of_the_plan_again(
    jobsets_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobsets_world
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        policy = {"failurePolicy": {"maxRestarts": 1}}
        await world.submit(a_jobset("a", world.namespace, 2, least=2, most=4, spec=policy, job={"backoffLimit": 0}))
        await it.until_runs("a", 4)
        before = (await world.job("a-node-0"))["metadata"]["uid"]
        await world.end_worker("a", 3, 1)
        await world.until_it_is(lambda: is_made_anew(world, "a-node-0", before))
        await it.until_runs("a", 4)
        assert (await world.job("a", "JobSet"))["status"]["restarts"] == 1
        assert it.phase(it.id("a")) == "Running"
        await world.end_worker("a", 1, 3)
        await it.until_ended("a", "Failed")


async def test_jobset_that_is_submitted_to_voda_is_made_and_goes_when_it_is_canceled(
    jobsets_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobsets_world
    await world.add_node("gpu-1", gpus=3)
    async with voda(world, tmp_path) as it:
        manifest = a_jobset("a", world.namespace, 1, least=1, most=3, managed=False)
        (tmp_path / "a.json").write_text(json.dumps(manifest))
        await submit(it, str(tmp_path / "a.json"))
        await it.until_runs("a", 3)
        jobset = await world.job("a", "JobSet")
        assert jobset["metadata"]["labels"]["voda.dev/managed"] == "true"
        await cancel(it.service.backend.journal, it.record("a"), ANN)
        await it.until_ended("a", "Canceled")
        await world.until_gone("a")
        assert await world.client.find(api.JOBSETS, "a", world.namespace) is None


async def test_jobset_of_several_replicated_jobs_is_refused_and_told_so(
    jobsets_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobsets_world
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        several = a_jobset("a", world.namespace, 1)
        several["spec"]["replicatedJobs"].append({**several["spec"]["replicatedJobs"][0], "name": "driver"})
        await world.submit(several)
        twice = a_jobset("b", world.namespace, 1)
        twice["spec"]["replicatedJobs"][0]["replicas"] = 2
        await world.submit(twice)
        await world.until_it_is(lambda: world.told("a", "Invalid"))
        await world.until_it_is(lambda: world.told("b", "Invalid"))
        (of_a,), (of_b,) = await world.told("a", "Invalid"), await world.told("b", "Invalid")
        assert "spec.replicatedJobs: expected one, got 2 (node, driver): voda cannot tell which of them" in of_a
        assert "spec.replicatedJobs[0].replicas: expected 1, got 2" in of_b
        assert it.service.backend.journal.view.job_registry.live_named(world.namespace, "a") is None


async def test_job_of_a_jobset_that_carries_the_label_itself_is_left_alone_and_told_so(
    jobsets_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobsets_world
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path):
        labelled = a_jobset("a", world.namespace, 1, managed=False, suspend=False)
        labelled["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"labels": {"voda.dev/managed": "true"}}
        await world.submit(labelled)
        await world.until_it_is(lambda: world.told("a-node-0", "NotManaged"))
        (said,) = await world.told("a-node-0", "NotManaged")
        assert "it belongs to the JobSet a, which resumes what voda suspends: put the label" in said


async def test_trainjob_of_several_replicated_jobs_is_refused_and_told_so_on_itself(
    jobsets_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobsets_world
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


async def is_made_anew(world: JobsWorld, name: str, before: str) -> bool:
    found = await world.client.find(api.JOBS, name, world.namespace)
    return found is not None and found["metadata"]["uid"] != before

"""JobSets on the real JobSet controller: taken in, resized through their Job, preempted, restarted, ended, refused."""

import json
from pathlib import Path

from tests.e2e.kubernetes.service import Voda, voda
from tests.e2e.kubernetes.test_jobs_submitted import submit
from tests.kube import client as api
from tests.kube.objects import a_jobset, a_node
from tests.kube.peers.jobs_world import JobSetsWorld
from voda.application.change_job import cancel
from voda.application.halt_job import halt, resume
from voda.auth.callers import Caller
from voda.events.types import WorkerExited
from voda.projections.job_record import JobRecord

ANN = Caller(user="ann", role="admin")


async def test_jobset_with_the_label_is_taken_in_and_its_pods_go_where_the_plan_says(
    jobsets_world: JobSetsWorld, tmp_path: Path
) -> None:
    world = jobsets_world
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 1))
    async with voda(world, tmp_path) as it:
        await world.submit(a_jobset("a", world.namespace, 1, least=1, most=3))
        await it.until_runs("a", 3)
        running = await world.running("a")
        assert [running[index]["spec"]["nodeName"] for index in sorted(running)] == list(it.nodes(it.id("a")))
        for pod in running.values():
            assert pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == pod["spec"]["nodeName"]
            assert pod["metadata"]["annotations"]["voda.dev/job-id"] == it.id("a")


async def test_jobset_that_was_born_running_is_suspended_once(jobsets_world: JobSetsWorld, tmp_path: Path) -> None:
    world = jobsets_world
    await world.add_node("gpu-1", gpus=3)
    await world.submit(a_jobset("a", world.namespace, 2, least=1, most=3, suspend=False))
    await world.until_it_is(lambda: has_pods(world, "a", 2))
    async with voda(world, tmp_path) as it:
        await it.until_runs("a", 3)
        assert len(await world.told("a", "Suspended")) == 1


async def test_jobset_when_others_come_and_go_is_resized_by_its_job_alone(
    jobsets_world: JobSetsWorld, tmp_path: Path
) -> None:
    world = jobsets_world
    await world.add_node("gpu-1", gpus=6)
    async with voda(world, tmp_path) as it:
        await world.submit(a_jobset("a", world.namespace, 2, least=1, most=6))
        await it.until_runs("a", 6)
        first, before = await world.uids("a"), await world.job("a", "JobSet")
        await world.submit(a_jobset("b", world.namespace, 4, least=4, most=4))
        await it.until_runs("a", 2)
        await it.until_runs("b", 4)
        assert await world.uids("a") == {index: first[index] for index in (0, 1)}
        await world.end_all("b")
        await it.until_ended("b", "Completed")
        await it.until_runs("a", 6)
        now = await world.uids("a")
        assert {index: now[index] for index in (0, 1)} == {index: first[index] for index in (0, 1)}
        exits = {index for fact in await it.facts(WorkerExited, it.id("a")) for index in fact.workers}
        assert exits == {2, 3, 4, 5}
        job, jobset = await world.job("a-node-0"), await world.job("a", "JobSet")
        assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (6, 6)
        assert jobset["metadata"]["generation"] == before["metadata"]["generation"]
        assert jobset["status"]["restarts"] == 0


async def test_jobset_of_less_priority_is_preempted_and_resumes(jobsets_world: JobSetsWorld, tmp_path: Path) -> None:
    world = jobsets_world
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(a_jobset("rigid", world.namespace, 4, least=4, most=4))
        await it.until_runs("rigid", 4)
        await world.submit(a_jobset("urgent", world.namespace, 3, least=3, most=3, priority=10))
        await it.until_runs("urgent", 3)
        assert it.phase(it.id("rigid")) == "Waiting"
        assert (await world.job("rigid", "JobSet"))["spec"]["suspend"] is True
        assert await world.pods_of("rigid") == []
        await world.end_all("urgent")
        await it.until_ended("urgent", "Completed")
        await it.until_runs("rigid", 4)
        await world.end_all("rigid")
        await it.until_ended("rigid", "Completed")


async def test_jobset_that_its_failure_policy_restarts_gets_the_size_of_the_plan_again(
    jobsets_world: JobSetsWorld, tmp_path: Path
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
    jobsets_world: JobSetsWorld, tmp_path: Path
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
        await cancel(it.service.backend.journal, record_of(it, "a"), ANN)
        await it.until_ended("a", "Canceled")
        await world.until_gone("a")
        assert await world.client.find(api.JOBSETS, "a", world.namespace) is None


async def test_halted_jobset_has_no_pods_until_it_is_resumed_and_goes_with_its_object(
    jobsets_world: JobSetsWorld, tmp_path: Path
) -> None:
    world = jobsets_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(a_jobset("a", world.namespace, 1, least=1, most=2))
        await it.until_runs("a", 2)
        await halt(it.service.backend.journal, record_of(it, "a"), ANN, reason="maintenance")
        await it.until_runs("a", 0)
        await world.until_gone("a")
        await resume(it.service.backend.journal, record_of(it, "a"), ANN)
        await it.until_runs("a", 2)
        await world.client.delete(api.JOBSETS, "a", world.namespace)
        await it.until_ended("a", "Canceled")


async def test_jobset_whose_job_is_resized_by_hand_is_set_back_to_the_plan(
    jobsets_world: JobSetsWorld, tmp_path: Path
) -> None:
    world = jobsets_world
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(a_jobset("a", world.namespace, 2, least=1, most=4))
        await it.until_runs("a", 4)
        size = {"spec": {"parallelism": 2, "completions": 2}}
        await world.client.patch(api.JOBS, (world.namespace, "a-node-0"), size)
        await world.until_it_is(lambda: has_size(world, "a-node-0", 4))
        await it.until_runs("a", 4)


async def test_jobset_of_several_replicated_jobs_is_refused_and_told_so(
    jobsets_world: JobSetsWorld, tmp_path: Path
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
    jobsets_world: JobSetsWorld, tmp_path: Path
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


def record_of(it: Voda, name: str) -> JobRecord:
    record = it.service.view.job_registry.job(it.id(name))
    assert record is not None
    return record


async def has_pods(world: JobSetsWorld, name: str, count: int) -> bool:
    return len(await world.pods_of(name)) == count


async def has_size(world: JobSetsWorld, name: str, replicas: int) -> bool:
    spec = (await world.job(name))["spec"]
    return bool((spec["parallelism"], spec["completions"]) == (replicas, replicas))


async def is_made_anew(world: JobSetsWorld, name: str, before: str) -> bool:
    found = await world.client.find(api.JOBS, name, world.namespace)
    return found is not None and found["metadata"]["uid"] != before

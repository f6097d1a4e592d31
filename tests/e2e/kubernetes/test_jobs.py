"""Jobs, JobSets and TrainJobs on their real controllers: taken in, resized, moved, preempted, halted, ended, deleted.

Rule: what holds of several kinds is one test, with the kind as its parameter.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.e2e.kubernetes.service import Voda, voda
from tests.e2e.kubernetes.user_kinds import JOB, JOBSET, TRAINJOB, UserKind, kind_world
from tests.kube import client as api
from tests.kube.assets import IS_OLD
from tests.kube.objects import a_node, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld, index_of
from voda.application.change_job import cancel
from voda.application.halt_job import halt, resume
from voda.auth.callers import Caller
from voda.cluster.kubernetes.kinds.kubectl_manifest import kubectl_manifests
from voda.cluster.kubernetes.well_known import JOB_ID
from voda.domain.reasons.requests import ObjectGone
from voda.events.types import ActionFailed, JobCancelRequested, WorkerExited, WorkerRefused
from voda.manifests.parse import parse
from voda.programs.program_manifest import ProgramJob, program_manifest

__all__ = ["kind_world"]
ANN = Caller(user="ann", role="admin")
INDEX_0_ENDS = {"rules": [{"succeededIndexes": "0"}]}
ALL = pytest.mark.parametrize("kind", [JOB, JOBSET, TRAINJOB], ids=str)
NOT_TRAINJOBS = pytest.mark.parametrize("kind", [JOB, JOBSET], ids=str)


@NOT_TRAINJOBS
async def test_object_with_the_label_is_taken_in_and_its_pods_go_where_the_plan_says(
    kind: UserKind, kind_world: JobsWorld, tmp_path: Path
) -> None:
    world = kind_world
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 1))
    async with voda(world, tmp_path) as it:
        await world.submit(kind.make("a", world.namespace, 1, least=1, most=3))
        await it.until_runs("a", 3)
        running = await world.running("a")
        assert [running[index]["spec"]["nodeName"] for index in sorted(running)] == list(it.nodes(it.id("a")))
        for pod in running.values():
            assert "schedulingGates" not in pod["spec"]
            assert pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == pod["spec"]["nodeName"]
            assert pod["spec"].get("schedulerName") == "default-scheduler"
            assert pod["metadata"]["annotations"]["voda.dev/job-id"] == it.id("a")
        assert await world.told("a", "Suspended") == []


async def test_program_that_was_printed_for_kubectl_is_taken_in_with_all_that_its_replicas_need(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=3)
    program = ProgramJob(name="a", words=("torchrun", "train.py"), launcher="torchrun", most=3, image="train:1")
    spec = parse(program_manifest(program)).spec
    async with voda(world, tmp_path) as it:
        await world.submit(kubectl_manifests(replace(spec, namespace=world.namespace))[-1])
        await it.until_runs("a", 3)
        job, service = await world.job("a"), await world.client.get(api.SERVICES, "a", world.namespace)
        assert job["spec"]["successPolicy"] == INDEX_0_ENDS
        assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": "a"}
        for pod in (await world.running("a")).values():
            told = {name for name in pod["metadata"]["annotations"] if name.startswith("voda.dev/env.")}
            asked = [each for each in pod["spec"]["containers"][0]["env"] if "valueFrom" in each]
            paths = {each["valueFrom"]["fieldRef"]["fieldPath"] for each in asked}
            assert {f"metadata.annotations['{name}']" for name in told} == {
                path for path in paths if "voda.dev" in path
            }
            assert pod["metadata"]["annotations"]["voda.dev/env.PET_NNODES"] == "3"
        assert await world.told("a", "Suspended") == []


async def test_job_that_was_born_running_is_suspended_once_or_left_running_where_that_would_end_it(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=3)
    born = await world.submit(an_indexed_job("a", world.namespace, 2, least=1, most=3, suspend=False))
    await world.until_it_is(lambda: has_started(world, "a"))
    async with voda(world, tmp_path) as it:
        if IS_OLD:
            await world.until_it_is(lambda: world.told("a", "Invalid"))
            (said,) = await world.told("a", "Invalid")
            assert "create it with suspend: true" in said
            job = await world.job("a")
            assert (job["metadata"]["uid"], job["spec"]["suspend"]) == (born["metadata"]["uid"], False)
            assert len(await world.pods_of("a")) == 2
            assert await world.told("a", "Suspended") == []
            assert it.service.backend.journal.view.job_registry.live_named(world.namespace, "a") is None
        else:
            await it.until_runs("a", 3)
            assert len(await world.told("a", "Suspended")) == 1
            assert (await world.job("a"))["status"].get("failed", 0) == 0


async def test_job_that_was_resumed_by_hand_before_it_was_ready_is_suspended_again_where_that_does_not_end_it(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2))
        await world.until_it_is(lambda: is_noted(world, "a"))
    resumed = {"metadata": {"annotations": {"voda.dev/job-id": None}}, "spec": {"suspend": False}}
    await world.client.patch(api.JOBS, (world.namespace, "a"), resumed)
    await world.until_it_is(lambda: has_started(world, "a"))
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        if IS_OLD:
            await world.until_it_is(lambda: it.facts(ActionFailed, it.id("a")))
            assert "older than 1.36" in (await it.facts(ActionFailed, it.id("a")))[0].error
            assert (await world.job("a"))["spec"]["suspend"] is False
        else:
            await it.until_runs("a", 2)


@pytest.mark.parametrize("kind", [JOBSET, TRAINJOB], ids=str)
async def test_object_that_was_born_running_is_suspended_once(
    kind: UserKind, kind_world: JobsWorld, tmp_path: Path
) -> None:
    world = kind_world
    await world.add_node("gpu-1", gpus=3)
    await world.submit(kind.make("a", world.namespace, 2, least=1, most=3, suspend=False))
    await world.until_it_is(lambda: has_pods(world, "a", 2))
    async with voda(world, tmp_path) as it:
        await it.until_runs("a", 3)
        assert len(await world.told("a", "Suspended")) == 1


@ALL
async def test_object_when_others_come_and_go_loses_and_gets_the_highest_indices_of_its_job_alone(
    kind: UserKind, kind_world: JobsWorld, tmp_path: Path
) -> None:
    world = kind_world
    await world.add_node("gpu-1", gpus=6)
    async with voda(world, tmp_path) as it:
        await world.submit(kind.make("a", world.namespace, 2, least=1, most=6))
        await it.until_runs("a", 6)
        first, before = await world.uids("a"), await world.job("a", kind.name)
        await world.submit(kind.make("b", world.namespace, 4, least=4, most=4))
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
        job, after = await world.job(kind.job_of("a")), await world.job("a", kind.name)
        assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (6, 6)
        assert job["status"].get("failed", 0) == after["status"].get("restarts", 0) == 0
        assert kind is JOB or after["metadata"]["generation"] == before["metadata"]["generation"]
        assert any(said.startswith("started with") for said in await world.told("a", "Started"))


async def test_job_when_its_node_goes_to_another_pool_moves_what_is_there(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2), a_node("gpu-3", 2))
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 4, least=4, most=4))
        await it.until_runs("a", 4)
        before, nodes = await world.uids("a"), it.nodes(it.id("a"))
        left = nodes[3]
        await world.give_to_pool(left, "a100")
        await it.until(lambda: is_off(it, "a", left))
        await it.until_runs("a", 4)
        now = await world.uids("a")
        assert {index for index, node in enumerate(nodes) if node != left} == {
            index for index in before if before[index] == now[index]
        }
        assert {fact.cause for fact in await it.facts(WorkerExited, it.id("a"))} == {"migrated"}
        assert (await world.job("a"))["status"].get("failed", 0) == 0
        await world.end_all("a")
        await it.until_ended("a", "Completed")


@ALL
async def test_object_of_less_priority_is_preempted_and_resumes(
    kind: UserKind, kind_world: JobsWorld, tmp_path: Path
) -> None:
    world = kind_world
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(kind.make("rigid", world.namespace, 4, least=4, most=4))
        await it.until_runs("rigid", 4)
        await world.submit(kind.make("urgent", world.namespace, 3, least=3, most=3, priority=10))
        await it.until_runs("urgent", 3)
        assert it.phase(it.id("rigid")) == "Waiting"
        assert (await world.job("rigid", kind.name))["spec"]["suspend"] is True
        assert await world.pods_of("rigid") == []
        await world.end_all("urgent")
        await it.until_ended("urgent", "Completed")
        await it.until_runs("rigid", 4)
        await world.end_all("rigid")
        await it.until_ended("rigid", "Completed")
        assert (await world.job(kind.job_of("rigid")))["status"].get("failed", 0) == 0


@ALL
async def test_halted_object_has_no_pods_until_it_is_resumed_and_is_deleted_when_canceled(
    kind: UserKind, kind_world: JobsWorld, tmp_path: Path
) -> None:
    world = kind_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(kind.make("a", world.namespace, 1, least=1, most=2))
        await it.until_runs("a", 2)
        await halt(it.service.backend.journal, it.record("a"), ANN, reason="maintenance")
        await it.until_runs("a", 0)
        await world.until_gone("a")
        await world.submit(kind.make("b", world.namespace, 1, least=1, most=1))
        await it.until_runs("b", 1)
        assert await world.pods_of("a") == []
        await resume(it.service.backend.journal, it.record("a"), ANN)
        await it.until_runs("a", 1)
        await cancel(it.service.backend.journal, it.record("a"), ANN)
        await it.until_ended("a", "Canceled")
        await world.until_gone("a")
        assert await world.client.find(kind.resource, "a", world.namespace) is None


async def test_job_without_a_success_policy_completes_when_all_indices_have(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=3)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 3, least=1, most=3))
        await it.until_runs("a", 3)
        await world.end_worker("a", 0)
        await it.until_lost("a", 0)
        await world.end_worker("a", 2)
        await it.until_lost("a", 2)
        assert it.phase(it.id("a")) == "Running"
        assert [index_of(pod) for pod in await world.pods_of("a") if pod["status"]["phase"] == "Running"] == [1]
        await world.end_worker("a", 1)
        await it.until_ended("a", "Completed")


async def test_job_with_a_success_policy_completes_with_index_0(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=3)
    async with voda(world, tmp_path) as it:
        policy = {"successPolicy": INDEX_0_ENDS}
        await world.submit(an_indexed_job("a", world.namespace, 3, least=1, most=3, spec=policy))
        await it.until_runs("a", 3)
        await world.end_worker("a", 0)
        await it.until_ended("a", "Completed")
        await world.submit(an_indexed_job("b", world.namespace, 3, least=3, most=3))
        await it.until_runs("b", 3)
        assert await world.running("a") == {}


@NOT_TRAINJOBS
async def test_object_when_deleted_is_canceled_and_its_name_is_free(
    kind: UserKind, kind_world: JobsWorld, tmp_path: Path
) -> None:
    world = kind_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(kind.make("a", world.namespace, 2, least=1, most=2))
        await it.until_runs("a", 2)
        await world.client.delete(kind.resource, "a", world.namespace)
        await it.until_ended("a", "Canceled")
        [asked] = await it.facts(JobCancelRequested, it.id("a"))
        assert asked.reason == ObjectGone(object=str(kind))
        await world.submit(kind.make("a", world.namespace, 2, least=1, most=2))
        await it.until_runs_as("a", f"{it.id('a')}-2", 2)


@pytest.mark.parametrize(("kind", "by_hand"), [(JOB, 6), (JOB, 2), (JOBSET, 2)], ids=str)
async def test_object_whose_job_is_resized_by_hand_is_set_back_to_the_plan(
    kind: UserKind, by_hand: int, kind_world: JobsWorld, tmp_path: Path
) -> None:
    world, name = kind_world, kind.job_of("a")
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(kind.make("a", world.namespace, 2, least=1, most=4))
        await it.until_runs("a", 4)
        size = {"spec": {"parallelism": by_hand, "completions": by_hand}}
        await world.client.patch(api.JOBS, (world.namespace, name), size)
        await world.until_it_is(lambda: has_size(world, name, 4))
        await it.until_runs("a", 4)


async def test_job_when_suspended_by_hand_is_resumed(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 2, least=1, most=2))
        await it.until_runs("a", 2)
        before = await world.uids("a")
        await world.client.patch(api.JOBS, (world.namespace, "a"), {"spec": {"suspend": True}})
        await world.until_it_is(lambda: has_others(world, "a", before))
        await it.until_runs("a", 2)


async def is_off(it: Voda, name: str, node: str) -> bool:
    return node not in it.nodes(it.id(name))


async def has_pods(world: JobsWorld, name: str, count: int) -> bool:
    return len(await world.pods_of(name)) == count


async def has_size(world: JobsWorld, name: str, replicas: int) -> bool:
    spec = (await world.job(name))["spec"]
    return bool((spec["parallelism"], spec["completions"]) == (replicas, replicas))


async def has_others(world: JobsWorld, name: str, before: dict[int, str]) -> bool:
    return not {*(await world.uids(name)).values()} & {*before.values()}


async def is_noted(world: JobsWorld, name: str) -> bool:
    return "voda.dev/job-id" in (await world.job(name))["metadata"].get("annotations", {})


async def has_started(world: JobsWorld, name: str) -> bool:
    """Say whether a Job has all its first pods, and its template is fixed."""
    return bool((await world.job(name)).get("status", {}).get("startTime")) and len(await world.pods_of(name)) == 2


@pytest.mark.skipif(IS_OLD, reason="1.35 lets nobody change the resources of a suspended Job")
@pytest.mark.parametrize("is_ready", [False, True])
async def test_suspended_job_whose_pods_ask_for_other_gpus_and_nodes_is_planned_by_what_they_ask_now(
    jobs_world: JobsWorld, tmp_path: Path, is_ready: bool
) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 8), a_node("gpu-2", 8, labels={"disk": "fast"}))
    async with voda(world, tmp_path) as it:
        for name in ("x", "y"):
            await world.submit(an_indexed_job(name, world.namespace, 8, gpus=1, least=8, most=8))
            await it.until_runs(name, 8)
        await world.submit(an_indexed_job("a", world.namespace, 2, gpus=1, least=2, most=4))
        await it.until(lambda: _is_known(it, "a"))

        async def is_made_ready() -> bool:
            return JOB_ID in (await world.job("a"))["metadata"]["annotations"]

        if is_ready:
            await it.until(is_made_ready)
        [container] = (await world.job("a"))["spec"]["template"]["spec"]["containers"]
        amounts = {"nvidia.com/gpu": "4", "cpu": "1"}
        template = {
            "containers": [{"name": container["name"], "resources": {"limits": amounts, "requests": amounts}}],
            "nodeSelector": {"disk": "fast"},
        }
        # What its annotations say, and voda refuses, vetoes nothing.
        change = {"metadata": {"annotations": {"voda.dev/epochs": "x"}}, "spec": {"template": {"spec": template}}}
        await world.client.patch(api.JOBS, (world.namespace, "a"), change, kind=api.STRATEGIC)

        async def is_taken_in() -> bool:
            job = it.job(it.id("a"))
            return job is not None and job.spec.gpus_per_replica == 4

        await it.until(is_taken_in)
        await world.until_it_is(lambda: _is_told(world, "a", "gpus_per_replica = 4"))
        for name in ("x", "y"):
            await world.end_all(name)
        await it.until_runs("a", 2)
        assert it.nodes(it.id("a")) == ["gpu-2", "gpu-2"]
        assert not await it.facts(WorkerRefused, it.id("a"))


@pytest.mark.skipif(IS_OLD, reason="1.35 lets nobody change the resources of a suspended Job")
async def test_pods_that_ask_for_more_gpus_than_plans_count_get_no_node(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", 8)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("x", world.namespace, 8, gpus=1, least=8, most=8))
        await it.until_runs("x", 8)
        await world.submit(an_indexed_job("a", world.namespace, 1, gpus=1, least=1, most=1))
        await it.until(lambda: _is_known(it, "a"))
        [container] = (await world.job("a"))["spec"]["template"]["spec"]["containers"]
        # voda cannot read it, and the server takes it.
        changed = {"name": container["name"], "resources": {"limits": {"nvidia.com/gpu": "2000"}}}
        change = {"spec": {"template": {"spec": {"containers": [changed]}}}}
        await world.client.patch(api.JOBS, (world.namespace, "a"), change, kind=api.STRATEGIC)
        await world.until_it_is(lambda: _is_told(world, "a", "the changed templates are not taken over"))
        await world.end_all("x")

        async def is_told_why() -> bool:
            failures = await it.facts(ActionFailed, it.id("a"))
            return any("its pods ask for 2000 GPUs each now, and plans count 1" in fact.error for fact in failures)

        await it.until(is_told_why)
        for pod in await world.pods_of("a"):
            assert pod["spec"].get("schedulingGates")


async def _is_known(it: Voda, name: str) -> bool:
    return it.job(it.id(name)) is not None


async def _is_told(world: JobsWorld, name: str, text: str) -> bool:
    return any(text in said for said in await world.told(name))

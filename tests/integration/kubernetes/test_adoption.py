"""Claims about jobs and their objects on a real API server: each has the other, once, whatever dies in between."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tests.kube import client
from tests.kube.client import Object
from tests.kube.objects import a_pytorchjob, an_mpijob
from tests.kube.registry import Died, Mortal, Registry, a_registry
from tests.kube.world import World
from tests.reasons import said
from voda.domain.cells import CellsSpec, VirtualClusterSpec
from voda.domain.errors import ClusterUnavailable
from voda.domain.job import JobSpec, Phase
from voda.domain.reasons.nodes import Said
from voda.events.types import (
    JobCanceled,
    JobCancelRequested,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobRegistered,
    JobSubmitted,
    PlanAdopted,
    VirtualClustersApplied,
)
from voda.log.memory import MemoryStore

POOL = "v100"


def a_job(world: World, name: str = "digits", **changes: Any) -> Object:
    """Return an MPIJob of one to four workers."""
    return an_mpijob(name, world.namespace, **{"least": 1, "most": 4, "pool": POOL, **changes})


def with_members(*members: str) -> VirtualClustersApplied:
    """Return that all of the pool is the virtual cluster vision of these members."""
    cells = CellsSpec(virtual_clusters={"vision": VirtualClusterSpec(members=members)})
    return VirtualClustersApplied(pool=POOL, cells=cells)


def an_unmanaged(world: World, name: str = "digits", **changes: Any) -> Object:
    """Return an MPIJob as it is submitted to the API: without voda's label."""
    return a_job(world, name, managed=False, **changes)


async def log_of(registry: Registry) -> list[object]:
    """Return the facts about jobs, in their order."""
    return [event.data for event in await registry.events() if event.stream.startswith("job.")]


# ---- created by kubectl


async def test_adoption_of_a_labelled_object_gives_it_a_job_and_makes_it_ready(world: World) -> None:
    made = await world.submit(a_job(world, suspend=True))
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.uid(f"{world.namespace}_digits")))
        await world.until_it_is(lambda: registry.note("digits", "voda.dev/job-id"))
        record = registry.record(f"{world.namespace}_digits")
        found = await world.job("digits")
        facts = await log_of(registry)
    assert record.job.uid == made["metadata"]["uid"]
    assert (record.spec.min_replicas, record.spec.max_replicas, record.spec.pool) == (1, 4, POOL)
    assert found["metadata"]["annotations"]["voda.dev/job-id"] == f"{world.namespace}_digits"
    worker = found["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    assert worker["spec"]["schedulingGates"] == [{"name": "voda.dev/placement"}]
    assert found["spec"]["runPolicy"]["suspend"] is True
    assert [type(fact) for fact in facts] == [JobSubmitted, JobRegistered]


async def test_adoption_of_a_running_object_suspends_it_at_once(world: World) -> None:
    await world.submit(a_job(world))
    await world.until_it_is(lambda: _has_pods(world, "digits"))
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.uid(f"{world.namespace}_digits")))
        assert (await world.job("digits"))["spec"]["runPolicy"]["suspend"] is True
    await world.until_gone("digits")


async def test_adoption_of_a_pytorchjob_makes_it_ready(world: World) -> None:
    job = a_pytorchjob("torch", world.namespace, pool=POOL)
    await world.client.create(client.PYTORCHJOBS, job)
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.uid(f"{world.namespace}_torch")))
        found = await world.client.get(client.PYTORCHJOBS, "torch", world.namespace)
    assert found["spec"]["runPolicy"]["suspend"] is True
    template = found["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert template["spec"]["schedulingGates"] == [{"name": "voda.dev/placement"}]
    await world.client.delete_all(client.PYTORCHJOBS, world.namespace)


@pytest.mark.parametrize(
    ("has_user_policy", "annotations", "user", "told"),
    [
        (True, {}, None, []),
        (True, {"voda.dev/user": "eve"}, "eve", []),
        (False, {"voda.dev/user": "eve"}, None, ["NotHonoured"]),
    ],
)
async def test_adopted_job_belongs_to_its_namespace_unless_admission_knows_the_user_that_its_object_names(
    world: World, has_user_policy: bool, annotations: dict[str, str], user: str | None, told: list[str]
) -> None:
    await world.submit(a_job(world, suspend=True, annotations=annotations))
    async with a_registry(world, has_user_policy=has_user_policy) as registry:
        await registry.settle(lambda: bool(registry.uid(f"{world.namespace}_digits")))
        assert registry.record(f"{world.namespace}_digits").spec.user == (user or world.namespace)
        assert [each.reason for each in registry.announced] == told


async def test_limit_of_jobs_is_that_of_the_namespace_whoever_its_objects_name(world: World) -> None:
    for name in ("a", "b"):
        await world.submit(a_job(world, name, suspend=True, annotations={"voda.dev/user": f"user-{name}"}))
    async with a_registry(world, jobs_per_user=1) as registry:
        await registry.settle(lambda: "NotAccepted" in {each.reason for each in registry.announced})
        assert len(await registry.events("job.submitted")) == 1


async def test_object_of_one_who_is_no_member_is_told_so_in_an_event_and_a_state_until_the_user_is_one(
    world: World,
) -> None:
    await world.submit(a_job(world, suspend=True, annotations={"voda.dev/virtual-cluster": "vision"}))
    async with a_registry(world, announces=True) as registry:
        await registry.happens(with_members("alice"))
        reporting = asyncio.create_task(registry.reporter.run())
        try:
            await registry.settle(lambda: bool(registry.reporter.states.refused))
            sentence = f"user {world.namespace} is no member of virtual cluster vision"

            async def is_told() -> bool:
                event = (await registry.told("digits")).get("NotAccepted", "")
                state = await registry.state("digits")
                return sentence in event and state.get("state") == "Refused" and sentence in state["explanation"]

            await world.until_it_is(is_told)
            await registry.happens(with_members(world.namespace))
            await registry.settle(lambda: bool(registry.uid(f"{world.namespace}_digits")))
        finally:
            reporting.cancel()


async def test_object_without_the_label_is_left_alone(world: World) -> None:
    await world.submit(an_unmanaged(world))
    async with a_registry(world) as registry:
        await registry.step()
        assert await log_of(registry) == []
        assert registry.api.calls == 0


@pytest.mark.parametrize(
    "others",
    [
        {"labels": {"kueue.x-k8s.io/queue-name": "research"}},
        {"policy": {"managedBy": "kueue.x-k8s.io/multikueue"}},
    ],
)
async def test_object_of_another_manager_is_left_alone_and_told_so_once(world: World, others: dict[str, Any]) -> None:
    before = await world.submit(a_job(world, suspend=True, **others))
    async with a_registry(world) as registry:
        for _ in range(3):
            await registry.step()
        assert await log_of(registry) == []
        assert [told.reason for told in registry.announced] == ["NotManaged"]
    assert (await world.job("digits"))["spec"] == before["spec"]


async def test_refused_object_says_why_and_is_not_asked_for_again_until_it_changes(world: World) -> None:
    await world.submit(a_job(world, pool="a100"))
    async with a_registry(world) as registry:
        await registry.step()
        refused_calls = registry.api.calls
        for _ in range(3):
            await registry.step()
        assert registry.api.calls == refused_calls
        assert "no pool 'a100'" in await registry.why_refused("digits")
        assert [told.reason for told in registry.announced] == ["Invalid"]
        assert "suspend" not in (await world.job("digits"))["spec"].get("runPolicy", {})
        # No part of the spec changes by it, so its generation stays.
        note = {"metadata": {"annotations": {"voda.dev/pool": POOL}}}
        await world.client.patch(client.MPIJOBS, (world.namespace, "digits"), note)
        await registry.settle(lambda: bool(registry.uid(f"{world.namespace}_digits")))


async def test_object_of_a_user_with_too_many_jobs_waits_until_some_have_ended(world: World) -> None:
    await world.submit(a_job(world, annotations={"voda.dev/user": "ann"}))
    async with a_registry(world, jobs_per_user=1, has_user_policy=True) as registry:
        first = await registry.submit(an_unmanaged(world, "first"))
        await registry.settle(lambda: bool(registry.uid(first.spec.job_id)) and bool(registry.announced))
        assert [told.reason for told in registry.announced] == ["NotAccepted"]
        await registry.happens(JobCompleted(job_id=first.spec.job_id))
        await registry.settle(lambda: bool(registry.uid(f"{world.namespace}_digits")))


async def test_object_created_anew_under_its_name_gets_a_job_of_its_own(world: World) -> None:
    await world.submit(a_job(world, suspend=True))
    first, second = f"{world.namespace}_digits", f"{world.namespace}_digits-2"
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.uid(first)))
        copy = await world.job("digits")
        await world.client.delete(client.MPIJOBS, "digits", world.namespace)
        kept = {key: copy["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
        made = await world.submit({**copy, "metadata": kept})
        await registry.settle(lambda: bool(registry.uid(second)))
        assert registry.uid(second) == made["metadata"]["uid"]
        assert await registry.note("digits", "voda.dev/job-id") == second
        assert registry.uid(first) == copy["metadata"]["uid"]


async def test_object_of_an_ended_job_is_not_adopted_again(world: World) -> None:
    await world.submit(a_job(world, suspend=True))
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.uid(f"{world.namespace}_digits")))
        await registry.happens(JobFailed(job_id=f"{world.namespace}_digits", reason=Said(text="gone wrong")))
        for _ in range(3):
            await registry.step()
        assert len(await registry.events("job.submitted")) == 1


# ---- submitted to the API


async def test_job_of_the_api_gets_one_suspended_object(world: World) -> None:
    async with a_registry(world) as registry:
        record = await registry.submit(an_unmanaged(world, labels={"kueue.x-k8s.io/queue-name": "research"}))
        job_id = record.spec.job_id
        await registry.settle(lambda: bool(registry.uid(job_id)))
        for _ in range(3):
            await registry.step()
        found = await world.job("digits")
        assert len(await registry.events("job.registered")) == 1
        assert len(await registry.events("job.submitted")) == 1
    assert found["metadata"]["uid"] == record.job.uid
    assert found["metadata"]["labels"] == {"voda.dev/managed": "true"}
    assert found["spec"]["runPolicy"]["suspend"] is True
    template = found["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    assert {"name": "VODA_JOB_ID", "value": job_id} in template["spec"]["containers"][0]["env"]


async def test_job_whose_name_is_a_strangers_objects_fails_with_the_reason(world: World) -> None:
    stranger = await world.submit(an_unmanaged(world))
    async with a_registry(world) as registry:
        record = await registry.submit(an_unmanaged(world))
        await registry.settle(lambda: not record.is_live)
        assert record.phase is Phase.FAILED
        assert "has a MPIJob named digits already" in said(record.reason)
    assert (await world.job("digits"))["metadata"]["uid"] == stranger["metadata"]["uid"]


async def test_object_left_by_an_ended_job_of_the_name_makes_room(world: World) -> None:
    async with a_registry(world) as registry:
        first = await registry.submit(an_unmanaged(world))
        await registry.settle(lambda: bool(registry.uid(first.spec.job_id)))
        await registry.happens(JobCompleted(job_id=first.spec.job_id))
        second = await registry.submit(an_unmanaged(world))
        await registry.settle(lambda: bool(registry.uid(second.spec.job_id)))
        assert (await world.job("digits"))["metadata"]["uid"] == second.job.uid != first.job.uid


async def test_job_of_a_namespace_that_is_not_there_fails_with_the_reason(world: World) -> None:
    manifest = an_unmanaged(world)
    manifest["metadata"]["namespace"] = "nowhere"
    async with a_registry(world) as registry:
        record = await registry.submit(manifest)
        await registry.settle(lambda: not record.is_live)
        assert said(record.reason) == "namespace 'nowhere' does not exist: create it, and submit the job again"


async def test_job_of_a_kind_that_is_not_served_fails_with_the_reason(world: World) -> None:
    async with a_registry(world) as registry:
        del registry.objects.kinds["PyTorchJob"]
        record = await registry.submit(a_pytorchjob("torch", world.namespace, pool=POOL, managed=False))
        await registry.settle(lambda: not record.is_live)
        assert said(record.reason) == "this cluster serves no PyTorchJob"


async def test_job_whose_object_the_server_refuses_tries_on_and_says_why(world: World) -> None:
    policy = {"schedulingPolicy": {"minAvailable": "many"}}
    async with a_registry(world) as registry:
        record = await registry.submit(an_unmanaged(world, policy=policy))
        await registry.settle(lambda: record.job.failures >= 2)
        assert "minAvailable" in record.last_error
        assert record.is_live


async def test_job_that_is_being_canceled_gets_no_object(world: World) -> None:
    async with a_registry(world) as registry:
        record = await registry.submit(an_unmanaged(world))
        await registry.happens(JobCancelRequested(job_id=record.spec.job_id))
        await registry.step()
        assert registry.api.calls == 0
        await registry.happens(JobCanceled(job_id=record.spec.job_id))


async def test_unregistered_job_gets_a_new_object_once_the_old_one_is_gone(world: World) -> None:
    await world.submit(a_job(world, suspend=True))
    job_id = f"{world.namespace}_digits"
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.uid(job_id)))
        first = registry.uid(job_id)
        await world.client.delete(client.MPIJOBS, "digits", world.namespace)
        await registry.happens(JobRegistered(job_id=job_id, uid=""))
        await registry.settle(lambda: bool(registry.uid(job_id)))
        found = await world.job("digits")
        assert found["metadata"]["uid"] == registry.uid(job_id) != first
        assert found["metadata"]["annotations"]["voda.dev/job-id"] == job_id
        assert len(await registry.events("job.submitted")) == 1


async def test_job_that_nobody_foresaw_stops_no_other(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def environment(spec: JobSpec) -> Mapping[str, str]:
        if spec.name == "odd":
            raise RuntimeError("nobody foresaw this")
        return {}

    async with a_registry(world, environment=environment) as registry:
        odd = await registry.submit(an_unmanaged(world, "odd"))
        record = await registry.submit(an_unmanaged(world))
        await registry.settle(lambda: bool(record.job.uid))
        assert odd.is_live
    assert "nobody foresaw this" in caplog.text


# ---- settings changed on the object


async def test_wishes_changed_on_the_object_are_taken_over_once(world: World) -> None:
    await world.submit(a_job(world, suspend=True))
    job_id = f"{world.namespace}_digits"
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.uid(job_id)))
        await _annotate(world, {"voda.dev/max-replicas": "6", "voda.dev/priority": "7"})
        await registry.settle(lambda: registry.record(job_id).spec.priority == 7)
        for _ in range(3):
            await registry.step()
        changes = [event.data for event in await registry.events("job.changed")]
        assert changes == [JobChanged(job_id=job_id, max_replicas=6, priority=7, by=world.namespace)]


async def test_wishes_changed_through_the_api_stay_though_the_object_says_otherwise(world: World) -> None:
    await world.submit(a_job(world, suspend=True))
    job_id = f"{world.namespace}_digits"
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.uid(job_id)))
        await registry.happens(JobChanged(job_id=job_id, max_replicas=8))
        await _annotate(world, {"voda.dev/priority": "7"})
        await registry.settle(lambda: registry.record(job_id).spec.priority == 7)
        assert registry.record(job_id).spec.max_replicas == 8


async def test_impossible_wishes_on_the_object_are_told_and_not_taken_over(world: World) -> None:
    await world.submit(a_job(world, suspend=True))
    job_id = f"{world.namespace}_digits"
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.uid(job_id)))
        await _annotate(world, {"voda.dev/min-replicas": "many"})
        await registry.settle(lambda: bool(registry.announced))
        calls = registry.api.calls
        for _ in range(3):
            await registry.step()
        assert registry.api.calls == calls
        assert [told.reason for told in registry.announced] == ["Invalid"]
        assert registry.record(job_id).spec.min_replicas == 1


async def test_sizes_changed_on_the_object_are_taken_over_and_bad_ones_are_told(world: World) -> None:
    await world.submit(a_job(world, suspend=True))
    job_id = f"{world.namespace}_digits"
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.uid(job_id)))
        await _annotate(world, {"voda.dev/sizes": "1,2,4", "voda.dev/max-replicas": "4"})
        await registry.settle(lambda: str(registry.record(job_id).spec.sizes) == "1,2,4")
        assert registry.record(job_id).spec.max_replicas == 4
        await _annotate(world, {"voda.dev/sizes": "2-9:4"})
        await registry.settle(lambda: bool(registry.announced))
        [told] = registry.announced
        assert told.message == (
            "the changed annotations are not taken over: metadata.annotations[voda.dev/sizes]: steps of 4 from 2 do not"
            " reach 9: expected 2-6:4 or 2-10:4, got 2-9:4"
        )
        assert str(registry.record(job_id).spec.sizes) == "1,2,4"


# ---- let go by hand


async def test_waiting_job_that_is_resumed_by_hand_is_suspended_again(world: World) -> None:
    async with a_registry(world) as registry:
        record = await registry.submit(an_unmanaged(world))
        await registry.settle(lambda: bool(record.job.uid))
        await _let_go(world)
        await registry.settle(lambda: all(job.spec.run_policy.suspend for _, job in registry.objects.jobs()))


async def test_job_that_shall_run_is_not_suspended(world: World) -> None:
    async with a_registry(world) as registry:
        record = await registry.submit(an_unmanaged(world))
        await registry.settle(lambda: bool(record.job.uid))
        plan = {"pool": POOL, "number": 1, "based_on": 0, "policy": "fifo", "placer": "steady", "cause": "tick"}
        await registry.happens(PlanAdopted(**plan, placed={record.spec.job_id: ("n1",)}))  # type: ignore[arg-type]
        await _let_go(world)
        for _ in range(3):
            await registry.step()
        assert (await world.job("digits"))["spec"]["runPolicy"]["suspend"] is False


async def test_running_object_whose_manifest_is_applied_again_gets_back_what_its_pods_need(world: World) -> None:
    wrote = a_job(world, suspend=True)
    await world.submit(wrote)
    job_id, key = f"{world.namespace}_digits", (world.namespace, "digits")
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.uid(job_id)))
        await world.until_it_is(lambda: registry.note("digits", "voda.dev/job-id"))
        plan = {"pool": POOL, "number": 1, "based_on": 0, "policy": "fifo", "placer": "steady", "cause": "tick"}
        await registry.happens(PlanAdopted(**plan, placed={job_id: ("n1", "n2")}))  # type: ignore[arg-type]
        await _let_go(world)
        await registry.step()
        applied = {"spec": {"mpiReplicaSpecs": wrote["spec"]["mpiReplicaSpecs"]}}
        await world.client.patch(client.MPIJOBS, key, applied)
        assert await _told_its_job(world) is False

        async def is_refitted() -> bool:
            await registry.step()
            return await _told_its_job(world)

        await world.until_it_is(is_refitted)
        assert (await world.job("digits"))["spec"]["runPolicy"]["suspend"] is False


async def test_object_whose_manifest_is_applied_again_while_nobody_leads_gets_back_what_its_pods_need(
    world: World,
) -> None:
    wrote, store = a_job(world, suspend=True), MemoryStore()
    await world.submit(wrote)
    async with a_registry(world, store) as registry:
        await registry.settle(lambda: bool(registry.uid(f"{world.namespace}_digits")))
        await world.until_it_is(lambda: registry.note("digits", "voda.dev/job-id"))
        assert await _told_its_job(world) is True
    applied = {"spec": {"mpiReplicaSpecs": wrote["spec"]["mpiReplicaSpecs"]}}
    await world.client.patch(client.MPIJOBS, (world.namespace, "digits"), applied)
    assert await _told_its_job(world) is False
    async with a_registry(world, store) as registry:
        await registry.step()
        assert await _told_its_job(world) is True


async def test_object_that_is_ready_is_not_suspended_again_by_who_knows_it_from_before(world: World) -> None:
    await world.submit(a_job(world, suspend=True))
    job_id = f"{world.namespace}_digits"
    async with a_registry(world) as registry:
        await registry.step()
        # The watch has not told of what adoption made of the object, which was let go meanwhile.
        ((kind, stale),) = registry.objects.jobs()
        assert await registry.note("digits", "voda.dev/job-id") == job_id
        await _let_go(world)
        await registry.registrar.step()
        await registry.registrar._duties.adoption.prepare(kind, stale, job_id)
        assert (await world.job("digits"))["spec"]["runPolicy"]["suspend"] is False


async def test_adoption_of_a_copy_that_bears_the_id_it_gets_makes_it_ready(world: World) -> None:
    copied = a_job(world, suspend=True)
    copied["metadata"].setdefault("annotations", {})["voda.dev/job-id"] = f"{world.namespace}_digits"
    await world.submit(copied)
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.uid(f"{world.namespace}_digits")))
        await world.until_it_is(lambda: _told_its_job(world))


@asynccontextmanager
async def a_running_torch_job(
    world: World, store: MemoryStore | None = None, **changes: Any
) -> AsyncIterator[Registry]:
    """Yield a registry with a PyTorchJob of 1 to 8 replicas that runs."""
    await world.submit(a_pytorchjob("torch", world.namespace, pool=POOL, suspend=True, **changes))
    job_id, key = f"{world.namespace}_torch", (world.namespace, "torch")
    async with a_registry(world, store) as registry:
        await registry.settle(lambda: bool(registry.uid(job_id)))
        await world.until_it_is(lambda: registry.note("torch", "voda.dev/job-id", "PyTorchJob"))
        plan = {"pool": POOL, "number": 1, "based_on": 0, "policy": "fifo", "placer": "steady", "cause": "tick"}
        await registry.happens(PlanAdopted(**plan, placed={job_id: ("n1", "n1")}))  # type: ignore[arg-type]
        await world.client.patch(client.PYTORCHJOBS, key, {"spec": {"runPolicy": {"suspend": False}}})
        await registry.settle(lambda: not any(job.is_suspended for _, job in registry.objects.jobs()))
        yield registry


async def set_bounds(world: World, **bounds: int) -> None:
    await world.client.patch(client.PYTORCHJOBS, (world.namespace, "torch"), {"spec": {"elasticPolicy": bounds}})


async def bounds_of(world: World) -> tuple[int, int]:
    elastic = (await world.job("torch", "PyTorchJob"))["spec"]["elasticPolicy"]
    return elastic["minReplicas"], elastic["maxReplicas"]


@pytest.mark.parametrize(("most", "stays"), [(12, 8), (4, 4)])
async def test_bounds_changed_in_the_spec_of_a_running_object_are_those_of_its_job(
    world: World, most: int, stays: int
) -> None:
    async with a_running_torch_job(world) as registry:
        job_id = f"{world.namespace}_torch"
        assert registry.record(job_id).spec.max_replicas == 8
        await set_bounds(world, maxReplicas=most)
        await registry.settle(lambda: registry.record(job_id).spec.max_replicas == most)

        async def stay() -> bool:
            await registry.step()
            return await bounds_of(world) == (1, stays)

        # Agents that run were started with at most 8: they would not take more in.
        await world.until_it_is(stay)
        await registry.step()
        assert registry.record(job_id).spec.max_replicas == most
        assert len(await registry.events("job.changed")) == 1


async def test_bounds_changed_in_the_spec_while_nobody_leads_are_those_of_the_job_under_the_next_leader(
    world: World,
) -> None:
    job_id, store = f"{world.namespace}_torch", MemoryStore()
    async with a_running_torch_job(world, store):
        pass
    await set_bounds(world, maxReplicas=4)
    async with a_registry(world, store) as registry:
        await registry.settle(lambda: registry.record(job_id).spec.max_replicas == 4)
        assert await bounds_of(world) == (1, 4)


async def test_bounds_that_a_former_leader_saw_are_not_taken_over_once_more_when_it_leads_again(world: World) -> None:
    job_id, store = f"{world.namespace}_torch", MemoryStore()
    async with a_running_torch_job(world, store) as former:
        await set_bounds(world, maxReplicas=12)
        for mirror in former.objects.mirrors.values():
            await mirror.relist()
        async with a_registry(world, store) as leader:
            await leader.settle(lambda: leader.record(job_id).spec.max_replicas == 12)
            await leader.happens(JobChanged(job_id=job_id, max_replicas=10))
        await former.step()
        await former.step()
        assert former.record(job_id).spec.max_replicas == 10
        assert len(await former.events("job.changed")) == 2


async def test_bounds_changed_in_the_spec_where_an_annotation_names_them_have_no_effect_and_say_so(
    world: World,
) -> None:
    async with a_running_torch_job(world, annotations={"voda.dev/max-replicas": "8"}) as registry:
        await set_bounds(world, maxReplicas=12)
        await registry.settle(lambda: any(told.reason == "NotHonoured" for told in registry.announced))
        (told,) = [told.message for told in registry.announced if told.reason == "NotHonoured"]
        assert told == ("the spec's new bound has no effect: the annotation voda.dev/max-replicas wins; change that")
        assert registry.record(f"{world.namespace}_torch").spec.max_replicas == 8


async def test_bounds_of_a_running_object_stay_as_its_agents_were_told(world: World) -> None:
    job, store = a_pytorchjob("torch", world.namespace, pool=POOL, suspend=True), MemoryStore()
    await world.submit(job)
    job_id, key = f"{world.namespace}_torch", (world.namespace, "torch")
    async with a_registry(world, store) as registry:
        await registry.settle(lambda: bool(registry.uid(job_id)))
        await world.until_it_is(lambda: registry.note("torch", "voda.dev/job-id", "PyTorchJob"))
        told = (await world.job("torch", "PyTorchJob"))["spec"]["elasticPolicy"]
        plan = {"pool": POOL, "number": 1, "based_on": 0, "policy": "fifo", "placer": "steady", "cause": "tick"}
        await registry.happens(PlanAdopted(**plan, placed={job_id: ("n1",)}))  # type: ignore[arg-type]
        await world.client.patch(client.PYTORCHJOBS, key, {"spec": {"runPolicy": {"suspend": False}}})
        await registry.happens(JobChanged(job_id=job_id, max_replicas=told["maxReplicas"] + 4))
    async with a_registry(world, store) as registry:
        await registry.step()
        assert (await world.job("torch", "PyTorchJob"))["spec"]["elasticPolicy"] == told


async def test_creation_that_fails_is_tried_again_after_its_pause_and_not_at_the_next_sweep(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_arguments: object, **_named: object) -> None:
        raise ClusterUnavailable("the API server is away")

    async with a_registry(world) as registry:
        await registry.submit(an_unmanaged(world))
        with monkeypatch.context() as patched:
            patched.setattr(registry.api, "create", away)
            again_at = await registry.registrar.step()
        assert again_at <= registry.backend.journal.clock.now() + 1.0


# ---- deaths


async def test_adoption_that_dies_anywhere_leads_to_one_job_and_one_ready_object(world: World) -> None:
    async def begin(name: str, _: Registry) -> None:
        await world.submit(a_job(world, name))

    deaths = await _survived_deaths(world, begin)
    assert deaths >= 8, "a look, a suspension, an append and a patch, before and after each"


async def test_creation_that_dies_anywhere_leads_to_one_job_and_one_object(world: World) -> None:
    async def begin(name: str, registry: Registry) -> None:
        await registry.submit(an_unmanaged(world, name))

    deaths = await _survived_deaths(world, begin)
    assert deaths >= 4, "a creation and an append, before and after each"


async def _survived_deaths(world: World, begin: Callable[[str, Registry], Awaitable[None]]) -> int:
    """Let a registrar die at every call, another one go on, and return how many deaths there were."""
    deaths = 0
    while True:
        name, store = f"job-{deaths}", MemoryStore()
        async with a_registry(world, store) as registry:
            await begin(name, registry)
            log = cast("Mortal", registry.backend.journal.store)
            has_died = await _dies(registry, log, deaths)
        async with a_registry(world, store) as registry:
            await _is_made_good(registry, name)
        await world.client.delete(client.MPIJOBS, name, world.namespace)
        if not has_died:
            return deaths
        deaths += 1


async def _is_made_good(registry: Registry, name: str) -> None:
    """Let a registrar finish what the one before it began, and look at what came of it."""
    job_id = f"{registry.world.namespace}_{name}"
    await registry.settle(lambda: bool(registry.uid(job_id)))
    for _ in range(2):
        await registry.step()
    facts = await log_of(registry)
    found = await registry.world.job(name)
    assert [type(fact) for fact in facts] == [JobSubmitted, JobRegistered]
    assert found["metadata"]["uid"] == registry.uid(job_id)
    assert found["metadata"]["annotations"]["voda.dev/job-id"] == job_id
    assert found["spec"]["runPolicy"]["suspend"] is True


async def _dies(registry: Registry, log: Mortal, at: int) -> bool:
    """Step until the death at a call to server or log, counted together; say whether it came."""
    # One count for both, so that deaths come in the order in which things are done.
    shared = registry.api
    log.share(shared)
    shared.calls, shared.dies_at = 0, at
    has_died = False
    try:
        await registry.step()
    except* Died:
        has_died = True
    return has_died


async def _told_its_job(world: World) -> bool:
    """Say whether the workers' container is told of the service."""
    template = (await world.job("digits"))["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    return "VODA_JOB_ID" in [each["name"] for each in template["spec"]["containers"][0].get("env", ())]


async def _let_go(world: World) -> None:
    key, started = (world.namespace, "digits"), {"spec": {"runPolicy": {"suspend": False}}}
    await world.client.patch(client.MPIJOBS, key, started)


async def _annotate(world: World, notes: dict[str, str]) -> None:
    await world.client.patch(client.MPIJOBS, (world.namespace, "digits"), {"metadata": {"annotations": notes}})


async def _has_pods(world: World, name: str) -> bool:
    return bool(await world.pods_of(name))

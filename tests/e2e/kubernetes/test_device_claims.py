"""GPUs that jobs claim (dynamic resource allocation), allocated by the real kube-scheduler from ResourceSlices."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.service import AT_ONCE, Voda, voda
from tests.e2e.kubernetes.test_jobs_submitted import submit
from tests.kube import client as api
from tests.kube.assets import IS_OLD
from tests.kube.client import Object
from tests.kube.devices import (
    CLASS,
    DRIVER,
    a_claim_template,
    a_device,
    a_device_class,
    a_slice,
    a_taint_rule,
    attached,
    claims_of,
    class_of,
    partitioned_slices,
)
from tests.kube.objects import a_jobset, a_node, a_pod, a_pytorchjob, an_indexed_job, an_mpijob
from tests.kube.peers.jobs_world import JobsWorld
from tests.kube.peers.world import PeeredWorld
from tests.kube.world import World
from voda.cluster.kubernetes import leader_loop
from voda.cluster.kubernetes.convergence import stalls
from voda.events.text.stalls import stall_text
from voda.events.types import JobBackedOff, JobStalled, PlanAdopted, WorkerExited, WorkerRefused
from voda.projections.jobs.record_text import obstacle_text

PRIORITY_CLASSES = api.Resource("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", is_namespaced=False)
CLUSTER = {"defaultPool": "", "gpuDeviceClasses": [CLASS]}


@asynccontextmanager
async def claiming_voda(world: World, folder: Path, **cluster: Any) -> AsyncIterator[Voda]:
    async with voda(world, folder, cluster={**CLUSTER, **cluster}) as it:
        yield it


async def test_jobs_that_claim_gpus_share_two_nodes_shrink_and_grow(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 4, "gpu-2": 4})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("two", world.namespace, 2))
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(a_job("a", world, "two", least=1, most=4))
        await it.until_runs("a", 4)
        spec = it.job(it.id("a"))
        assert spec is not None
        assert spec.spec.gpus_per_replica == 2
        await world.submit(a_job("b", world, "two", least=2, most=2))
        await it.until_runs("b", 2)
        await it.until_runs("a", 2)
        for name in ("a", "b"):
            for pod in await world.pods_of(name):
                assert await devices_of(world, pod) == (pod["spec"]["nodeName"], 2)
        await world.end_all("b")
        await it.until_ended("b", "Completed")
        await it.until_runs("a", 4)


async def test_devices_that_are_not_published_for_a_moment_stay_with_the_workers_that_hold_them(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 2, "gpu-2": 2, "gpu-3": 2})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace, 1))
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(a_job("a", world, "one", least=6, most=6))
        await it.until_runs("a", 6)
        before = {pod["metadata"]["uid"] for pod in await world.pods_of("a")}

        def silent_since() -> Mapping[str, float]:
            return it.service.view.cluster.state("v100").silent_since

        await world.client.delete(api.SLICES, "gpu-2-gpus")
        await world.until(lambda: silent_since().keys() == {"gpu-2"})
        await world.until(lambda: it.service.clock.now() > silent_since()["gpu-2"] + 3.0)
        await world.client.create(api.SLICES, a_slice("gpu-2", 2))
        await world.until(lambda: not silent_since())
        await it.until_runs("a", 6)
        assert {pod["metadata"]["uid"] for pod in await world.pods_of("a")} == before
        assert await it.facts(WorkerExited) == []


async def test_node_whose_device_driver_is_gone_for_longer_than_the_grace_is_left_and_used_again_later(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 2, "gpu-2": 2, "gpu-3": 2})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace, 1))
    pools = {"v100": {**AT_ONCE, "nodeGraceSeconds": 2.0}}
    async with voda(world, tmp_path, cluster=CLUSTER, pools=pools) as it:
        await world.submit(a_job("a", world, "one", least=1, most=6))
        await it.until_runs("a", 6)
        await world.client.delete(api.SLICES, "gpu-3-gpus")
        await it.until_runs("a", 4)
        assert sorted(it.nodes(it.id("a"))) == ["gpu-1", "gpu-1", "gpu-2", "gpu-2"]
        await world.client.create(api.SLICES, a_slice("gpu-3", 2))
        await it.until_runs("a", 6)


async def test_what_a_driver_takes_back_within_the_grace_moves_no_worker(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 4})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(a_job("a", world, "one", least=1, most=4))
        await it.until_runs("a", 4)
        before = await world.uids("a")
        closed = {"taints": [{"key": "sick", "effect": "NoSchedule"}]}
        there = [a_device(f"gpu-{number}") for number in range(4)]
        said = [
            a_slice("gpu-1", there[1:], generation=2),
            a_slice("gpu-1", there, generation=3),
            a_slice("gpu-1", [{**there[0], **closed}, *there[1:]], generation=4),
            a_slice("gpu-1", there, generation=5),
            # Another slice of this generation is still to come.
            a_slice("gpu-1", there[2:], generation=6, slices=2),
            a_slice("gpu-1", there, generation=7),
        ]
        for each in said:
            await world.client.patch(api.SLICES, "gpu-1-gpus", {"spec": each["spec"]})
            await world.until(partial(is_seen, it, each["spec"]["pool"]["generation"]))
        node = it.service.kubernetes.inventory.stock.node("gpu-1")
        assert node is not None
        assert node.gpus == 4
        assert await world.uids("a") == before
        assert await it.facts(WorkerExited) == []
        assert len([plan for plan in await it.facts(PlanAdopted) if it.id("a") in plan.placed]) == 1


@pytest.mark.parametrize("make", [an_mpijob, a_pytorchjob])
async def test_job_of_an_operator_claims_gpus_and_grows_onto_another_node(
    world: PeeredWorld, tmp_path: Path, make: Callable[..., Object]
) -> None:
    await publish(world, {"gpu-1": 4})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("two", world.namespace, 2))
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(make("a", world.namespace, 2, gpus=0, worker_spec=claims_of("two"), least=1, most=4))
        await it.until_runs("a", 2)
        await add_gpus(world, {"gpu-2": 4})
        await it.until_runs("a", 4)
        assert sorted(it.nodes(it.id("a"))) == ["gpu-1", "gpu-1", "gpu-2", "gpu-2"]
        for pod in await world.workers_of("a"):
            assert await devices_of(world, pod) == (pod["spec"]["nodeName"], 2)


async def test_jobset_claims_gpus_and_grows_onto_another_node(jobsets_world: JobsWorld, tmp_path: Path) -> None:
    world = jobsets_world
    await publish(world, {"gpu-1": 4})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("two", world.namespace, 2))
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(a_jobset("a", world.namespace, 2, gpus=0, worker_spec=claims_of("two"), least=1, most=4))
        await it.until_runs("a", 2)
        await add_gpus(world, {"gpu-2": 4})
        await it.until_runs("a", 4)


async def test_gpus_that_somebody_else_claims_are_not_planned_until_they_are_given_back(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 4})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("three", world.namespace, 3))
    await world.client.create(api.PODS, a_pod("other", world.namespace, spec=claims_of("three")))

    await until_bound(world, ["other"])
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(a_job("a", world, "one", least=1, most=4))
        await it.until_runs("a", 1)
        assert not await it.facts(WorkerRefused, it.id("a"))
        await world.client.delete(api.PODS, "other", world.namespace, grace_s=0)
        await it.until_runs("a", 4)


async def test_job_waits_for_its_claim_template_and_starts_not_in_vain_without_class_or_template(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 4})
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(a_job("a", world, "one", least=1, most=1))
        missing = f"namespace {world.namespace} has no ResourceClaimTemplate 'one'"
        await world.until_it_is(lambda: is_told(world, "a", "NotAccepted", missing))
        assert it.job(it.id("a")) is None
        await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
        await it.until_runs("a", 1)
        # Its successor waits for the GPUs, and finds neither template nor class.
        await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("four", world.namespace, 4))
        await world.submit(a_job("b", world, "four", least=1, most=1))
        await it.until(lambda: is_known(it, "b"))
        await world.client.delete(api.CLAIM_TEMPLATES, "four", world.namespace)
        await world.end_all("a")
        missing = f"namespace {world.namespace} has no ResourceClaimTemplate 'four'"
        await it.until(lambda: is_held_up(it, "b", missing))
        await world.until_it_is(lambda: is_told(world, "b", "ActionFailed", missing))
        assert await world.pods_of("b") == []
        await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("four", world.namespace, 2))
        await it.until(lambda: is_held_up(it, "b", "ask for 2 GPUs of each replica now, and it was submitted with 4"))
        await world.client.delete(api.CLAIM_TEMPLATES, "four", world.namespace)
        await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("four", world.namespace, 4))
        await it.until_runs("b", 1)


async def test_job_of_a_device_class_that_is_missing_says_so_and_starts_once_it_is_there(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 4})
    await world.client.delete(api.DEVICE_CLASSES, CLASS)
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(a_job("a", world, "one", least=1, most=1))
        missing = f"ResourceClaimTemplate one asks for DeviceClass {CLASS!r}, which is not there"
        await world.until_it_is(lambda: is_told(world, "a", "NotAccepted", missing))
        await world.client.create(api.DEVICE_CLASSES, a_device_class())
        await it.until_runs("a", 1)


async def test_claims_whose_gpus_cannot_be_counted_are_refused_with_a_sentence(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 4})
    everything = {"exactly": {"deviceClassName": CLASS, "allocationMode": "All"}}
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("all", world.namespace, request=everything))
    await world.client.create(api.DEVICE_CLASSES, a_device_class("nic.example.com", 'device.driver == "nic"'))
    nic = {"exactly": {"deviceClassName": "nic.example.com"}}
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("nic", world.namespace, request=nic))
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(a_job("a", world, "all", least=1, most=1))
        await world.submit(a_job("b", world, "nic", least=1, most=1))
        await world.until_it_is(lambda: is_told(world, "a", "Invalid", "allocationMode All takes whatever a node has"))
        await world.until_it_is(
            lambda: is_told(world, "b", "Invalid", f"asks for no GPU: expected a request of a device class {CLASS}")
        )
        assert it.job(it.id("a")) is None


async def test_submitted_program_claims_the_gpus_of_a_device_class(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 4})
    async with claiming_voda(world, tmp_path) as it:
        words = ("--image", "train:1", "--workers", "1-2", "--gpus-per-worker", "2", "--name", "digits")
        await submit(it, *words, "--device-class", CLASS, "--", "torchrun", "train.py")
        await it.until_runs("digits", 2)
        for pod in await world.pods_of("digits"):
            assert await devices_of(world, pod) == ("gpu-1", 2)
            assert "limits" not in pod["spec"]["containers"][0]["resources"]
        await world.client.delete(api.JOBS, "digits", world.namespace)

        async def has_no_template() -> bool:
            return not await world.client.list(api.CLAIM_TEMPLATES, world.namespace)

        await world.until_it_is(has_no_template)


@pytest.mark.skipif(IS_OLD, reason="DRAExtendedResource is an alpha feature of 1.35, off by default")
async def test_extended_resource_that_kube_scheduler_takes_from_devices_counts_once(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    device_class = a_device_class()
    device_class["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    await publish(world, {"gpu-1": 4}, device_class)
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 4, gpus=1, least=1, most=4))
        await it.until_runs("a", 4)
        node = it.service.kubernetes.inventory.stock.node("gpu-1")
        assert node is not None
        assert (node.gpus, node.foreign_gpus) == (4, 0)


@pytest.mark.skipif(IS_OLD, reason="DRAExtendedResource is an alpha feature of 1.35, off by default")
async def test_devices_that_are_asked_for_by_the_name_of_their_class_count(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 6})
    limits = {"resources": {"limits": {f"deviceclass.resource.kubernetes.io/{CLASS}": 2}}}
    async with claiming_voda(world, tmp_path) as it:
        body = an_indexed_job("a", world.namespace, 1, gpus=0, least=1, most=4)
        body["spec"]["template"]["spec"]["containers"][0] |= limits
        await world.submit(body)
        await it.until_runs("a", 3)
        job = it.job(it.id("a"))
        assert job is not None
        assert job.spec.gpus_per_replica == 2
        assert not await it.facts(WorkerRefused, it.id("a"))
        assert not [said for said in await world.told("a") if "without GPUs" in said]


@pytest.mark.skipif(IS_OLD, reason="DRAExtendedResource is an alpha feature of 1.35, off by default")
async def test_devices_that_a_quota_forbids_hold_nothing_up_and_are_told_in_the_servers_words(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    device_class = a_device_class()
    device_class["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    await publish(world, {"gpu-1": 8}, device_class)
    hard = {f"{CLASS}.deviceclass.resource.k8s.io/devices": "2"}
    quota = {"metadata": {"name": "devices", "namespace": world.namespace}, "spec": {"hard": hard}}
    await world.client.create(api.QUOTAS, quota)

    async def is_in_force() -> bool:
        found = await world.client.get(api.QUOTAS, "devices", world.namespace)
        return "used" in found.get("status", {})

    await world.until_it_is(is_in_force)
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 8, gpus=1, least=1, most=8))
        await it.until_runs("a", 2)

        async def is_told_why() -> bool:
            refusals = await it.facts(WorkerRefused, it.id("a"))
            return any("exceeded quota" in str(fact.reason) and fact.fits == 2 for fact in refusals)

        await world.until_it_is(is_told_why)
        await world.until(lambda: len(it.service.view.cluster.state("v100").plan.placement[it.id("a")]) == 2)
        await world.client.delete(api.QUOTAS, "devices", world.namespace)


@pytest.mark.skipif(IS_OLD, reason="DRADeviceTaintRules is an alpha feature of 1.35, off by default")
async def test_device_that_a_rule_closes_is_no_gpu_to_plan_and_its_worker_alone_leaves(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 8})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
    await world.client.create(api.TAINT_RULES, a_taint_rule("sick", "NoSchedule", driver=DRIVER, device="gpu-7"))
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(a_job("a", world, "one", least=1, most=8))
        await it.until_runs("a", 7)
        assert not await it.facts(WorkerRefused, it.id("a"))
        before = {index_of(pod): pod for pod in await world.pods_of("a")}
        device = await device_of(world, before[3])
        rule = a_taint_rule("dead", "NoExecute", driver=DRIVER, pool="gpu-1", device=device)
        await world.client.create(api.TAINT_RULES, rule)

        async def has_given_it_up() -> bool:
            pods = [pod for pod in await world.pods_of("a") if not pod["metadata"].get("deletionTimestamp")]
            running = {index_of(pod): pod for pod in pods if pod["status"].get("phase") == "Running"}
            return running.keys() == set(range(6)) and uid(running[3]) != uid(before[3])

        await world.until_it_is(has_given_it_up)
        await it.until_runs("a", 6)
        after = {index_of(pod): uid(pod) for pod in await world.pods_of("a")}
        assert {index for index in after if after[index] == uid(before[index])} == {0, 1, 2, 4, 5}
        for name in ("sick", "dead"):
            await world.client.delete(api.TAINT_RULES, name)
        await it.until_runs("a", 8)


@pytest.mark.skipif(IS_OLD, reason="DRADeviceTaintRules is an alpha feature of 1.35, off by default")
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
async def test_tainted_device_that_a_worker_gets_all_the_same_is_no_room_to_grow(
    jobs_world: JobsWorld, tmp_path: Path, effect: str
) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 4})
    # kube-scheduler heeds it, and what evicts from devices does not.
    tolerant = {"exactly": {"deviceClassName": CLASS, "count": 1, "tolerations": [{"operator": "Exists"}]}}
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace, request=tolerant))
    await world.client.create(api.TAINT_RULES, a_taint_rule("sick", effect, driver=DRIVER, device="gpu-0"))
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(a_job("a", world, "one", least=1, most=4))

        async def has_been_there() -> bool:
            """Say whether a worker had the device: it runs on, or was evicted and came back again."""
            devices = it.service.kubernetes.inventory.stock.devices
            if effect == "NoSchedule":
                return devices.taken("gpu-1") == 3
            return sum(fact.cause == "evicted" for fact in await it.facts(WorkerExited, it.id("a"))) > 3

        await world.until_it_is(has_been_there)
        plans = [len(plan.placed[it.id("a")]) for plan in await it.facts(PlanAdopted) if it.id("a") in plan.placed]
        assert plans == [3]
        if effect == "NoSchedule":
            await it.until_runs("a", 3)
            assert "gpu-0" in {await device_of(world, pod) for pod in await world.pods_of("a")}


@pytest.mark.skipif(IS_OLD, reason="DRAPartitionableDevices is an alpha feature of 1.35, off by default")
async def test_whole_gpus_are_planned_that_partitions_in_use_leave_and_jobs_of_partitions_are_refused_beside_them(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await publish_partitions(world)
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
    for number in range(3):
        await world.client.create(api.PODS, a_pod(f"other-{number}", world.namespace, spec=claims_of("1g")))
    await until_bound(world, [f"other-{number}" for number in range(3)])
    async with claiming_voda(world, tmp_path, gpuDeviceClasses=[CLASS, "1g"]) as it:
        await world.submit(a_job("a", world, "one", least=1, most=2))
        await it.until_runs("a", 1)
        node = it.service.kubernetes.inventory.stock.node("gpu-1")
        assert node is not None
        assert (node.gpus, node.foreign_gpus) == (1, 0)
        await world.submit(a_job("b", world, "1g", least=1, most=2))
        why = f"'1g' gives partitions of devices that count for DeviceClass {CLASS!r}"
        await world.until_it_is(lambda: is_told(world, "b", "Invalid", why))
        for number in range(3):
            await world.client.delete(api.PODS, f"other-{number}", world.namespace, grace_s=0)
        await it.until_runs("a", 2)
        assert not await it.facts(WorkerRefused, it.id("a"))


@pytest.mark.skipif(IS_OLD, reason="DRAPartitionableDevices is an alpha feature of 1.35, off by default")
async def test_partitions_are_planned_as_gpus_of_their_class_beside_whole_ones_that_others_have(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await publish_partitions(world)
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
    await world.client.create(api.PODS, a_pod("other", world.namespace, spec=claims_of("one")))
    await until_bound(world, ["other"])
    async with claiming_voda(world, tmp_path, gpuDeviceClasses=["1g"]) as it:
        words = ("--image", "train:1", "--workers", "1-20", "--name", "digits", "--device-class", "1g")
        await submit(it, *words, "--", "torchrun", "train.py")
        await it.until_runs("digits", 7)
        assert not await it.facts(WorkerRefused)
        await world.client.delete(api.PODS, "other", world.namespace, grace_s=0)
        await it.until_runs("digits", 14)


@pytest.mark.skipif(IS_OLD, reason="DRADeviceBindingConditions is an alpha feature of 1.35, off by default")
async def test_job_whose_devices_are_being_attached_is_not_stuck_and_says_so(
    jobs_world: JobsWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "OVER_S", 0.5)
    monkeypatch.setattr(leader_loop, "_SWEEP_S", 0.1)
    world = jobs_world
    await publish(world, {})
    await world.add_nodes(a_node("gpu-1", 0))
    fields: Any = {
        "bindsToNode": True,
        "bindingConditions": ["fabric/attached"],
        "bindingFailureConditions": ["fabric/no"],
    }
    await world.client.create(api.SLICES, a_slice("gpu-1", [a_device(f"gpu-{at}", **fields) for at in range(2)]))
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(a_job("a", world, "one", least=2, most=2))
        sentence = "devices of worker 0 are being attached to gpu-1: kube-scheduler binds it once their driver says"

        async def is_attaching() -> bool:
            return any(sentence in stall_text(fact.reason) for fact in await it.facts(JobStalled, it.id("a")))

        await world.until_it_is(is_attaching)
        await world.submit(a_job("b", world, "one", least=1, most=1))
        # Attached, it is bound up to 5 s later, which is the next time that kube-scheduler looks.
        start_timeout_s, now = 20.0, it.service.clock.now()
        await it.set("v100", start_timeout_s=start_timeout_s)
        await world.until(lambda: it.service.clock.now() > now + start_timeout_s)
        assert not await it.facts(JobBackedOff)
        assert await world.pods_of("b") == []
        for claim in await world.client.list(api.CLAIMS, world.namespace):
            await world.client.patch(api.CLAIMS, api.key_of(claim), attached(claim), "status")
        await it.until_runs("a", 2)
        assert not await it.facts(JobBackedOff)


async def test_job_of_higher_priority_gets_devices_for_which_kube_scheduler_preempts_nobody(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 4})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
    urgent = f"urgent-{world.namespace}"
    await world.client.create(PRIORITY_CLASSES, {"metadata": {"name": urgent}, "value": 1_000_000})
    async with claiming_voda(world, tmp_path) as it:
        await world.submit(a_job("low", world, "one", least=1, most=4))
        await it.until_runs("low", 4)
        pod = a_pod("urgent", world.namespace, spec={**claims_of("one"), "priorityClassName": urgent})
        await world.client.create(api.PODS, pod)
        await world.until_it_is(lambda: is_refused(world, "urgent", "Preemption is not helpful for scheduling"))
        await world.client.delete(api.PODS, "urgent", world.namespace, grace_s=0)
        assert await it.facts(WorkerExited) == []
        await world.submit(a_job("some", world, "one", least=2, most=2, priority=5))
        await it.until_runs("some", 2)
        await it.until_runs("low", 2)
        await world.submit(a_job("all", world, "one", least=4, most=4, priority=10))
        await it.until_runs("all", 4)
        assert {name: len(await world.pods_of(name)) for name in ("some", "low")} == {"some": 0, "low": 0}
        assert not await it.facts(WorkerRefused)
        await world.end_all("all")
        await it.until_runs("some", 2)
        await it.until_runs("low", 2)


async def is_refused(world: World, name: str, text: str) -> bool:
    found = await world.client.get(api.PODS, name, world.namespace)
    return any(text in each.get("message", "") for each in found["status"].get("conditions", ()))


async def publish_partitions(world: World) -> None:
    """Add a node of two GPUs that are given whole or in parts, the classes of both, and a template of parts."""
    await world.client.create(api.DEVICE_CLASSES, a_device_class())
    await world.client.create(api.DEVICE_CLASSES, a_device_class("1g", class_of("1g")))
    small = {"exactly": {"deviceClassName": "1g"}}
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("1g", world.namespace, request=small))
    await world.add_nodes(a_node("gpu-1", 0))
    for each in partitioned_slices("gpu-1", 2):
        await world.client.create(api.SLICES, each)


def is_seen(it: Voda, generation: int) -> bool:
    """Say whether voda has seen a generation of what the driver publishes of node gpu-1."""
    seen = it.service.kubernetes.inventory.stock.devices.published.slices["gpu-1-gpus"]
    return seen.spec.pool.generation == generation


async def until_bound(world: World, names: Sequence[str]) -> None:
    async def are_bound() -> bool:
        found = [await world.client.get(api.PODS, name, world.namespace) for name in names]
        return all(pod["spec"].get("nodeName") for pod in found)

    await world.until_it_is(are_bound)


def index_of(pod: Object) -> int:
    return int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


def uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


async def device_of(world: World, pod: Object) -> str:
    """Return the name of the one device that a pod was given."""
    [status] = pod["status"]["resourceClaimStatuses"]
    claim = await world.client.get(api.CLAIMS, status["resourceClaimName"], world.namespace)
    [result] = claim["status"]["allocation"]["devices"]["results"]
    return str(result["device"])


async def is_told(world: JobsWorld, name: str, reason: str, text: str) -> bool:
    return any(text in said for said in await world.told(name, reason))


async def is_known(it: Voda, name: str) -> bool:
    return it.job(it.id(name)) is not None


async def is_held_up(it: Voda, name: str, text: str) -> bool:
    record = it.service.view.job_registry.job(it.id(name))
    return record is not None and text in obstacle_text(record)


async def publish(world: World, nodes: Mapping[str, int], device_class: Object | None = None) -> None:
    """Add nodes that have GPUs as devices alone."""
    await world.client.create(api.DEVICE_CLASSES, device_class or a_device_class())
    await add_gpus(world, nodes)


async def add_gpus(world: World, nodes: Mapping[str, int]) -> None:
    """Add nodes that have GPUs of the class."""
    for node, gpus in nodes.items():
        await world.add_nodes(a_node(node, 0))
        await world.client.create(api.SLICES, a_slice(node, gpus))


def a_job(name: str, world: JobsWorld, template: str, **changes: Any) -> Object:
    workers = changes.pop("workers", changes["least"])
    return an_indexed_job(name, world.namespace, workers, gpus=0, worker_spec=claims_of(template), **changes)


async def devices_of(world: World, pod: Object) -> tuple[str, int]:
    """Return the pool, which is the node, and the number of the devices that a pod was given."""
    [status] = pod["status"]["resourceClaimStatuses"]
    claim = await world.client.get(api.CLAIMS, status["resourceClaimName"], world.namespace)
    results = claim["status"]["allocation"]["devices"]["results"]
    [pool] = {each["pool"] for each in results}
    return pool, len(results)

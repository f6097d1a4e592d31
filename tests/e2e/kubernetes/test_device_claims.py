"""GPUs that jobs claim (dynamic resource allocation), allocated by the real kube-scheduler from ResourceSlices."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.service import Voda, voda
from tests.e2e.kubernetes.test_jobs_submitted import submit
from tests.kube import client as api
from tests.kube.assets import IS_OLD
from tests.kube.client import Object
from tests.kube.devices import CLASS, a_claim_template, a_device_class, a_slice, claims_of
from tests.kube.objects import a_jobset, a_node, a_pod, a_pytorchjob, an_indexed_job, an_mpijob
from tests.kube.peers.jobs_world import JobsWorld
from tests.kube.peers.world import PeeredWorld
from tests.kube.world import World
from voda.events.types import WorkerExited, WorkerRefused

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
            return it.service.view.live.cluster.state("v100").silent_since

        await world.client.delete(api.SLICES, "gpu-2-gpus")
        await world.until(lambda: silent_since().keys() == {"gpu-2"})
        await world.until(lambda: it.service.clock.now() > silent_since()["gpu-2"] + 3.0)
        await world.client.create(api.SLICES, a_slice("gpu-2", 2))
        await world.until(lambda: not silent_since())
        await it.until_runs("a", 6)
        assert {pod["metadata"]["uid"] for pod in await world.pods_of("a")} == before
        assert await it.facts(WorkerExited) == []


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

    async def is_bound() -> bool:
        return bool((await world.client.get(api.PODS, "other", world.namespace))["spec"].get("nodeName"))

    await world.until_it_is(is_bound)
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


async def is_told(world: JobsWorld, name: str, reason: str, text: str) -> bool:
    return any(text in said for said in await world.told(name, reason))


async def is_known(it: Voda, name: str) -> bool:
    return it.job(it.id(name)) is not None


async def is_held_up(it: Voda, name: str, text: str) -> bool:
    record = it.service.view.job_registry.job(it.id(name))
    return record is not None and text in record.obstacle


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

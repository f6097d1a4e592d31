"""Pods that claim parts of GPUs: voda chooses the GPU, and the real kube-scheduler allocates it.

Rule: the pods are those of examples/kubernetes/shared-claims.yaml.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kubernetes.replica import Replica
from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client as api
from tests.kube import deployed
from tests.kube.assets import IS_OLD, ROOT
from tests.kube.client import Object
from tests.kube.devices import CLASS, a_device_class, a_gpu, a_slice
from tests.kube.objects import a_node, a_pod
from tests.kube.operators.base import phase_of
from tests.kube.peers.jobs_world import JobsWorld
from voda.domain.gpus import MILLI_PER_DEVICE, ContainerGpus, GpuRequest, Gpus
from voda.events.types import ShareAssigned, ShareReleased
from voda.kinds.quantities import milli
from voda.log.factory import open_log

pytestmark = pytest.mark.skipif(IS_OLD, reason="1.35 drops the fields by which devices are shared")

PRIORITY_CLASSES = api.Resource("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", is_namespaced=False)
DEPLOYMENTS = api.Resource("Deployment", "apps/v1", "deployments")
TEMPLATE, NOTEBOOK = yaml.safe_load_all((ROOT / "examples" / "kubernetes" / "shared-claims.yaml").read_text("utf-8"))
PART = (0, 400, 20_480)
"""What a pod has in the log: the GPU's index, milli, MiB."""
_MORTAL = str(Path(__file__).with_name("mortal.py"))
SETTINGS: Mapping[str, Any] = {
    "cluster": {"defaultPool": "default", "gpuDeviceClasses": [CLASS]},
    "sharing": {"claims": True, "rater": "binpack"},
}


@pytest.fixture
async def notebooks(jobs_world: JobsWorld) -> AsyncIterator[JobsWorld]:
    """The world, without the example's Deployment in the end: it would make its pods anew for ever."""
    yield jobs_world
    await jobs_world.client.delete(DEPLOYMENTS, NOTEBOOK["metadata"]["name"], jobs_world.namespace)


@asynccontextmanager
async def sharing_voda(world: JobsWorld, folder: Path) -> AsyncIterator[Voda]:
    async with voda(world, folder, **SETTINGS) as it:
        yield it


async def publish(world: JobsWorld, nodes: Mapping[str, int], **changes: Any) -> None:
    """Add the class, and nodes with so many GPUs that claims share, each of 1,000 milli and 80 GiB."""
    await world.client.create(api.DEVICE_CLASSES, a_device_class())
    await add_gpus(world, nodes, **changes)


async def add_gpus(world: JobsWorld, nodes: Mapping[str, int], **changes: Any) -> None:
    for node, gpus in nodes.items():
        await world.add_nodes(a_node(node, 0, **changes))
        await world.client.create(api.SLICES, a_slice(node, [a_gpu(node, number) for number in range(gpus)]))


async def deploy(world: JobsWorld, *, replicas: int, spec: Mapping[str, Any] | None = None) -> None:
    """Create the example in the world's namespace; `spec` has other fields of its pods."""
    deployment = deepcopy(NOTEBOOK)
    deployment["spec"]["replicas"] = replicas
    deployment["spec"]["template"]["spec"].update(spec or {})
    for resource, body in ((api.CLAIM_TEMPLATES, TEMPLATE), (DEPLOYMENTS, deployment)):
        metadata = {**body["metadata"], "namespace": world.namespace}
        await world.client.create(resource, {**body, "metadata": metadata})


def a_notebook(name: str, namespace: str, *, cpu: str) -> Object:
    """Return a pod as the example's, by itself, that needs so much CPU."""
    spec = deepcopy(NOTEBOOK["spec"]["template"]["spec"])
    spec["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


async def scale(world: JobsWorld, replicas: int) -> None:
    key = (world.namespace, NOTEBOOK["metadata"]["name"])
    await world.client.patch(DEPLOYMENTS, key, {"spec": {"replicas": replicas}})


async def gpus(world: JobsWorld) -> Mapping[str, str]:
    """Return pod that runs -> the GPU that its claim has, POOL/DEVICE; no GPU ever gives more than it has."""
    taken, found = Counter[str](), {}
    # First the pods: the claims of those that run have GPUs by then, unless the pod has gone meanwhile.
    pods = await world.client.list(api.PODS, world.namespace)
    claims = {each["metadata"]["name"]: each for each in await world.client.list(api.CLAIMS, world.namespace)}
    for claim in claims.values():
        for result in results(claim):
            assert result["shareID"]
            taken[f"{result['pool']}/{result['device']}"] += milli(result["consumedCapacity"]["milli"]) // 1_000
    assert max(taken.values(), default=0) <= MILLI_PER_DEVICE
    for pod in pods:
        if phase_of(pod) == "Running" and pod["spec"].get("resourceClaims"):
            [status] = pod["status"]["resourceClaimStatuses"]
            for result in results(claims.get(status["resourceClaimName"], {})):
                assert pod["spec"]["nodeName"] == result["pool"]
                found[pod["metadata"]["name"]] = f"{result['pool']}/{result['device']}"
    return found


def results(claim: Object) -> list[Object]:
    found: list[Object] = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return found


async def until_run(world: JobsWorld, pods: int) -> Mapping[str, str]:
    """Wait until so many pods run, and return them with their GPUs."""

    async def run() -> bool:
        return len(await gpus(world)) == pods

    await world.until_it_is(run, what=f"{pods} pods run")
    return await gpus(world)


async def typed(it: Voda, *arguments: str) -> str:
    """Return what a command shows to a user of a voda that runs."""
    program = (sys.executable, "-m", "voda", *arguments, "--server", it.service.url)
    process = await asyncio.create_subprocess_exec(*program, stdout=PIPE, stderr=STDOUT)
    text, _ = await process.communicate()
    assert process.returncode == 0, text.decode()
    return text.decode()


async def told(world: JobsWorld, reason: str) -> list[str]:
    events = await world.client.list(api.EVENTS, world.namespace)
    return [event["message"] for event in events if event["reason"] == reason]


def recorded(it: Voda) -> dict[str, dict[str, tuple[int, int, int]]]:
    """Return node -> pod -> GPU, milli and MiB, as the log has it."""
    nodes = it.service.view.cluster.shares.nodes.items()
    return {
        node: {
            each.pod.partition("/")[2]: (share.gpus[0], share.request.milli, share.request.memory_mib)
            for each in account.pods.values()
            for share in each.containers.values()
        }
        for node, account in nodes
    }


async def test_second_pod_shares_the_gpu_a_third_waits_and_a_restart_of_all_loses_nothing(
    notebooks: JobsWorld, tmp_path: Path
) -> None:
    world = notebooks
    await publish(world, {"gpu-1": 1})
    async with sharing_voda(world, tmp_path) as it:
        await deploy(world, replicas=3)
        running = await until_run(world, 2)
        assert set(running.values()) == {"gpu-1/gpu-0"}

        async def is_told() -> bool:
            room = "1 too little is left of the node's GPUs for gpu (400 milli, 20480 MiB)"
            return any(room in each for each in await told(world, "WaitsForGpus"))

        await world.until_it_is(is_told, what="the third pod is told why it waits")
        assert recorded(it) == {"gpu-1": dict.fromkeys(running, PART)}
        one, other = sorted(running)
        shown = await typed(it, "explain", f"{world.namespace}/{one}")
        assert f"{world.namespace}/{one}: Scheduled on gpu-1" in shown
        assert "gpu: 400 milli and 20,480 MiB of GPU 0 (gpu.example.com/gpu-1/gpu-0), beside" in shown
        (waits,) = [
            each["metadata"]["name"]
            for each in await world.client.list(api.PODS, world.namespace)
            if each["metadata"]["name"] not in running
        ]
        room = "1 too little is left of the node's GPUs for gpu (400 milli, 20480 MiB)"
        assert room in await typed(it, "describe", f"{world.namespace}/{waits}")
        node = await typed(it, "nodes", "describe", "gpu-1")
        assert "Driver: gpu.example.com, pool gpu-1" in node
        assert other in node
    world.plane.stop("kube-scheduler", "kube-apiserver")
    world.plane.start_api_server()
    world.plane.start_scheduler()
    async with sharing_voda(world, tmp_path) as it:
        assert recorded(it) == {"gpu-1": dict.fromkeys(running, PART)}
        assert await until_run(world, 2) == running
        # Its successor waits behind the pod that waits already.
        gone = min(running)
        await world.client.delete(api.PODS, gone, world.namespace, grace_s=0)
        await world.until(lambda: len(recorded(it)["gpu-1"].keys() - running.keys()) == 1)
        await until_run(world, 2)
        await scale(world, 0)
        await world.until(lambda: recorded(it) == {"gpu-1": {}})
        assert len({each.pod_uid for each in await it.facts(ShareAssigned)}) == 3
        assert len(await it.facts(ShareReleased)) == len(await it.facts(ShareAssigned))

        async def is_empty() -> bool:
            return not await world.client.list(api.CLAIMS, world.namespace)

        await world.until_it_is(is_empty, what="no claim is left")


async def test_pod_that_does_not_fit_where_its_gpu_is_moves_to_another_node_and_others_claims_count(
    notebooks: JobsWorld, tmp_path: Path
) -> None:
    world = notebooks
    await publish(world, {"gpu-1": 1}, cpu=2)
    await world.client.create(api.PODS, a_pod("busy", world.namespace, node="gpu-1", cpu="1"))
    await deploy(world, replicas=0, spec={"schedulingGates": None})
    async with sharing_voda(world, tmp_path) as it:
        await scale(world, 1)
        # kube-scheduler alone has placed it, and voda does not give its part away.
        (other,) = await until_run(world, 1)
        await world.until(lambda: recorded(it) == {"gpu-1": {other: PART}})
        await world.client.create(api.PODS, a_notebook("mine", world.namespace, cpu="2"))
        await world.until(lambda: "mine" in recorded(it)["gpu-1"])
        await add_gpus(world, {"gpu-2": 1}, cpu=4)
        assert await until_run(world, 2) == {other: "gpu-1/gpu-0", "mine": "gpu-2/gpu-0"}
        await world.until(lambda: recorded(it) == {"gpu-1": {other: PART}, "gpu-2": {"mine": PART}})
        assert [each.node for each in await it.facts(ShareReleased)] == ["gpu-1"]


async def test_leader_that_dies_before_it_lifts_the_gate_leaves_the_pod_its_gpu_and_nothing_else(
    notebooks: JobsWorld, tmp_path: Path
) -> None:
    world = notebooks
    await publish(world, {"gpu-1": 1})
    home, log = tmp_path / "home", tmp_path / "home" / "voda.db"
    leader = {"namespace": deployed.NAMESPACE, "leaseSeconds": 1.0, "renewSeconds": 0.8, "retrySeconds": 0.1}
    # With the rights that the chart gives, and no other.
    kubeconfig = deployed.service_account_kubeconfig(world.plane, "sqlite", "--set", "sharedClaims.enabled=true")
    around: dict[str, Any] = {"settings": {**SETTINGS, "leader": leader}, "kubeconfig": kubeconfig}
    await deploy(world, replicas=1)
    # Before and after all other writes: tests/integration/memory_cluster/sharing/test_claims_in_cluster.py.
    death = {"MORTAL": "after patch pods/status 1"}
    first = Replica(world, home, str(log), program=(_MORTAL,), environment=death, **around)
    await world.until(lambda: first.process.poll() is not None, what="the first leader is dead")
    assert first.process.returncode == 137, first.text
    last = Replica(world, home, str(log), **around)
    try:
        await until_run(world, 1)

        async def has_one_claim() -> bool:
            return len(await world.client.list(api.CLAIMS, world.namespace)) == 1

        await world.until_it_is(has_one_claim, what="the claim after the template is gone")
        await scale(world, 0)
        await world.until(lambda: "share.released" in last.text)
    finally:
        last.terminate()
        last.process.wait(30)
    store = await open_log(log)
    try:
        events = await store.read(0, 10_000, stream="shares.gpu-1")
    finally:
        await store.close()
    assert [type(event.data) for event in events] == [ShareAssigned, ShareReleased]


async def test_gpu_is_found_beside_one_that_lacks_the_attribute_by_which_gpus_are_selected(
    notebooks: JobsWorld, tmp_path: Path
) -> None:
    world = notebooks
    await world.client.create(api.DEVICE_CLASSES, a_device_class())
    await world.add_nodes(a_node("n1", 0))
    nameless, named = a_gpu("n1", 0), a_gpu("n1", 1)
    del nameless["attributes"]["uuid"]
    await world.client.create(api.SLICES, a_slice("n1", [nameless, named]))
    async with sharing_voda(world, tmp_path):
        await deploy(world, replicas=1)
        assert set((await until_run(world, 1)).values()) == {"n1/gpu-1"}


async def test_pod_that_finds_no_cpu_beside_its_gpu_and_may_not_preempt_keeps_its_node_from_no_other_pod(
    notebooks: JobsWorld, tmp_path: Path
) -> None:
    world = notebooks
    await publish(world, {"gpu-1": 1}, cpu=2)
    await deploy(world, replicas=0)
    await world.client.create(
        PRIORITY_CLASSES, {"metadata": {"name": "polite"}, "value": 1, "preemptionPolicy": "Never"}
    )
    async with sharing_voda(world, tmp_path):
        await world.client.create(api.PODS, a_pod("first", world.namespace, cpu="1500m"))
        await until_runs(world, "first")
        mine = a_notebook("mine", world.namespace, cpu="1")
        mine["spec"]["priorityClassName"] = "polite"
        await world.client.create(api.PODS, mine)

        async def is_unschedulable() -> bool:
            pod = await world.client.get(api.PODS, "mine", world.namespace)
            return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ()))

        await world.until_it_is(is_unschedulable, what="kube-scheduler finds no CPU for the pod")
        await world.client.create(api.PODS, a_pod("second", world.namespace, cpu="400m"))
        await until_runs(world, "second")
        await world.client.delete(api.PODS, "first", world.namespace, grace_s=0)
        await until_runs(world, "mine")


async def test_pod_that_claims_several_whole_gpus_gets_close_ones_and_a_part_beside_them_keeps_its_request(
    notebooks: JobsWorld, tmp_path: Path
) -> None:
    world = notebooks
    await world.client.create(api.DEVICE_CLASSES, a_device_class())
    await world.add_nodes(a_node("n1", 0))
    there = [a_gpu("n1", number) for number in range(5)]
    for number, gpu in enumerate(there):
        gpu["attributes"]["resource.kubernetes.io/pcieRoot"] = {"string": f"pci0000:{number % 2}0"}
    await world.client.create(api.SLICES, a_slice("n1", there))
    part = {"deviceClassName": CLASS, "capacity": {"requests": {"milli": "400", "memory": "20Gi"}}}
    pair = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 2}
    requests = [{"name": "pair", "exactly": pair}, {"name": "part", "exactly": part}]
    await claim(world, "both", requests)
    await claim(world, "four", [{"name": "gpu", "exactly": {"deviceClassName": CLASS, "count": 4}}])
    await claim(world, "all", [{"name": "gpu", "exactly": {"deviceClassName": CLASS, "allocationMode": "All"}}])
    async with voda(world, tmp_path, **{**SETTINGS, "sharing": {"claims": True, "rater": "topology"}}) as it:
        await world.client.create(api.PODS, claiming(world, "a", "both", "pair", "part"))
        await until_runs(world, "a")
        share = next(iter(it.service.view.cluster.shares.nodes["n1"].pods.values()))
        assert share.containers["gpu/pair"] == ContainerGpus(gpus=(1, 3), request=GpuRequest(devices=Gpus(2)))
        [given] = [each for each in await world.client.list(api.CLAIMS, world.namespace) if results(each)]
        by_request = Counter(each["request"] for each in results(given))
        assert by_request == {"pair": 2, "part": 1}
        assert {each["device"] for each in results(given) if each["request"] == "pair"} == {"gpu-1", "gpu-3"}
        await world.client.create(api.PODS, claiming(world, "b", "four"))
        await world.client.create(api.PODS, claiming(world, "c", "all"))

        async def are_told() -> bool:
            told_ = await told(world, "WaitsForGpus")
            room = "too little is left of the node's GPUs for gpu (4 whole GPUs)"
            return all(any(each in one for one in told_) for each in (room, "allocationMode All takes whatever"))

        await world.until_it_is(are_told, what="both are told why they wait")
        await world.client.delete(api.PODS, "a", world.namespace, grace_s=0)
        await until_runs(world, "b")
        [share] = it.service.view.cluster.shares.nodes["n1"].pods.values()
        assert share.containers["gpu"].request == GpuRequest(devices=Gpus(4))


async def test_pod_whose_claim_somebody_deletes_gets_as_many_gpus_and_the_log_has_these(
    notebooks: JobsWorld, tmp_path: Path
) -> None:
    world = notebooks
    await publish(world, {"gpu-1": 3}, cpu=2)
    await claim(world, "pair", [{"name": "gpu", "exactly": {"deviceClassName": CLASS, "count": 2}}])
    await world.client.create(api.PODS, a_pod("busy", world.namespace, node="gpu-1", cpu="1500m"))
    async with sharing_voda(world, tmp_path) as it:
        await world.client.create(api.PODS, claiming(world, "mine", "pair"))

        async def is_pinned() -> bool:
            pod = await world.client.get(api.PODS, "mine", world.namespace)
            return "voda.dev/cards" in pod["metadata"].get("annotations", {})

        await world.until_it_is(is_pinned, what="its claim selects two GPUs")
        for each in await world.client.list(api.CLAIMS, world.namespace):
            await world.client.delete(api.CLAIMS, each["metadata"]["name"], world.namespace)
        await world.client.delete(api.PODS, "busy", world.namespace, grace_s=0)
        await until_runs(world, "mine")

        async def is_one_claim() -> bool:
            return len(await world.client.list(api.CLAIMS, world.namespace)) == 1

        await world.until_it_is(is_one_claim, what="one claim is left")
        [given] = await world.client.list(api.CLAIMS, world.namespace)
        # kube-controller-manager makes it anew, and kube-scheduler may be faster than voda.
        gpus = tuple(sorted(int(each["device"].removeprefix("gpu-")) for each in results(given)))
        pair = ContainerGpus(gpus=gpus, request=GpuRequest(devices=Gpus(2)))
        account = it.service.view.cluster.shares.nodes["gpu-1"]
        await world.until(lambda: [each.containers for each in account.pods.values()] == [{"gpu": pair}])


async def claim(world: JobsWorld, name: str, requests: list[Object]) -> None:
    """Add a template of claims with these requests."""
    metadata = {"name": name, "namespace": world.namespace}
    body = {"metadata": metadata, "spec": {"spec": {"devices": {"requests": requests}}}}
    await world.client.create(api.CLAIM_TEMPLATES, body)


def claiming(world: JobsWorld, name: str, template: str, *requests: str) -> Object:
    """Return a pod with the gate that claims after a template; each of the requests is for a container of its own."""
    pod = a_notebook(name, world.namespace, cpu="1")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    [container] = pod["spec"]["containers"]
    named = [
        {**container, "name": each, "resources": {"claims": [{"name": "gpu", "request": each}]}} for each in requests
    ]
    pod["spec"]["containers"] = named or [container]
    return pod


async def until_runs(world: JobsWorld, name: str) -> None:
    async def runs() -> bool:
        return phase_of(await world.client.get(api.PODS, name, world.namespace)) == "Running"

    await world.until_it_is(runs, what=f"pod {name} runs")

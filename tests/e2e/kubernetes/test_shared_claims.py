"""Pods that claim parts of cards: voda chooses the card, and the real kube-scheduler allocates it.

Rule: the pods are those of examples/kubernetes/shared-claims.yaml.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client as api
from tests.kube.assets import IS_OLD, ROOT
from tests.kube.client import Object
from tests.kube.devices import CLASS, a_card, a_device_class, a_slice
from tests.kube.objects import a_node
from tests.kube.operators.base import phase_of
from tests.kube.peers.jobs_world import JobsWorld
from voda.domain.gpus import MILLI_PER_DEVICE
from voda.events.types import ShareAssigned, ShareReleased

pytestmark = pytest.mark.skipif(IS_OLD, reason="1.35 drops the fields by which devices are shared")

DEPLOYMENTS = api.Resource("Deployment", "apps/v1", "deployments")
TEMPLATE, NOTEBOOK = yaml.safe_load_all((ROOT / "examples" / "kubernetes" / "shared-claims.yaml").read_text("utf-8"))
SETTINGS: Mapping[str, Any] = {
    "cluster": {"defaultPool": "default", "gpuDeviceClasses": [CLASS]},
    "sharing": {"claims": True, "rater": "binpack"},
}


@asynccontextmanager
async def sharing_voda(world: JobsWorld, folder: Path) -> AsyncIterator[Voda]:
    async with voda(world, folder, **SETTINGS) as it:
        yield it


async def publish(world: JobsWorld, nodes: Mapping[str, int], **changes: Any) -> None:
    """Add nodes with so many cards that claims share, each of 1,000 milli and 80 GiB."""
    await world.client.create(api.DEVICE_CLASSES, a_device_class())
    for node, cards in nodes.items():
        await world.add_nodes(a_node(node, 0, **changes))
        await world.client.create(api.SLICES, a_slice(node, [a_card(node, number) for number in range(cards)]))


async def deploy(world: JobsWorld, *, replicas: int) -> None:
    """Create the example in the world's namespace."""
    for resource, body in ((api.CLAIM_TEMPLATES, TEMPLATE), (DEPLOYMENTS, NOTEBOOK)):
        metadata = {**body["metadata"], "namespace": world.namespace}
        await world.client.create(resource, {**body, "metadata": metadata})
    await scale(world, replicas)


async def scale(world: JobsWorld, replicas: int) -> None:
    key = (world.namespace, NOTEBOOK["metadata"]["name"])
    await world.client.patch(DEPLOYMENTS, key, {"spec": {"replicas": replicas}})


async def cards(world: JobsWorld) -> Mapping[str, str]:
    """Return pod that runs -> the card that its claim has, POOL/DEVICE; no card ever gives more than it has."""
    taken, found = Counter[str](), {}
    claims = {each["metadata"]["name"]: each for each in await world.client.list(api.CLAIMS, world.namespace)}
    for claim in claims.values():
        for result in results(claim):
            assert result["shareID"]
            taken[f"{result['pool']}/{result['device']}"] += int(result["consumedCapacity"]["milli"])
    assert max(taken.values(), default=0) <= MILLI_PER_DEVICE
    for pod in await world.client.list(api.PODS, world.namespace):
        if phase_of(pod) == "Running":
            [status] = pod["status"]["resourceClaimStatuses"]
            [result] = results(claims[status["resourceClaimName"]])
            assert pod["spec"]["nodeName"] == result["pool"]
            found[pod["metadata"]["name"]] = f"{result['pool']}/{result['device']}"
    return found


def results(claim: Object) -> list[Object]:
    found: list[Object] = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return found


async def until_run(world: JobsWorld, pods: int) -> Mapping[str, str]:
    """Wait until so many pods run, and return them with their cards."""

    async def run() -> bool:
        return len(await cards(world)) == pods

    await world.until_it_is(run, what=f"{pods} pods run")
    return await cards(world)


async def told(world: JobsWorld, reason: str) -> list[str]:
    events = await world.client.list(api.EVENTS, world.namespace)
    return [event["message"] for event in events if event["reason"] == reason]


def recorded(it: Voda) -> dict[str, dict[str, tuple[int, int, int]]]:
    """Return node -> pod -> card, milli and MiB, as the log has it."""
    nodes = it.service.view.live.cluster.shares.nodes.items()
    return {
        node: {
            each.pod.partition("/")[2]: (share.cards[0], share.request.milli, share.request.memory_mib)
            for each in account.pods.values()
            for share in each.containers.values()
        }
        for node, account in nodes
    }


async def test_second_pod_shares_the_card_a_third_waits_and_a_restart_of_all_loses_nothing(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 1})
    async with sharing_voda(world, tmp_path) as it:
        await deploy(world, replicas=3)
        running = await until_run(world, 2)
        assert set(running.values()) == {"gpu-1/gpu-0"}

        async def is_told() -> bool:
            room = "1 too little is left of the node's cards for gpu (400 milli, 20480 MiB)"
            return any(room in each for each in await told(world, "WaitsForCards"))

        await world.until_it_is(is_told, what="the third pod is told why it waits")
        assert recorded(it) == {"gpu-1": dict.fromkeys(running, (0, 400, 20_480))}
    world.plane.stop("kube-scheduler", "kube-apiserver")
    world.plane.start_api_server()
    world.plane.start_scheduler()
    async with sharing_voda(world, tmp_path) as it:
        assert recorded(it) == {"gpu-1": dict.fromkeys(running, (0, 400, 20_480))}
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

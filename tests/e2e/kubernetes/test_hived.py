"""Pods with HiveD's annotations on the real kube-scheduler, whose extender is voda."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.objects import a_node, a_pod, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld
from tests.kube.world import World
from tests.ports import free_port
from voda.events.types import GangJoined, GangLeft, GangPlaced
from voda.hived.bind_info import ISOLATION
from voda.hived.pod_request import SCHEDULING_SPEC

ENABLE = "hivedscheduler.microsoft.com/pod-scheduling-enable"
SCHEDULER = "hived-scheduler"
TEAMS = """
pool: v100
virtualClusters:
  vision: {cells: {node: 1}}
  speech: {cells: {node: 1}}
"""


@pytest.fixture
def port(jobs_world: JobsWorld) -> Iterator[int]:
    """Yield the port of a voda to which one more kube-scheduler sends the pods that name it."""
    port = free_port()
    extender = {
        "urlPrefix": f"http://kube-scheduler:token@127.0.0.1:{port}/v1/extender",
        "filterVerb": "filter",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "httpTimeout": "10s",
        "nodeCacheCapable": True,
        "managedResources": [{"name": ENABLE, "ignoredByScheduler": True}],
    }
    configuration = {
        "profiles": [{"schedulerName": SCHEDULER}],
        "extenders": [extender],
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
    }
    jobs_world.plane.start_another_scheduler(SCHEDULER, configuration)
    yield port
    jobs_world.plane.stop(SCHEDULER)


@asynccontextmanager
async def scheduling_voda(world: World, folder: Path, port: int) -> AsyncIterator[Voda]:
    async with voda(world, folder, listen={"host": "127.0.0.1", "port": port}) as it:
        yield it


async def apply(it: Voda) -> None:
    """Give each team a node, once both nodes are known."""

    async def are_known() -> bool:
        return len(it.service.view.cluster.nodes("v100")) == 2

    await it.until(are_known)
    headers = {"Content-Type": "application/yaml"}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
        session.put(f"{it.service.url}/api/v1/virtual-clusters", data=TEAMS, headers=headers) as answer,
    ):
        assert answer.status == 200, await answer.text()


async def create_gang(world: World, name: str, pods: int, leafs: int, **spec: Any) -> Sequence[str]:
    """Create the pods of an affinity group; return their names."""
    names = [f"{name}-{number}" for number in range(pods)]
    for pod in names:
        await create_pod(world, name, pod, (pods, leafs), **spec)
    return names


async def create_pod(world: World, gang: str, name: str, size: tuple[int, int], **spec: Any) -> None:
    pods, leafs = size
    priority_class = spec.pop("priority_class", "")
    request = {
        "virtualCluster": "vision",
        "priority": 0,
        "leafCellNumber": leafs,
        "affinityGroup": {"name": gang, "members": [{"podNumber": pods, "leafCellNumber": leafs}]},
        **spec,
    }
    pod = a_pod(name, world.namespace, gpus=leafs, annotations={SCHEDULING_SPEC: json.dumps(request)})
    resources = pod["spec"]["containers"][0]["resources"]
    for amounts in resources.values():
        amounts[ENABLE] = "1"
    pod["spec"] |= {"schedulerName": SCHEDULER, **({"priorityClassName": priority_class} if priority_class else {})}
    await world.client.create(api.PODS, pod)


async def found(world: World, names: Sequence[str]) -> Sequence[Object]:
    pods = {pod["metadata"]["name"]: pod for pod in await world.client.list(api.PODS, world.namespace)}
    return [pods[name] for name in names if name in pods]


async def until_run(it: Voda, names: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    """Wait until pods run; return node and devices of each."""

    async def run() -> bool:
        pods = await found(it.world, names)
        return len(pods) == len(names) and all(pod["status"].get("phase") == "Running" for pod in pods)

    await it.until(run)
    pods = await found(it.world, names)
    return {
        pod["metadata"]["name"]: (pod["spec"]["nodeName"], pod["metadata"]["annotations"][ISOLATION]) for pod in pods
    }


async def until_said(it: Voda, pod: str, sentence: str) -> None:
    """Wait until an Event about a pod has a sentence."""

    async def is_said() -> bool:
        events = await it.world.client.list(api.EVENTS, it.world.namespace)
        return any(sentence in str(e["message"]) for e in events if e["involvedObject"].get("name") == pod)

    await it.until(is_said)


async def delete(world: World, names: Sequence[str]) -> None:
    for name in names:
        await world.client.delete(api.PODS, name, world.namespace)


async def test_gang_has_its_cells_the_next_one_waits_for_them_and_a_restart_loses_neither(
    jobs_world: JobsWorld, tmp_path: Path, port: int
) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 4), a_node("gpu-2", 4))
    async with scheduling_voda(world, tmp_path, port) as it:
        await apply(it)
        await create_pod(world, "first", "first-0", (2, 2))
        (place,) = (await until_run(it, ["first-0"])).values()
    async with scheduling_voda(world, tmp_path, port) as it:
        await create_pod(world, "first", "first-1", (2, 2))
        places = await until_run(it, ["first-0", "first-1"])
        assert places["first-0"] == place
        assert {node for node, _ in places.values()} == {place[0]}
        assert {devices for _, devices in places.values()} == {"0,1", "2,3"}
        second = await create_gang(world, "second", 2, 2)
        await until_said(it, "second-0", "too few cells of the virtual cluster's quota are free")
        assert not any(pod["spec"].get("nodeName") for pod in await found(world, second))
        await delete(world, ["first-0", "first-1"])
        assert len({node for node, _ in (await until_run(it, second)).values()}) == 1
        assert len(await it.facts(GangPlaced)) == 2
        assert [fact.slot for fact in await it.facts(GangJoined)] == [0, 1, 0, 1]
        assert {fact.pod for fact in await it.facts(GangLeft)} == {f"{world.namespace}/first-{n}" for n in range(2)}


async def test_opportunistic_gang_is_preempted_by_kube_scheduler_for_a_guaranteed_pod(
    jobs_world: JobsWorld, tmp_path: Path, port: int
) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 4), a_node("gpu-2", 4))
    for name, value in (("hived-idle", -10), ("hived-guaranteed", 10)):
        if await world.client.find(api.PRIORITIES, name) is None:
            await world.client.create(api.PRIORITIES, {"metadata": {"name": name}, "value": value})
    async with scheduling_voda(world, tmp_path, port) as it:
        await apply(it)
        idle = await create_gang(world, "idle", 2, 4, priority=-1, virtualCluster="speech", priority_class="hived-idle")
        assert len({node for node, _ in (await until_run(it, idle)).values()}) == 2
        high = await create_gang(world, "high", 1, 4, priority_class="hived-guaranteed")
        await until_run(it, high)
        left = {fact.pod for fact in await it.facts(GangLeft)}
        assert left
        assert left <= {f"{world.namespace}/{name}" for name in idle}


async def test_elastic_job_leaves_the_cells_that_it_has_borrowed_to_the_pods_that_are_guaranteed_them(
    jobs_world: JobsWorld, tmp_path: Path, port: int
) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 4), a_node("gpu-2", 4))
    async with scheduling_voda(world, tmp_path, port) as it:
        await apply(it)
        notes = {"voda.dev/virtual-cluster": "speech"}
        await world.submit(an_indexed_job("elastic", world.namespace, 1, least=1, most=8, annotations=notes))
        await it.until_runs("elastic", 8)
        gang = await create_gang(world, "first", 2, 2)
        places = await until_run(it, gang)
        await it.until_runs("elastic", 4)
        (node,) = {node for node, _ in places.values()}
        assert node not in it.nodes(it.id("elastic"))
        await delete(world, gang)
        await it.until_runs("elastic", 8)

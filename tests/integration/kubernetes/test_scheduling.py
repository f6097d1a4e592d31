"""What becomes of gated pods: the cluster in memory does with them what the real API server and kube-scheduler do."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.kube import client as api
from tests.kube.client import Object, Refused
from tests.kube.control_plane import ControlPlane
from tests.kube.memory_world import MemoryWorld
from tests.kube.objects import a_node, a_pod
from tests.kube.stand_in_world import StandInWorld
from tests.virtual_time import virtually
from voda.cluster.kubernetes.well_known import GATE, HOSTNAME

GATES = {"schedulingGates": [{"name": GATE}, {"name": "example.com/quota"}]}


async def scenario(world: StandInWorld) -> Sequence[Any]:
    """Play all that can happen to gated pods, and return what was seen."""
    await world.add_nodes(a_node("n1", 2), a_node("n2", 2))
    return [
        await _gated(world),
        await _patched(world, "gated", {"schedulingGates": [{"name": GATE}], "nodeSelector": {HOSTNAME: "n2"}}),
        await _patched(world, "gated", {"nodeSelector": {HOSTNAME: "n1"}}),
        await _patched(world, "gated", {"schedulingGates": [{"name": GATE}, {"name": "example.com/other"}]}),
        await _patched(world, "gated", {"schedulingGates": []}),
        await _settled(world, "gated"),
        await _patched(world, "gated", {"nodeSelector": {"disk": "ssd"}}),
        await _placed(world, "elsewhere", "n9"),
        await _placed(world, "too-large", "n1", gpus=3),
        await _placed(world, "other", "n1", gpus=2),
        await _placed(world, "late", "n1", gpus=1),
        await _freed(world),
        await _cordoned(world),
    ]


async def _gated(world: StandInWorld) -> Sequence[Any]:
    await world.client.create(api.PODS, a_pod("gated", world.namespace, gpus=1, spec=GATES))
    body = {"metadata": {"name": "gated"}, "target": {"kind": "Node", "name": "n1"}}
    with pytest.raises(Refused) as refused:
        await world.client.request("POST", api.PODS.path(world.namespace, "gated", "binding"), body=body)
    return refused.value.status, await _condition(world, "gated")


async def _placed(world: StandInWorld, name: str, node: str, gpus: int = 1) -> Any:
    spec = {"schedulingGates": [{"name": GATE}]}
    await world.client.create(api.PODS, a_pod(name, world.namespace, gpus=gpus, spec=spec))
    assert await _patched(world, name, {"schedulingGates": [], "nodeSelector": {HOSTNAME: node}}) == 200
    return await _settled(world, name)


async def _freed(world: StandInWorld) -> Any:
    await world.client.delete(api.PODS, "other", world.namespace)
    return await _bound(world, "late")


async def _cordoned(world: StandInWorld) -> Any:
    await world.cordon("n2")
    refused = await _placed(world, "kept-out", "n2")
    await world.cordon("n2", is_cordoned=False)
    return refused, await _bound(world, "kept-out")


async def _patched(world: StandInWorld, name: str, spec: Object) -> int:
    try:
        await world.client.patch(api.PODS, (world.namespace, name), {"spec": spec})
    except Refused as refused:
        return refused.status
    return 200


async def _condition(world: StandInWorld, name: str) -> tuple[str, str, str]:
    """Return node, reason why none, and whether the message names GPUs."""
    pod = await world.client.get(api.PODS, name, world.namespace)
    scheduled = [each for each in pod["status"].get("conditions", ()) if each["type"] == "PodScheduled"]
    [condition] = scheduled or [{}]
    about = "GPUs" if "Insufficient nvidia.com/gpu" in condition.get("message", "") else ""
    return pod["spec"].get("nodeName", ""), condition.get("reason", ""), about


async def _settled(world: StandInWorld, name: str) -> Any:
    """Return the condition of a pod once the scheduler has looked at it."""

    async def is_settled() -> bool:
        node, reason, _ = await _condition(world, name)
        return bool(node) or reason == "Unschedulable"

    await world.until_it_is(is_settled)
    return await _condition(world, name)


async def _bound(world: StandInWorld, name: str) -> str:
    async def is_bound() -> bool:
        return bool((await _condition(world, name))[0])

    await world.until_it_is(is_bound)
    return (await _condition(world, name))[0]


SEEN: Sequence[Any] = [
    (409, ("", "SchedulingGated", "")),
    200,
    422,
    422,
    200,
    ("n2", "", ""),
    422,
    ("", "Unschedulable", ""),
    ("", "Unschedulable", "GPUs"),
    ("n1", "", ""),
    ("", "Unschedulable", "GPUs"),
    "n1",
    (("", "Unschedulable", ""), "n2"),
]


async def test_gated_pods_on_the_real_control_plane(control_plane: ControlPlane) -> None:
    async with StandInWorld(control_plane, []) as world:
        assert await scenario(world) == SEEN


def test_gated_pods_in_memory() -> None:
    async def play() -> Sequence[Any]:
        async with MemoryWorld(1, []) as world:
            return await scenario(world)

    assert virtually(play()) == SEEN

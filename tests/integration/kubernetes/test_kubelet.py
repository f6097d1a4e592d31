"""The stand-in for kubelets does what kubelets do, on the real API server with the real scheduler and controllers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.control_plane import ControlPlane
from tests.kube.kubelet import EXIT_CODE, RUNS_FOR_S, Ending, Kubelet
from tests.kube.objects import a_node, a_pod
from tests.kube.operators.base import phase_of
from tests.kube.stand_in_world import StandInWorld


@pytest.fixture
async def bare(control_plane: ControlPlane) -> AsyncIterator[StandInWorld]:
    """A cluster without operators."""
    async with StandInWorld(control_plane, []) as made:
        yield made


async def pod(world: StandInWorld, name: str = "p") -> Object:
    return await world.client.get(api.PODS, name, world.namespace)


async def until_phase(world: StandInWorld, phase: str, name: str = "p") -> None:
    async def is_so() -> bool:
        return phase_of(await pod(world, name)) == phase

    await world.until_it_is(is_so)


async def until_gone(world: StandInWorld, name: str = "p") -> None:
    async def is_gone() -> bool:
        return await world.client.find(api.PODS, name, world.namespace) is None

    await world.until_it_is(is_gone)


async def a_running_pod(world: StandInWorld, **changes: Any) -> None:
    await world.add_node("n1")
    await world.client.create(api.PODS, a_pod("p", world.namespace, **changes))
    await until_phase(world, "Running")


async def test_pod_when_scheduled_runs_and_is_ready(bare: StandInWorld) -> None:
    await a_running_pod(bare, gpus=1)
    status = (await pod(bare))["status"]
    assert status["podIP"]
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
    assert status["containerStatuses"][0]["state"]["running"]["startedAt"]


async def test_pod_when_bound_by_another_scheduler_runs_where_it_was_bound(bare: StandInWorld) -> None:
    await bare.add_nodes(a_node("n1"), a_node("n2"))
    await bare.client.create(api.PODS, a_pod("p", bare.namespace, spec={"schedulerName": "voda"}))
    await bare.bind("p", "n2")
    await until_phase(bare, "Running")
    assert (await pod(bare))["spec"]["nodeName"] == "n2"


async def test_pod_when_unbound_stays_pending_and_goes_at_once_when_deleted(bare: StandInWorld) -> None:
    await bare.client.create(api.PODS, a_pod("p", bare.namespace, spec={"schedulerName": "voda"}))
    assert phase_of(await pod(bare)) == "Pending"
    await bare.client.delete(api.PODS, "p", bare.namespace)
    await until_gone(bare)


async def test_pod_when_deleted_terminates_for_its_grace_and_is_gone(bare: StandInWorld) -> None:
    bare.kubelet.grace_s = 2.0
    await a_running_pod(bare)
    began = asyncio.get_running_loop().time()
    await bare.client.delete(api.PODS, "p", bare.namespace)
    assert "deletionTimestamp" in (await pod(bare))["metadata"]
    await until_gone(bare)
    assert asyncio.get_running_loop().time() - began >= 2.0


async def test_pod_when_its_script_says_so_ends_by_itself(bare: StandInWorld) -> None:
    notes = {RUNS_FOR_S: "0.05", EXIT_CODE: "3"}
    await bare.add_node("n1")
    await bare.client.create(api.PODS, a_pod("p", bare.namespace, annotations=notes, spec={"restartPolicy": "Never"}))
    await until_phase(bare, "Failed")
    state = (await pod(bare))["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["exitCode"] == 3


async def test_pod_when_a_test_gives_the_script_follows_it(control_plane: ControlPlane) -> None:
    def kubelet(client: api.Client) -> Kubelet:
        return Kubelet(client, script=lambda pod: Ending(0.0))

    async with StandInWorld(control_plane, [], kubelet) as world:
        await world.add_node("n1")
        await world.client.create(api.PODS, a_pod("p", world.namespace, spec={"restartPolicy": "OnFailure"}))
        await until_phase(world, "Succeeded")


async def test_program_when_it_fails_under_on_failure_is_restarted_in_its_pod(bare: StandInWorld) -> None:
    await a_running_pod(bare, spec={"restartPolicy": "OnFailure"})
    await bare.kubelet.exit(bare.namespace, "p", 1)
    status = (await pod(bare))["status"]
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["restartCount"] == 1
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1


async def test_pod_when_evicted_fails_and_stays_on_its_node(bare: StandInWorld) -> None:
    await a_running_pod(bare)
    await bare.kubelet.evict(bare.namespace, "p")
    found = await pod(bare)
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "Evicted")
    assert found["spec"]["nodeName"] == "n1"


async def test_pod_when_its_nodes_kubelet_is_dead_goes_only_when_that_is_back(bare: StandInWorld) -> None:
    await a_running_pod(bare)
    bare.kubelet.lose("n1")
    await bare.client.delete(api.PODS, "p", bare.namespace)
    await bare.add_node("n2")
    await bare.client.create(api.PODS, a_pod("other", bare.namespace, node="n2"))
    await until_phase(bare, "Running", "other")
    assert "deletionTimestamp" in (await pod(bare))["metadata"]
    bare.kubelet.restore("n1")
    await until_gone(bare)


async def test_node_when_cordoned_or_not_ready_is_tainted_by_the_real_controller(bare: StandInWorld) -> None:
    await bare.add_nodes(a_node("n1"), a_node("n2"))
    await bare.cordon("n1")
    await bare.set_ready("n2", False)

    async def taints(node: str) -> set[str]:
        found = await bare.client.get(api.NODES, node)
        return {taint["key"] for taint in found["spec"].get("taints", ())}

    async def are_tainted() -> bool:
        return await taints("n1") == {"node.kubernetes.io/unschedulable"} and await taints("n2") == {
            "node.kubernetes.io/not-ready"
        }

    await bare.until_it_is(are_tainted)
    await bare.cordon("n1", False)
    await bare.set_ready("n2", True)

    async def are_free() -> bool:
        return not await taints("n1") and not await taints("n2")

    await bare.until_it_is(are_free)


async def test_pod_when_its_container_ends_while_the_api_server_is_away_is_told_of_later(
    control_plane: ControlPlane, bare: StandInWorld
) -> None:
    notes = {RUNS_FOR_S: "0.5"}
    await a_running_pod(bare, annotations=notes, spec={"restartPolicy": "Never"})
    control_plane.kill("kube-apiserver")
    await asyncio.to_thread(control_plane.start_api_server)
    await until_phase(bare, "Succeeded")


@pytest.mark.slow
async def test_kubelet_when_two_hundred_pods_are_bound_runs_them(bare: StandInWorld) -> None:
    await bare.add_nodes(*(a_node(f"n{index}") for index in range(10)))
    async with asyncio.TaskGroup() as tasks:
        for index in range(200):
            body = a_pod(f"p{index}", bare.namespace, node=f"n{index % 10}")
            tasks.create_task(bare.client.create(api.PODS, body))

    async def are_running() -> bool:
        return all(phase_of(each) == "Running" for each in await bare.client.list(api.PODS, bare.namespace))

    await bare.until_it_is(are_running)

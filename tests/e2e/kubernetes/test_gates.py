"""Workers wait for their gates, on real operators with the real kube-scheduler: who lifts them, and what keeps them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client as api
from tests.kube.client import Object, Resource
from tests.kube.objects import a_node, a_pod, a_pytorchjob, an_mpijob
from tests.kube.world import World
from voda.cluster.kubernetes.well_known import GATE, HOSTNAME, NODE
from voda.events.types import ActionFailed, WorkerRefused

QUOTA = "example.com/quota"
BOTH = [
    pytest.param(an_mpijob, api.MPIJOBS, "mpiReplicaSpecs", id="MPIJob"),
    pytest.param(a_pytorchjob, api.PYTORCHJOBS, "pytorchReplicaSpecs", id="PyTorchJob"),
]
Make = Callable[..., Object]


def closed(pod: Object) -> set[str]:
    return {gate["name"] for gate in pod["spec"].get("schedulingGates", ())}


async def said(world: World, reason: str) -> str:
    events = await world.client.list(api.EVENTS, world.namespace)
    return "\n".join(str(each["message"]) for each in events if each["reason"] == reason)


@pytest.mark.parametrize(("make", "resource", "roles"), BOTH)
async def test_gate_that_somebody_else_lifts_is_closed_again_and_gates_of_others_are_theirs(
    world: World, tmp_path: Path, make: Make, resource: Resource, roles: str
) -> None:
    await world.add_nodes(a_node("gpu-1", 1), a_node("gpu-2", 1))
    async with voda(world, tmp_path) as it:
        gates = {"schedulingGates": [{"name": QUOTA}]}
        await world.submit(make("a", world.namespace, 2, least=2, most=2, worker_spec=gates))

        async def all_wait() -> bool:
            pods = await world.workers_of("a")
            return len(pods) == 2 and all(closed(pod) == {QUOTA, GATE} for pod in pods)

        await it.until(all_wait)
        first = (await world.workers_of("a"))[0]["metadata"]
        await world.client.patch(
            api.PODS, (world.namespace, first["name"]), {"spec": {"schedulingGates": [gates["schedulingGates"][0]]}}
        )

        async def is_another() -> bool:
            pods = await world.workers_of("a")
            return first["uid"] not in {pod["metadata"]["uid"] for pod in pods} and await all_wait()

        async def is_recorded() -> bool:
            return bool(await it.facts(ActionFailed, it.id("a")))

        await it.until(is_another)
        # The log has it once the deletion was answered: the operator may be faster.
        await it.until(is_recorded)
        [failed, *_] = await it.facts(ActionFailed, it.id("a"))
        assert f"the scheduling gate {GATE} of {first['name']} was lifted by somebody else" in failed.error

        async def is_told() -> bool:
            return failed.error in await said(world, "ActionFailed")

        await it.until(is_told)
        for pod in await world.workers_of("a"):
            name = pod["metadata"]["name"]
            await world.client.patch(api.PODS, (world.namespace, name), {"spec": {"schedulingGates": [{"name": GATE}]}})
        await it.until_runs("a", 2)
        for pod in await world.workers_of("a"):
            node = pod["spec"]["nodeName"]
            assert (pod["spec"]["nodeSelector"][HOSTNAME], pod["metadata"]["annotations"][NODE]) == (node, node)


async def test_pod_of_anybody_that_claims_a_node_by_annotation_and_stays_gated_keeps_no_job_from_it(
    world: World, tmp_path: Path
) -> None:
    await world.add_nodes(a_node("gpu-1", 2))
    spec = {"schedulingGates": [{"name": QUOTA}]}
    claim = a_pod("claim", world.namespace, gpus=4, annotations={NODE: "gpu-1"}, spec=spec)
    await world.client.create(api.PODS, claim)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, 2, least=2, most=2))
        await it.until_runs("a", 2)
        assert it.nodes(it.id("a")) == ["gpu-1"] * 2


async def test_worker_that_names_its_host_itself_gets_it_and_refuses_others(world: World, tmp_path: Path) -> None:
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2))
    async with voda(world, tmp_path) as it:
        selector = {"nodeSelector": {HOSTNAME: "gpu-2"}}
        await world.submit(an_mpijob("a", world.namespace, 2, least=2, most=2, worker_spec=selector))
        await it.until_runs("a", 2)
        assert it.nodes(it.id("a")) == ["gpu-2"] * 2
        assert {fact.node for fact in await it.facts(WorkerRefused, it.id("a"))} <= {"gpu-1"}


async def test_worker_that_selects_what_one_node_has_is_moved_there_in_the_words_of_kube_scheduler(
    world: World, tmp_path: Path
) -> None:
    await world.add_nodes(a_node("gpu-1", 1), a_node("gpu-2", 1, labels={"disk": "ssd"}))
    async with voda(world, tmp_path) as it:
        selector = {"nodeSelector": {"disk": "ssd"}}
        await world.submit(a_pytorchjob("a", world.namespace, 1, least=1, most=1, worker_spec=selector))
        await it.until_runs("a", 1)
        assert it.nodes(it.id("a")) == ["gpu-2"]
        for fact in await it.facts(WorkerRefused, it.id("a")):
            assert "didn't match Pod's node affinity/selector" in str(fact.reason)


@pytest.mark.parametrize(("make", "resource", "roles"), BOTH)
async def test_job_whose_templates_lost_the_gate_runs_on_and_its_next_workers_are_gated(
    world: World, tmp_path: Path, make: Make, resource: Resource, roles: str
) -> None:
    await world.add_node("gpu-1", gpus=1)
    async with voda(world, tmp_path) as it:
        await world.submit(make("a", world.namespace, 1, least=1, most=2))
        await it.until_runs("a", 1)
    [before] = await world.workers_of("a")
    # As versions before the gates left it.
    earlier: dict[str, Any] = {"schedulingGates": None, "schedulerName": "voda"}
    template = {"spec": {roles: {"Worker": {"template": {"spec": earlier}}}}}
    await world.client.patch(resource, (world.namespace, "a"), template)
    async with voda(world, tmp_path) as it:
        await world.until_it_is(lambda: _is_gated(world, resource, roles))
        await world.add_node("gpu-2", gpus=1)
        await it.until_runs("a", 2)
        assert not await it.facts(ActionFailed, it.id("a"))
        if resource != api.PYTORCHJOBS:
            # Agents of torch all start anew.
            await _is_running(it, world, before)


async def _is_gated(world: World, resource: Resource, roles: str) -> bool:
    found = await world.client.get(resource, "a", world.namespace)
    spec = found["spec"][roles]["Worker"]["template"]["spec"]
    return bool(spec.get("schedulingGates") == [{"name": GATE}] and spec.get("schedulerName") != "voda")


async def _is_running(it: Voda, world: World, before: Object) -> None:
    assert before["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in await world.workers_of("a")}
    assert it.nodes(it.id("a"))[0] == before["spec"]["nodeName"]

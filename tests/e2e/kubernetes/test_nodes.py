"""Nodes that come, are cordoned, fall silent, are deleted, or are filled by others, on a real API server."""

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.kubernetes.service import AT_ONCE, Voda, voda
from tests.kube import client as api
from tests.kube.objects import a_node, a_pod, an_indexed_job, an_mpijob
from tests.kube.peers.jobs_world import JobsWorld
from tests.kube.peers.stages import STARTS
from tests.kube.peers.world import PeeredWorld
from tests.kube.world import World
from voda.application.drain_node import drain, undrain
from voda.auth.callers import Caller
from voda.domain.reasons.nodes import ByKubelet
from voda.events.types import NodeChanged, NodeLeft, WorkerExited, WorkerRefused, WorkerStarted
from voda.projections.jobs.record_text import explanation_text


async def on(it: Voda, name: str, nodes: list[str]) -> None:
    """Wait until the workers of a job are on these nodes, in any order."""

    async def are() -> bool:
        return sorted(it.nodes(it.id(name))) == nodes and len(await it.world.running_workers(name)) == len(nodes)

    await it.until(are)


async def test_node_when_added_lets_a_job_grow_onto_it(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=4))
        await on(it, "a", ["gpu-1"] * 2)
        await world.add_node("gpu-2", gpus=2)
        await on(it, "a", ["gpu-1", "gpu-1", "gpu-2", "gpu-2"])


async def test_node_when_cordoned_keeps_its_workers_and_takes_no_new_ones(world: World, tmp_path: Path) -> None:
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2))
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, workers=1, least=1, most=1, suspend=True))
        await it.until_runs("a", 1)
        [first] = it.nodes(it.id("a"))
        other = "gpu-2" if first == "gpu-1" else "gpu-1"
        await world.cordon(first)
        await world.submit(an_mpijob("b", world.namespace, workers=1, least=1, most=4, suspend=True))
        await on(it, "b", [other] * 2)
        await on(it, "a", [first])
        assert not await it.facts(WorkerExited, it.id("a"))


async def test_node_when_drained_is_left_by_migration_and_used_again_afterwards(world: World, tmp_path: Path) -> None:
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2))
    async with voda(world, tmp_path) as it:
        # Suspended: pods that its operator makes before voda takes it in would hold GPUs, and part it.
        await world.submit(an_mpijob("a", world.namespace, workers=2, least=2, most=2, suspend=True))
        await it.until_runs("a", 2)
        [first] = set(it.nodes(it.id("a")))
        other = "gpu-2" if first == "gpu-1" else "gpu-1"
        taint = {"key": "example.com/maintenance", "effect": "NoExecute"}
        await world.client.patch(api.NODES, first, {"spec": {"taints": [taint]}})
        await on(it, "a", [other] * 2)
        await world.client.patch(api.NODES, first, {"spec": {"taints": None}})
        await world.submit(an_mpijob("b", world.namespace, workers=2, least=2, most=2))
        await on(it, "b", [first] * 2)


async def test_node_when_drained_by_voda_is_left_by_migration_while_its_other_pods_stay(
    world: World, tmp_path: Path
) -> None:
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2))
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, workers=2, least=2, most=2, suspend=True))
        await it.until_runs("a", 2)
        [first] = set(it.nodes(it.id("a")))
        other = "gpu-2" if first == "gpu-1" else "gpu-1"
        await drain(it.service.backend.journal, first, Caller(user="ann", role="admin"), reason="new fan")
        await on(it, "a", [other] * 2)
        exits = await it.facts(WorkerExited, it.id("a"))
        assert {fact.cause for fact in exits} == {"migrated"}
        # The node of the cluster stays as it is, and a resync takes it for no change.
        assert "taints" not in (await world.client.get(api.NODES, first))["spec"]
        assert not [fact for fact in await it.facts(NodeChanged) if fact.node.name == first and fact.node.is_draining]
        await undrain(it.service.backend.journal, first, Caller(user="ann", role="admin"))
        await world.submit(an_mpijob("b", world.namespace, workers=2, least=2, most=2))
        await on(it, "b", [first] * 2)


async def test_node_when_not_ready_for_long_loses_its_workers_to_a_ready_one(world: World, tmp_path: Path) -> None:
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2))
    pools = {"v100": {"ratelimitSeconds": 0.0, "nodeGraceSeconds": 2.0}}
    async with voda(world, tmp_path, pools=pools) as it:
        await world.submit(an_mpijob("a", world.namespace, workers=2, least=1, most=4))
        await on(it, "a", ["gpu-1", "gpu-1", "gpu-2", "gpu-2"])
        await world.set_ready("gpu-2", False)
        await on(it, "a", ["gpu-1"] * 2)
        await world.set_ready("gpu-2", True)
        await on(it, "a", ["gpu-1", "gpu-1", "gpu-2", "gpu-2"])


async def test_nodes_that_are_all_silent_at_once_keep_their_workers(world: PeeredWorld, tmp_path: Path) -> None:
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2))
    # Longer than between the first of them and the last.
    async with voda(world, tmp_path, pools={"v100": {**AT_ONCE, "nodeGraceSeconds": 5.0}}) as it:
        await world.submit(an_mpijob("a", world.namespace, workers=2, least=1, most=4))
        await on(it, "a", ["gpu-1", "gpu-1", "gpu-2", "gpu-2"])
        before = {pod["metadata"]["uid"] for pod in await world.workers_of("a")}
        with world.cluster.kwok.held():
            await world.until_it_is(lambda: are_ready(world, "Unknown"))
            await world.until(lambda: len(silent_since(it)) == 2)
            await world.until(lambda: it.service.clock.now() > max(silent_since(it).values()) + 5.0)
            assert len(await world.running_workers("a")) == 4
        await world.until_it_is(lambda: are_ready(world, "True"))
        await on(it, "a", ["gpu-1", "gpu-1", "gpu-2", "gpu-2"])
        assert {pod["metadata"]["uid"] for pod in await world.workers_of("a")} == before
        assert await it.facts(WorkerExited) == []


@pytest.mark.parametrize("label", [{}, {"vodascheduler/accelerator": None}], ids=["labelled", "of the default pool"])
async def test_nodes_that_say_no_gpus_for_a_moment_keep_their_workers(
    world: PeeredWorld, tmp_path: Path, label: Mapping[str, None]
) -> None:
    nodes = ("gpu-1", "gpu-2", "gpu-3")
    await world.add_nodes(*(a_node(name, 2) for name in nodes))
    for name in nodes:
        await world.client.patch(api.NODES, name, {"metadata": {"labels": label}})
    async with voda(world, tmp_path, pools={"v100": AT_ONCE}, cluster={"defaultPool": "v100"}) as it:
        await world.submit(an_mpijob("a", world.namespace, workers=6, least=6, most=6))
        await on(it, "a", [name for name in nodes for _ in range(2)])
        await world.submit(an_mpijob("b", world.namespace, workers=1, least=1, most=6))
        before = {pod["metadata"]["uid"] for pod in await world.workers_of("a")}
        for some in (nodes[1:2], nodes):
            for name in some:
                await offer(world, name, 0)
            await world.until(partial(are_silent, it, some))
            # Longer than voda takes to carry out a plan.
            await world.until(lambda: it.service.clock.now() > max(silent_since(it).values()) + 3.0)
            for name in some:
                await offer(world, name, 2)
            await world.until(lambda: not silent_since(it))
        await on(it, "a", [name for name in nodes for _ in range(2)])
        assert {pod["metadata"]["uid"] for pod in await world.workers_of("a")} == before
        assert await it.facts(WorkerExited) == []
        assert await it.facts(NodeLeft) == []
        assert not it.nodes(it.id("b"))


async def test_node_that_has_fewer_gpus_for_longer_than_its_grace_loses_the_workers_that_it_has_not_room_for(
    world: PeeredWorld, tmp_path: Path
) -> None:
    await world.add_nodes(a_node("gpu-1", 3), a_node("gpu-2", 1), a_node("gpu-3", 1))
    async with voda(world, tmp_path, pools={"v100": {**AT_ONCE, "nodeGraceSeconds": 2.0}}) as it:
        await world.submit(an_mpijob("a", world.namespace, workers=2, least=1, most=5))
        await on(it, "a", ["gpu-1", "gpu-1", "gpu-1", "gpu-2", "gpu-3"])
        await offer(world, "gpu-1", 2)
        await on(it, "a", ["gpu-1", "gpu-1", "gpu-2", "gpu-3"])


async def test_worker_that_is_lost_in_the_middle_while_its_node_shrinks_takes_the_last_one_alone_along(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 8))
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 8, least=1, most=8))
        await it.until_runs("a", 8)
        before, pods = await world.uids("a"), await world.running("a")
        await offer(world, "gpu-1", 7)
        await world.client.delete(api.PODS, pods[3]["metadata"]["name"], world.namespace)
        await world.until(lambda: len(it.service.view.cluster.plan("v100").placement[it.id("a")]) == 7)

        async def have_exited() -> bool:
            exits = [(fact.cause, tuple(fact.workers)) for fact in await it.facts(WorkerExited)]
            return sorted(exits) == [("evicted", (3,)), ("stopped", (7,))]

        # While the last one has not gone, seven run without the one that was lost.
        await it.until(have_exited)
        await it.until_runs("a", 7)
        now = await world.uids("a")
        assert {index for index in now if now[index] == before[index]} == {0, 1, 2, 4, 5, 6}


async def offer(world: World, node: str, gpus: int) -> None:
    """Let a node say that it has so many GPUs, as while its kubelet starts anew."""
    offered = {"nvidia.com/gpu": str(gpus)}
    await world.client.patch(api.NODES, node, {"status": {"allocatable": offered, "capacity": offered}}, "status")


def silent_since(it: Voda) -> Mapping[str, float]:
    return it.service.view.cluster.state("v100").silent_since


def are_silent(it: Voda, nodes: Collection[str]) -> bool:
    return silent_since(it).keys() == set(nodes)


async def are_ready(world: World, status: str) -> bool:
    """Say whether all nodes have this status of readiness."""
    conditions = [each for node in await world.client.list(api.NODES) for each in node["status"]["conditions"]]
    return {each["status"] for each in conditions if each["type"] == "Ready"} == {status}


async def test_spot_node_when_gone_without_warning_shrinks_the_job_instead_of_killing_it(
    world: World, tmp_path: Path
) -> None:
    await world.add_nodes(a_node("gpu-1", 2), a_node("spot-1", 2))
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, workers=2, least=1, most=4))
        await on(it, "a", ["gpu-1", "gpu-1", "spot-1", "spot-1"])
        await world.remove_node("spot-1")
        await on(it, "a", ["gpu-1"] * 2)
        assert [fact.name for fact in await it.facts(NodeLeft)] == ["spot-1"]
        assert "node_lost" in {fact.cause for fact in await it.facts(WorkerExited, it.id("a"))}
        await world.end_launcher("a")
        await it.until_ended("a", "Completed")


async def test_node_that_an_autoscaler_takes_away_is_left_and_no_worker_comes_back_to_it(
    world: World, tmp_path: Path
) -> None:
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2))
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, workers=2, least=1, most=4))
        await on(it, "a", ["gpu-1", "gpu-1", "gpu-2", "gpu-2"])
        before = len(await it.facts(WorkerStarted))
        # As cluster-autoscaler does: it closes the node, evicts what is there, and takes the machine.
        taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1796055033", "effect": "NoSchedule"}
        await world.client.patch(api.NODES, "gpu-2", {"spec": {"taints": [taint]}})
        for pod in await world.workers_of("a"):
            if pod["spec"].get("nodeName") == "gpu-2":
                await world.request_eviction(pod["metadata"]["name"])
        await on(it, "a", ["gpu-1", "gpu-1"])
        await world.remove_node("gpu-2")
        await world.until_it_is(lambda: has_left(it, "gpu-2"))
        await on(it, "a", ["gpu-1", "gpu-1"])
        started = (await it.facts(WorkerStarted))[before:]
        assert "gpu-2" not in [node for fact in started for node in fact.workers.values()]


async def has_left(it: Voda, node: str) -> bool:
    return node in [fact.name for fact in await it.facts(NodeLeft)]


async def test_node_when_it_comes_back_with_other_gpus_is_used_as_it_is_now(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=8))
        await on(it, "a", ["gpu-1"] * 2)
        bigger = {"status": {"allocatable": {"nvidia.com/gpu": "4"}, "capacity": {"nvidia.com/gpu": "4"}}}
        await world.client.patch(api.NODES, "gpu-1", bigger, "status")
        await on(it, "a", ["gpu-1"] * 4)
        assert [fact.node.gpus for fact in await it.facts(NodeChanged)][-1] == 4


async def test_foreign_pods_when_they_come_and_go_take_and_return_gpus(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    ns = world.namespace
    async with voda(world, tmp_path) as it:
        await world.client.create(api.PODS, a_pod("notebook", ns, gpus=3, node="gpu-1"))
        await world.submit(an_mpijob("a", ns, workers=1, least=1, most=4))
        await on(it, "a", ["gpu-1"])
        await world.client.delete(api.PODS, "notebook", ns)
        await on(it, "a", ["gpu-1"] * 4)


async def test_worker_when_its_cpus_are_not_free_waits_with_the_reason_told(world: World, tmp_path: Path) -> None:
    await world.add_nodes(a_node("small", 4, cpu="1"))
    async with voda(world, tmp_path) as it:
        greedy = {"requests": {"cpu": "4"}}
        await world.submit(an_mpijob("a", world.namespace, workers=2, least=2, most=2, resources=greedy))

        async def is_told() -> bool:
            record = it.service.view.job_registry.job(it.id("a"))
            return record is not None and "a worker asks for 4 CPUs" in explanation_text(record)

        async def is_at_rest() -> bool:
            is_ready = "voda.dev/job-id" in (await world.job("a"))["metadata"]["annotations"]
            return is_ready and await world.has_condition("a", "Suspended") and not await world.pods_of("a")

        await it.until(is_told)
        await it.until(is_at_rest)
        waiting = await world.job("a")
        await world.add_nodes(a_node("big", 2, cpu="64"))
        await on(it, "a", ["big"] * 2)
        assert not await it.facts(WorkerRefused, it.id("a"))
        # It was resumed, once: nobody had kept at starting it in vain.
        assert (await world.job("a"))["metadata"]["generation"] == waiting["metadata"]["generation"] + 1


async def test_worker_when_the_kubelet_refuses_it_is_placed_elsewhere(world: World, tmp_path: Path) -> None:
    await world.add_nodes(a_node("gpu-1", 1), a_node("gpu-2", 1))
    async with voda(world, tmp_path) as it:
        never = {STARTS: "never"}
        await world.submit(an_mpijob("a", world.namespace, workers=1, least=1, most=1, worker_notes=never))

        async def is_bound() -> bool:
            return [pod["spec"].get("nodeName") for pod in await world.workers_of("a")] == [*it.nodes(it.id("a"))] != []

        await world.until_it_is(is_bound)
        [first] = it.nodes(it.id("a"))
        refused = {"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod Node didn't have enough cpu"}}
        await world.client.patch(api.PODS, (world.namespace, "a-worker-0"), refused, "status")
        await world.until(lambda: it.nodes(it.id("a")) == ["gpu-2" if first == "gpu-1" else "gpu-1"])
        [fact] = await it.facts(WorkerRefused, it.id("a"))
        assert fact.node == first
        assert isinstance(fact.reason, ByKubelet)
        assert fact.reason.word == "OutOfcpu"

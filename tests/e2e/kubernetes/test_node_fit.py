"""What nodes take is known before a plan is made: labels, taints, and what other pods leave of their resources."""

from pathlib import Path
from typing import Any

from tests.e2e.kubernetes.service import AT_ONCE, Voda, voda
from tests.kube import client as api
from tests.kube.objects import a_node, a_pod, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld
from voda.domain.node import Node, PodNeeds
from voda.events.types import JobChanged, NodeRoomChanged, WorkerExited, WorkerRefused
from voda.projections.jobs.record_text import explanation_text

LIMIT_RANGES = api.Resource("LimitRange", "v1", "limitranges")
RUNTIME_CLASSES = api.Resource("RuntimeClass", "node.k8s.io/v1", "runtimeclasses", is_namespaced=False)
VISION = {"key": "dedicated", "value": "vision", "effect": "NoSchedule"}


def wide(name: str, world: JobsWorld, **changes: Any) -> dict[str, Any]:
    return an_indexed_job(name, world.namespace, 1, **{"least": 1, "most": 8, **changes})


def fixed(name: str, world: JobsWorld, workers: int, **changes: Any) -> dict[str, Any]:
    return an_indexed_job(name, world.namespace, workers, **{"least": workers, "most": workers, **changes})


def node_of(it: Voda, name: str) -> Node:
    return it.service.view.cluster.nodes("v100")[name]


async def ask_by_default(world: JobsWorld, cpus: str) -> None:
    """Let containers of the namespace that say nothing ask for so many CPUs."""
    limits = [{"type": "Container", "default": {"cpu": cpus}}]
    metadata = {"name": "by-default", "namespace": world.namespace}
    await world.client.create(LIMIT_RANGES, {"metadata": metadata, "spec": {"limits": limits}})


async def until_told(it: Voda, name: str, words: str) -> None:
    """Wait until it is explained why a job waits, in these words among others."""

    async def is_told() -> bool:
        record = it.service.view.job_registry.job(it.id(name))
        return record is not None and words in explanation_text(record)

    await it.until(is_told)


async def test_job_restricted_to_some_nodes_gets_its_minimum_there_and_others_shrink_there_alone(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world, team = jobs_world, {"gpu-1", "gpu-2"}
    nodes = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
    await world.add_nodes(*(a_node(name, 2, labels={"team": "a"} if name in team else {}) for name in nodes))
    async with voda(world, tmp_path) as it:
        await world.submit(wide("wide", world))
        await it.until_runs("wide", 8)
        await world.submit(wide("narrow", world, worker_spec={"nodeSelector": {"team": "a"}}))

        async def share() -> bool:
            running = [len(await world.running(name)) for name in ("narrow", "wide")]
            narrow, other = (it.nodes(it.id(name)) for name in ("narrow", "wide"))
            return running == [len(narrow), len(other)] and bool(narrow) and sum(running) == 8

        await it.until(share)
        assert set(it.nodes(it.id("narrow"))) <= team
        # Replicas have numbers without gaps: others than before may be there, and as many.
        assert [node for node in sorted(it.nodes(it.id("wide"))) if node not in team] == ["gpu-3"] * 2 + ["gpu-4"] * 2
        assert not await it.facts(WorkerRefused)


async def test_job_that_asks_for_more_than_any_node_has_disturbs_nobody_and_says_of_what(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world, low = jobs_world, ("low-1", "low-2")
    await world.add_nodes(a_node("gpu-1", 2, cpu="64"), a_node("gpu-2", 2, cpu="64"))
    async with voda(world, tmp_path) as it:
        for name in low:
            await world.submit(fixed(name, world, 2))
        for name in low:
            await it.until_runs(name, 2)
        before = {name: await world.uids(name) for name in low}
        asking = {"priority": 10, "gpus": 2, "resources": {"requests": {"cpu": "200"}}}
        await world.submit(fixed("hungry", world, 1, **asking))
        await until_told(it, "hungry", "a worker asks for 200 CPUs, and no node has more than 64")
        # One more plan looks at it.
        await world.submit(fixed("last", world, 1, priority=-1))
        await until_told(it, "last", "waits")
        assert {name: await world.uids(name) for name in low} == before
        assert not await it.facts(WorkerExited)
        assert not await it.facts(WorkerRefused)


async def test_job_that_tolerates_a_taint_runs_and_others_wait_and_are_told_of_it(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 2, taints=[VISION]), a_node("gpu-2", 2, taints=[VISION]))
    async with voda(world, tmp_path) as it:
        await world.submit(fixed("plain", world, 1))
        await until_told(it, "plain", "taint dedicated=vision:NoSchedule")
        await world.submit(fixed("dedicated", world, 4, worker_spec={"tolerations": [{**VISION, "operator": "Equal"}]}))
        await it.until_runs("dedicated", 4)
        node = node_of(it, "gpu-1")
        assert (node.is_schedulable, [taint.text for taint in node.taints]) == (True, ["dedicated=vision:NoSchedule"])
        assert not await it.facts(WorkerRefused)
        # Whoever takes the taint away lets the others in, even beside those that are there.
        await world.add_nodes(a_node("gpu-3", 1, taints=[VISION]))
        await world.client.patch(api.NODES, "gpu-3", {"spec": {"taints": None}})
        await it.until_runs("plain", 1)


async def test_job_runs_once_pods_of_others_leave_it_room_and_those_are_told_of_a_node_once(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 2, cpu="64"))
    for number in range(4):
        pod = a_pod(f"other-{number}", world.namespace, node="gpu-1", cpu="15")
        await world.client.create(api.PODS, pod)
    async with voda(world, tmp_path, pools={"v100": dict(AT_ONCE)}) as it:
        await world.submit(fixed("asks", world, 1, resources={"requests": {"cpu": "50"}}))
        await until_told(it, "asks", "a worker asks for 50 CPUs, and no node has more than 4")
        for number in range(4):
            await world.client.delete(api.PODS, f"other-{number}", world.namespace)
        await it.until_runs("asks", 1)
        changes = await it.facts(NodeRoomChanged)
        assert len([fact for fact in changes if fact.room and fact.room["cpu"] == 64_000]) == 1
        assert not await it.facts(WorkerRefused)


async def test_what_the_cluster_adds_to_pods_is_counted_before_a_plan(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await ask_by_default(world, "10")
    runtime = {"metadata": {"name": world.namespace}, "handler": "vm", "overhead": {"podFixed": {"cpu": "2"}}}
    await world.client.create(RUNTIME_CLASSES, runtime)
    await world.add_nodes(a_node("gpu-1", 8, cpu="64"))
    async with voda(world, tmp_path) as it:
        await world.submit(wide("plain", world))
        await it.until_runs("plain", 6)
        await world.submit(wide("vm", world, priority=5, worker_spec={"runtimeClassName": world.namespace}))
        await it.until_runs("vm", 5)
        await world.submit(fixed("big", world, 7, priority=9))
        await until_told(it, "big", "a worker asks for 10 CPUs")
        assert len(await world.running("vm")) == 5
        assert not await it.facts(WorkerRefused)


async def test_what_the_cluster_adds_later_is_counted_for_jobs_that_wait(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 8, cpu="64"))
    async with voda(world, tmp_path) as it:
        await world.submit(fixed("first", world, 8))
        await it.until_runs("first", 8)
        await world.submit(wide("next", world))
        await world.until(lambda: it.phase(it.id("next")) == "Waiting")
        await ask_by_default(world, "10")

        async def is_known() -> bool:
            changes = await it.facts(JobChanged, it.id("next"))
            return [change.needs for change in changes] == [PodNeeds(requests={"cpu": 10_000})]

        await it.until(is_known)
        await world.client.delete(api.JOBS, "first", world.namespace)
        await it.until_runs("next", 6)
        assert not await it.facts(WorkerRefused)

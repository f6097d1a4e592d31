"""A job of high priority that kube-scheduler does not bind, for reasons that no plan can know, disturbs others once."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.service import AT_ONCE, Voda, voda
from tests.kube.client import PODS
from tests.kube.objects import a_node, a_pod, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld
from voda.cluster.kubernetes.convergence import refusals
from voda.events.types import WorkerRefused
from voda.projections.jobs.record_text import explanation_text

NODES = ("gpu-1", "gpu-2", "gpu-3")
LOW = ("low-1", "low-2", "low-3")
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "noisy"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
}


async def a_full_pool(it: Voda, world: JobsWorld) -> None:
    """Fill all nodes with rigid jobs, and put a pod without GPUs on each."""
    for node in NODES:
        pod = a_pod(f"noisy-{node}", world.namespace, node=node, labels={"app": "noisy"})
        await world.client.create(PODS, pod)
    for name in LOW:
        await world.submit(an_indexed_job(name, world.namespace, 2, least=2, most=2))
    for name in LOW:
        await it.until_runs(name, 2)


async def uids(world: JobsWorld) -> dict[str, dict[int, str]]:
    return {name: await world.uids(name) for name in LOW}


def picky(world: JobsWorld, **changes: Any) -> dict[str, Any]:
    return an_indexed_job("picky", world.namespace, 2, **{"least": 2, "most": 2, "priority": 10, **changes})


async def until_tried_again(it: Voda, times: int) -> None:
    """Wait until refusals of the picky job have been lifted so often, for it to be tried again."""

    async def is_lifted() -> bool:
        told = await it.facts(WorkerRefused, it.id("picky"))
        return sum(fact.reason is None for fact in told) >= times

    await it.until(is_lifted)


async def until_decided(it: Voda, world: JobsWorld, name: str) -> None:
    """Wait until a plan has looked at one more job."""
    await world.submit(an_indexed_job(name, world.namespace, 1, least=1, most=1, priority=-1))

    async def is_told() -> bool:
        return bool(await world.told(name, "Queued"))

    await it.until(is_told)


async def test_job_that_kube_scheduler_binds_nowhere_disturbs_one_job_once(
    jobs_world: JobsWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nodes are tried again after a second.
    monkeypatch.setattr(refusals, "AVOIDED_S", 1.0)
    world = jobs_world
    await world.add_nodes(*(a_node(node, 2) for node in NODES))
    async with voda(world, tmp_path, pools={"v100": dict(AT_ONCE)}) as it:
        await a_full_pool(it, world)
        before = await uids(world)
        await world.submit(picky(world, worker_spec=APART))
        await until_tried_again(it, 1)
        for index in range(3):
            await until_decided(it, world, f"other-{index}")
        for name in LOW:
            await it.until_runs(name, 2)
        after = await uids(world)
        assert sum(before[name] != after[name] for name in LOW) == 1
        assert (await world.told("picky", "Preempted")) == []
        told = [fact.reason for fact in await it.facts(WorkerRefused, it.id("picky"))]
        assert len([reason for reason in told if reason is not None]) == 1
        record = it.record("picky")
        assert "others made room for it in vain" in explanation_text(record)
        assert "anti-affinity" in explanation_text(record)
        # What it waits for comes: a node without such a pod.
        await world.add_nodes(a_node("gpu-4", 2))
        await it.until_runs("picky", 2)
        assert it.nodes(it.id("picky")) == ["gpu-4"] * 2
        for name in LOW:
            assert (await world.uids(name)) == after[name]

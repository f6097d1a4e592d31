"""Indexed Jobs that cannot run as they are, and what `voda explain` and an Event on the Job say of it."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from rich.console import Console

from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client as api
from tests.kube.client import Object, Resource
from tests.kube.objects import GPU, a_node, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld
from voda.api.schemas import ExplanationView
from voda.cli.render.explanation import explanation_text
from voda.cluster.kubernetes import leader_loop
from voda.cluster.kubernetes.convergence import stalls
from voda.events.types import JobSubmitted

QUOTAS = Resource("ResourceQuota", "v1", "resourcequotas")
LIMIT_RANGES = Resource("LimitRange", "v1", "limitranges")
OTHER_GATE = {"name": "example.com/data"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have whatever lasts for a moment told, and looked for often."""
    monkeypatch.setattr(stalls, "SOON_S", 0.3)
    monkeypatch.setattr(leader_loop, "_SWEEP_S", 0.1)


async def test_pod_whose_gate_somebody_else_lifted_is_made_again_where_the_plan_wants_it(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2, pool="a100"))
    async with voda(world, tmp_path) as it:
        # The gate of somebody else keeps voda from lifting its own.
        spec = {"schedulingGates": [OTHER_GATE]}
        job = an_indexed_job("a", world.namespace, 2, least=2, most=2, worker_spec=spec, pool="v100")
        await world.submit(job)
        await world.until_it_is(lambda: has_pods(world, "a", 2))
        elsewhere = {"spec": {"schedulingGates": None, "nodeSelector": {"kubernetes.io/hostname": "gpu-2"}}}
        for pod in await world.pods_of("a"):
            await world.client.patch(api.PODS, (world.namespace, pod["metadata"]["name"]), elsewhere)
        await it.until(lambda: tells(world, "a", "ActionFailed", "was lifted by somebody else"))
        await world.until_it_is(lambda: are_gated(world, "a", 2))
        for pod in await world.pods_of("a"):
            await world.client.patch(api.PODS, (world.namespace, pod["metadata"]["name"]), without(pod, OTHER_GATE))
        await it.until_runs("a", 2)
        assert set(it.nodes(it.id("a"))) == {"gpu-1"}


async def test_gates_of_others_are_kept_and_waited_for(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        spec = {"schedulingGates": [OTHER_GATE]}
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2, worker_spec=spec))
        await world.until_it_is(lambda: has_pods(world, "a", 2))
        await it.until(
            lambda: tells(world, "a", "Stalled", "example.com/data"),
        )
        assert "example.com/data" in await explained(it, it.id("a"))
        for pod in await world.pods_of("a"):
            await world.client.patch(api.PODS, (world.namespace, pod["metadata"]["name"]), without(pod, OTHER_GATE))
        await it.until_runs("a", 2)


async def test_node_selector_that_no_planned_node_meets_is_told(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        selector = {"nodeSelector": {"disk": "ssd"}}
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2, worker_spec=selector))
        await it.until(lambda: tells(world, "a", "WorkerRefused", "node affinity/selector"))
        assert "node affinity/selector" in await explained(it, it.id("a"))
        await world.add_nodes(a_node("gpu-2", 2, labels={"disk": "ssd"}))
        await it.until_runs("a", 2)
        assert set(it.nodes(it.id("a"))) == {"gpu-2"}


async def test_node_selector_that_names_a_node_is_kept(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2))
    async with voda(world, tmp_path) as it:
        selector = {"nodeSelector": {"kubernetes.io/hostname": "gpu-2"}}
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2, worker_spec=selector))
        await it.until_runs("a", 2)
        assert set(it.nodes(it.id("a"))) == {"gpu-2"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"completions": 3}, "spec.completions: expected 2, as parallelism, got 3"),
        ({"completionMode": "NonIndexed"}, "spec.completionMode: expected Indexed, got 'NonIndexed'"),
    ],
)
async def test_job_that_cannot_be_resized_is_refused_and_stays_as_it_is(
    jobs_world: JobsWorld, tmp_path: Path, change: Mapping[str, Any], said: str
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 2, least=1, most=2, suspend=False, spec=change))
        await it.until(lambda: tells(world, "a", "Invalid", said))
        assert (await world.job("a"))["spec"]["suspend"] is False
        assert not await it.facts(JobSubmitted)


async def test_quota_that_refuses_pods_is_told_with_what_the_server_says(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    quota = {"metadata": {"name": "few", "namespace": world.namespace}, "spec": {"hard": {f"requests.{GPU}": "1"}}}
    await world.client.create(QUOTAS, quota)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2))
        await it.until(lambda: tells(world, "a", "Stalled", "exceeded quota: few"))
        assert "exceeded quota: few" in await explained(it, it.id("a"))
        await world.client.delete(QUOTAS, "few", world.namespace)
        await it.until_runs("a", 2)


async def test_limit_range_that_refuses_pods_is_told_with_what_the_server_says(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    limits = {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}
    await world.client.create(
        LIMIT_RANGES, {"metadata": {"name": "small", "namespace": world.namespace}, "spec": limits}
    )
    async with voda(world, tmp_path) as it:
        resources = {"requests": {"memory": "2Gi"}, "limits": {"memory": "2Gi"}}
        await world.submit(an_indexed_job("a", world.namespace, 2, least=2, most=2, resources=resources))
        await it.until(lambda: tells(world, "a", "Stalled", "maximum memory usage per Container is 1Gi"))
        assert "maximum memory usage" in await explained(it, it.id("a"))
        await world.client.delete(LIMIT_RANGES, "small", world.namespace)
        await it.until_runs("a", 2)


async def test_job_of_a_namespace_that_is_deleted_is_canceled_and_one_submitted_to_it_says_so(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=4)
    going = f"{world.namespace}-going"
    await world.add_namespace(going)
    async with voda(world, tmp_path) as it:
        await world.client.create(api.JOBS, an_indexed_job("a", going, 2, least=2, most=2, suspend=True))
        await it.until(lambda: runs_in(it, f"{going}_a", 2))
        kept = {"name": "kept", "namespace": going, "finalizers": ["tests.voda.dev/kept"]}
        await world.client.create(api.CONFIG_MAPS, {"metadata": kept})
        await world.client.delete(api.NAMESPACES, going)
        await it.until(lambda: is_phase(it, f"{going}_a", "Canceled"))
        job_id = await submitted(it, an_indexed_job("b", going, 2, least=2, most=2))
        await it.until(lambda: is_explained(it, job_id, "because it is being terminated"))
        await world.client.patch(api.CONFIG_MAPS, (going, "kept"), {"metadata": {"finalizers": None}})


def without(pod: Object, gate: Object) -> Object:
    """Return the patch that lifts one gate of a pod."""
    return {"spec": {"schedulingGates": [each for each in pod["spec"]["schedulingGates"] if each != gate]}}


async def are_gated(world: JobsWorld, name: str, count: int) -> bool:
    pods = await world.pods_of(name)
    return len(pods) == count == sum("schedulingGates" in pod["spec"] for pod in pods)


async def has_pods(world: JobsWorld, name: str, count: int) -> bool:
    return len(await world.pods_of(name)) == count


async def tells(world: JobsWorld, name: str, reason: str, part: str) -> bool:
    return any(part in each for each in await world.told(name, reason))


async def submitted(it: Voda, manifest: Object) -> str:
    """Submit a job by the API, and return its id."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10.0)) as session,
        session.post(f"{it.service.url}/api/v1/jobs", json=manifest) as answer,
    ):
        assert answer.status == 201, await answer.text()
        return str((await answer.json())["job"]["job_id"])


async def is_explained(it: Voda, job_id: str, part: str) -> bool:
    return part in await explained(it, job_id)


async def runs_in(it: Voda, job_id: str, workers: int) -> bool:
    return len(it.nodes(job_id)) == workers


async def is_phase(it: Voda, job_id: str, phase: str) -> bool:
    return it.phase(job_id) == phase


async def explained(it: Voda, job_id: str) -> str:
    """Return what `voda explain` says of a job."""
    url = f"{it.service.url}/api/v1/jobs/{job_id}/explain"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10.0)) as session, session.get(url) as answer:
        explanation = explanation_text(msgspec.json.decode(await answer.read(), type=ExplanationView))
    console = Console(file=StringIO(), width=1000)
    console.print(explanation)
    return str(console.file.getvalue())  # type: ignore[attr-defined]

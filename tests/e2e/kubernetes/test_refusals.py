"""Nodes that take fewer workers than they have GPUs for, as kube-scheduler alone knows: as many run as fit there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.service import AT_ONCE, Voda, voda
from tests.kube.client import PODS, Resource
from tests.kube.objects import a_node, a_pod, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld
from voda.events.types import PlanAdopted, WorkerExited, WorkerRefused

_ADMISSION = "admissionregistration.k8s.io/v1"
POLICIES = Resource("MutatingAdmissionPolicy", _ADMISSION, "mutatingadmissionpolicies", is_namespaced=False)
BINDINGS = Resource(
    "MutatingAdmissionPolicyBinding", _ADMISSION, "mutatingadmissionpolicybindings", is_namespaced=False
)
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
TEN_CPUS = '[JSONPatch{op: "add", path: "/spec/containers/0/resources/requests/cpu", value: "10"}]'


async def ask_for_ten_cpus(world: JobsWorld) -> None:
    """Let admission have all pods ask for 10 CPUs: of a node of 64 CPUs and 8 GPUs six workers get theirs."""
    name, namespace = f"ten-{world.namespace}", {"kubernetes.io/metadata.name": world.namespace}
    spec = {
        "matchConstraints": {"resourceRules": [RULE]},
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": TEN_CPUS}}],
    }
    await world.client.create(POLICIES, {"metadata": {"name": name}, "spec": spec})
    bound = {"policyName": name, "matchResources": {"namespaceSelector": {"matchLabels": namespace}}}
    await world.client.create(BINDINGS, {"metadata": {"name": name}, "spec": bound})

    async def asks() -> bool:
        pod = await world.client.create(PODS, a_pod("probe", world.namespace, memory="1Mi"))
        await world.client.delete(PODS, "probe", world.namespace)
        return "cpu" in pod["spec"]["containers"][0]["resources"]["requests"]

    await world.until_it_is(asks)


def a_job(name: str, namespace: str, *, least: int = 1, most: int = 8) -> dict[str, Any]:
    return an_indexed_job(name, namespace, 1, least=least, most=most)


async def until_at_work(it: Voda, name: str, workers: int) -> None:
    """Wait until these workers of a job run and no others, by the plan, the log and the cluster."""

    async def are_at_work() -> bool:
        world, job_id = it.world, it.id(name)
        assert isinstance(world, JobsWorld)
        planned = it.service.view.cluster.plan("v100").placement.get(job_id, ())
        return list(it.nodes(job_id)) == list(planned) and [*await world.running(name)] == [*range(workers)]

    await it.until(are_at_work)


@pytest.mark.parametrize("settings", [{}, AT_ONCE], ids=["default", "at once"])
async def test_node_whose_cpus_run_out_before_its_gpus_gets_as_many_workers_as_fit(
    jobs_world: JobsWorld, tmp_path: Path, settings: Mapping[str, Any]
) -> None:
    world = jobs_world
    await ask_for_ten_cpus(world)
    await world.add_nodes(a_node("gpu-1", 8, cpu="64"))
    async with voda(world, tmp_path, pools={"v100": dict(settings)}) as it:
        await world.submit(a_job("a", world.namespace))
        await until_at_work(it, "a", 6)
        if not settings:
            # No further plan comes for half a minute.
            return
        there = await world.uids("a")
        # Further plans change nothing any more.
        await world.submit(a_job("b", world.namespace, most=1))

        async def is_refused() -> bool:
            return bool(await world.told("b", "WorkerRefused"))

        await it.until(is_refused)
        assert await world.uids("a") == there
        assert [fact.fits for fact in await it.facts(WorkerRefused, it.id("a"))] == [6]
        [event] = await world.told("a", "WorkerRefused")
        assert event.startswith("node gpu-1 takes 6 of its workers and no more: kube-scheduler does not bind worker a-")
        assert await world.told("a", "Preempted") == []


async def test_workers_that_are_bound_stay_but_for_those_that_fill_gaps(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await ask_for_ten_cpus(world)
    await world.add_nodes(a_node("gpu-1", 8, cpu="64"), a_node("gpu-2", 8, cpu="64"))
    async with voda(world, tmp_path) as it:
        await world.submit(a_job("a", world.namespace, most=16))
        await until_at_work(it, "a", 12)
        assert sorted(it.nodes(it.id("a"))) == ["gpu-1"] * 6 + ["gpu-2"] * 6
        gone = [index for fact in await it.facts(WorkerExited, it.id("a")) for index in fact.workers]
        # The Job controller itself takes some more of the highest indices along where a Job shrinks.
        assert min(gone) >= 8


async def test_job_that_needs_more_than_fit_is_refused_and_not_preempted(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await ask_for_ten_cpus(world)
    await world.add_nodes(a_node("gpu-1", 8, cpu="64"))
    async with voda(world, tmp_path) as it:
        await world.submit(a_job("a", world.namespace, least=8))

        async def is_told() -> bool:
            return len(await world.told("a", "WorkerRefused")) == 2

        await it.until(is_told)
        said = "\n".join(await world.told("a", "WorkerRefused"))
        assert "gives up 8 workers: waits: needs room for 8 workers of 1 GPU" in said
        assert await world.told("a", "Preempted") == []
        record = it.service.view.job_registry.job(it.id("a"))
        assert record is not None
        assert not record.is_preempted


async def test_two_jobs_that_need_the_same_cpus_share_what_there_is(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await ask_for_ten_cpus(world)
    await world.add_nodes(a_node("gpu-1", 8, cpu="64"))
    async with voda(world, tmp_path) as it:
        for name in ("a", "b"):
            await world.submit(a_job(name, world.namespace, most=4))

        async def all_fit() -> bool:
            running = [len(await world.running(name)) for name in ("a", "b")]
            return sum(running) == 6 == sum(len(it.nodes(it.id(name))) for name in ("a", "b"))

        await it.until(all_fit)
        plans = await it.facts(PlanAdopted)
        assert not any(fact.released for fact in plans)

"""A GPU that two schedulers gave to two pods: the worker that is to leave it does, and no other."""

from pathlib import Path

import pytest

from tests.e2e.kubernetes.service import AT_ONCE, Voda, voda
from tests.e2e.kubernetes.test_device_claims import CLUSTER, a_job, device_of, publish
from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.devices import DRIVER, a_claim_template, claims_of
from tests.kube.objects import a_pod
from tests.kube.peers.jobs_world import JobsWorld
from voda.cluster.kubernetes import leader_loop
from voda.events.event_text import sick_gpu_text
from voda.events.types import PlanAdopted, WorkerGpuSick


async def test_worker_whose_gpu_another_scheduler_gave_away_too_moves_alone_after_the_grace(
    jobs_world: JobsWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_loop, "_SWEEP_S", 0.2)
    world = jobs_world
    await publish(world, {"gpu-1": 4})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
    pools = {"v100": {**AT_ONCE, "nodeGraceSeconds": 4.0}}
    async with voda(world, tmp_path, pools=pools, cluster=CLUSTER) as it:
        await world.submit(a_job("a", world, "one", least=3, most=3))
        await it.until_runs("a", 3)
        before, pods = await world.uids("a"), await world.running("a")
        device = await device_of(world, pods[1])
        await give(world, "first", device)
        sentence = f"GPU {DRIVER}/gpu-1/{device} of worker 1 on gpu-1 was given to {world.namespace}/first as well"
        await it.until(lambda: is_told(it, sentence))
        # What is over within the grace moves nobody.
        await world.client.delete(api.PODS, "first", world.namespace, grace_s=0)
        await it.until(lambda: is_told(it, "the GPU of worker 1 on gpu-1 is well again"))
        assert await world.uids("a") == before
        assert len([plan for plan in await it.facts(PlanAdopted) if it.id("a") in plan.placed]) == 1
        await give(world, "second", device)

        async def has_moved() -> bool:
            now = await world.uids("a")
            return now.keys() == before.keys() and now[1] != before[1]

        await it.until(has_moved)
        await it.until_runs("a", 3)
        now = await world.uids("a")
        assert (now[0], now[2]) == (before[0], before[2])
        # kube-scheduler takes a device for free that one of two claims has given back: it is told, and not tried again.
        again = f"was given to {world.namespace}/second as well, again: kube-scheduler takes it for free"
        await it.until(lambda: is_told(it, again))
        told_at = it.service.clock.now()
        await world.until(lambda: it.service.clock.now() > told_at + 6.0)
        assert await world.uids("a") == now


async def give(world: JobsWorld, name: str, device: str) -> None:
    """Do as a scheduler does that knows nothing of kube-scheduler: give a pod a device of node gpu-1, and bind it."""
    pod = a_pod(name, world.namespace, spec={**claims_of("one"), "schedulerName": "other"})
    made = await world.client.create(api.PODS, pod)
    claims: list[str] = []

    async def has_claim() -> bool:
        found = (await world.client.get(api.PODS, name, world.namespace))["status"].get("resourceClaimStatuses", ())
        claims[:] = [each["resourceClaimName"] for each in found]
        return bool(claims)

    await world.until_it_is(has_claim)
    result = {"request": "gpus", "driver": DRIVER, "pool": "gpu-1", "device": device}
    reserved = {"resource": "pods", "name": name, "uid": made["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [reserved]}
    await world.client.patch(api.CLAIMS, (world.namespace, claims[0]), {"status": status}, "status")
    target: Object = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
    target |= {"target": {"kind": "Node", "name": "gpu-1"}}
    await world.client.request("POST", f"{api.PODS.path(world.namespace)}/{name}/binding", body=target)


async def is_told(it: Voda, sentence: str) -> bool:
    facts = await it.facts(WorkerGpuSick, it.id("a"))
    return bool(facts) and sentence in sick_gpu_text(facts[-1])

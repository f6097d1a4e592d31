"""Jobs that share a cluster: shrinking, growing, preempting, on a real API server."""

from pathlib import Path

from tests.e2e.kubernetes.service import AT_ONCE, voda
from tests.kube.client import Object
from tests.kube.objects import a_pytorchjob, an_mpijob
from tests.kube.operators.base import phase_of
from tests.kube.world import World, is_leaving
from voda.events.types import WorkerExited
from voda.policies.toolkit.levels import LOW


async def test_jobs_when_one_more_comes_and_one_goes_shrink_and_grow(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    ns = world.namespace
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("first", ns, least=1, most=4))
        await it.until_runs("first", 4)
        await world.submit(a_pytorchjob("second", ns, workers=1, least=1, most=4))
        await it.until_runs("second", 2)
        await it.until_runs("first", 2)
        shrunk = await it.facts(WorkerExited, it.id("first"))
        assert {(index, fact.cause) for fact in shrunk for index in fact.workers} == {(2, "stopped"), (3, "stopped")}
        await world.end_launcher("first")
        await it.until_ended("first", "Completed")
        await it.until_runs("second", 4)


async def test_pytorchjob_shrinks_to_its_master_alone_and_its_spare_worker_holds_nothing(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("gpu-1", gpus=3)
    ns = world.namespace
    async with voda(world, tmp_path) as it:
        await world.submit(a_pytorchjob("a", ns, workers=1, least=1, most=3, masters=1))
        await it.until_runs("a", 3)
        await world.submit(an_mpijob("b", ns, workers=2, least=2, most=2))
        await it.until_runs("a", 1)
        await it.until_runs("b", 2)
        await world.until_it_is(lambda: has_spare(world))
        await world.end_launcher("b")
        await it.until_ended("b", "Completed")
        await it.until_runs("a", 3)
        exits = [(index, fact.cause) for fact in await it.facts(WorkerExited, it.id("a")) for index in fact.workers]
        # All agents of torch end at each change, and start together.
        assert sorted(exits) == [(0, "stopped"), (0, "stopped"), (1, "stopped"), (2, "stopped")]


async def sorted_pods(world: World) -> list[Object]:
    """Return the pods of job a, by name, that are to stay."""
    pods = [pod for pod in await world.pods_of("a") if not is_leaving(pod)]
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


async def has_spare(world: World) -> bool:
    pods = await sorted_pods(world)
    return [phase_of(pod) for pod in pods] == ["Running", "Pending"] and "nodeName" not in pods[1]["spec"]


async def test_job_when_a_dearer_one_is_served_less_is_preempted_and_resumes(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    ns = world.namespace
    tiresias = {**AT_ONCE, "policy": "elastic-tiresias"}
    async with voda(world, tmp_path, pools={"v100": tiresias}) as it:
        await it.set("v100", parameters={"elastic-tiresias": {"demote_gpu_s": 2.0, "promote_knob": 1e6}})
        await world.submit(an_mpijob("rigid", ns, workers=4, least=4, most=4))
        await it.until_runs("rigid", 4)
        await world.until(lambda: (rigid := it.job(it.id("rigid"))) is not None and rigid.queue_level == LOW)
        # The other one stays where it is, however long it runs.
        await it.set("v100", parameters={"elastic-tiresias": {"demote_gpu_s": 1e6}})
        await world.submit(an_mpijob("urgent", ns, workers=4, least=4, most=4))
        await it.until_runs("urgent", 4)
        assert it.phase(it.id("rigid")) == "Waiting"
        job = await world.job("rigid")
        assert job["spec"]["runPolicy"]["suspend"] is True
        await world.end_launcher("urgent")
        await it.until_runs("rigid", 4)
        await world.end_launcher("rigid")
        await it.until_ended("rigid", "Completed")


async def test_pools_when_three_have_policies_of_their_own_do_not_touch_each_other(
    world: World, tmp_path: Path
) -> None:
    policies = {"v100": "elastic-fifo", "a100": "ffdl", "t4": "tiresias"}
    for pool in policies:
        await world.add_node(f"{pool}-1", gpus=2, pool=pool)
    pools = {pool: {**AT_ONCE, "policy": policy} for pool, policy in policies.items()}
    ns = world.namespace
    async with voda(world, tmp_path, pools=pools) as it:
        for pool in policies:
            await world.submit(an_mpijob(f"on-{pool}", ns, workers=1, least=1, most=2, pool=pool))
        await it.until_runs("on-v100", 2)
        await it.until_runs("on-a100", 2)
        await it.until_runs("on-t4", 1)
        for pool, policy in policies.items():
            assert set(it.nodes(it.id(f"on-{pool}"))) == {f"{pool}-1"}
            assert it.service.view.cluster.plan(pool).policy == policy

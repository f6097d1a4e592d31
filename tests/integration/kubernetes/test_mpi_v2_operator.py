"""The stand-in for mpi-operator keeps what is known of it, on the real API server with the real Job controller."""

from tests.kube import client as api
from tests.kube.objects import an_mpijob
from tests.kube.world import World


async def test_v2_job_when_submitted_gets_workers_launcher_and_surroundings(world: World) -> None:
    await world.add_node("n1")
    await world.submit(an_mpijob("digits", world.namespace, workers=2))
    await world.until_condition("digits", "Running")
    assert await world.running_workers("digits") == ["digits-worker-0", "digits-worker-1"]
    config = await world.client.get(api.CONFIG_MAPS, "digits-config", world.namespace)
    assert config["data"]["hostfile"].splitlines()[0] == f"digits-worker-0.digits.{world.namespace}.svc slots=1"


async def test_v2_job_when_launcher_ends_well_succeeds(world: World) -> None:
    await world.add_node("n1")
    await world.submit(an_mpijob("digits", world.namespace, workers=2))
    await world.end_launcher("digits")
    await world.until_condition("digits", "Succeeded")
    assert "completionTime" in (await world.job("digits"))["status"]

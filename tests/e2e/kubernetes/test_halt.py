"""A job that a user halts has no workers on the cluster, whatever is free, until it is resumed."""

from pathlib import Path

from tests.e2e.kubernetes.service import voda
from tests.kube.client import JOB_STATES
from tests.kube.objects import an_mpijob
from tests.kube.world import World
from voda.application.halt_job import halt, resume
from voda.auth.callers import Caller

ANN = Caller(user="ann", role="admin")


async def test_halted_job_gives_its_pods_up_until_it_is_resumed(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, workers=1, least=1, most=2))
        await it.until_runs("a", 2)
        await halt(it.service.backend.journal, it.record("a"), ANN, reason="maintenance")
        await it.until_runs("a", 0)

        async def tells() -> bool:
            shown = await world.client.find(JOB_STATES, "a.mpijob", world.namespace) or {}
            return (shown.get("state"), shown.get("explanation")) == ("Halted", "halted by ann: maintenance")

        await it.until(tells)
        # Others come and go, and leave GPUs that nobody else wants.
        await world.submit(an_mpijob("b", world.namespace, workers=1, least=1, most=2))
        await it.until_runs("b", 2)
        await it.until_runs("a", 0)
        await resume(it.service.backend.journal, it.record("a"), ANN)
        await it.until_runs("a", 2)
        await world.end_launcher("a")
        await it.until_ended("a", "Completed")

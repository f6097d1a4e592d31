"""Launchers that ask for GPUs when the leader changes: what plans have for them is known to whoever leads next."""

from collections.abc import Sequence

from tests.kube.client import PODS, Object
from tests.kube.memory_api import Wire
from tests.kube.memory_world import POOL, MemoryWorld
from tests.kube.objects import GPU, an_mpijob
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.virtual_time import virtually

ONE: Object = {"name": "launcher", "image": "train", "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}


async def launcher_made_anew_while_nobody_leads() -> None:
    async with MemoryWorld(1, [MpiOperatorV2]) as world:
        await world.add_node("n1", 4, POOL)

        def launchers() -> Sequence[Object]:
            found = [pod for (_, name), pod in world.server.objects[PODS].items() if "launcher" in name]
            return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

        def is_bound() -> bool:
            return any(pod["spec"].get("nodeName") for pod in launchers())

        async with world.replica(Wire(1)) as first:
            spec = {"containers": [ONE]}
            await world.submit(an_mpijob("a", world.namespace, 3, least=3, most=3, pool=POOL, launcher_spec=spec))
            await world.until(is_bound)
            live = first.service.view.cluster
            await world.until(lambda: len(job.workers if (job := live.job("ns_a")) else ()) == 3)
        [launcher] = launchers()
        await world.client.delete(PODS, launcher["metadata"]["name"], world.namespace)
        await world.until(lambda: any(pod["metadata"]["uid"] != launcher["metadata"]["uid"] for pod in launchers()))
        assert not is_bound()
        async with world.replica(Wire(1)):
            await world.until(is_bound)


def test_launcher_that_is_made_anew_while_nobody_leads_is_let_go_by_the_next_leader() -> None:
    virtually(launcher_made_anew_while_nobody_leads())

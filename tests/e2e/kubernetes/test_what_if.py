"""What another policy would have done, asked of voda on a cluster."""

from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.kubernetes.service import voda
from tests.kube.objects import an_mpijob
from tests.kube.world import World


async def test_what_if_when_asked_of_a_replica_is_answered_by_a_process_of_its_own(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it, aiohttp.ClientSession() as session:
        await world.submit(an_mpijob("a", world.namespace, workers=1, least=1, most=2))
        await it.until_runs("a", 2)
        await world.end_launcher("a")
        await it.until_ended("a", "Completed")
        what_ifs = f"{it.service.url}/api/v1/what-ifs"
        question = {"at": "0", "pool": "v100", "policy": "srjf"}
        async with session.post(what_ifs, json=question) as response:
            assert response.status == 202, await response.text()
            made = await response.json()

        async def known() -> Any:
            async with session.get(f"{what_ifs}/{made['what_if_id']}") as response:
                return await response.json()

        async def has_ended() -> bool:
            return (await known())["state"] in ("done", "failed")

        await world.until_it_is(has_ended)
        found = await known()
        assert (found["state"], found["error"]) == ("done", "")
        assert found["comparison"]["policy"] == "srjf"

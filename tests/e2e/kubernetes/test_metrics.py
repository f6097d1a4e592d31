"""What a replica tells Prometheus of its work."""

from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.kubernetes.service import voda
from tests.kube.objects import an_mpijob
from tests.kube.world import World


async def test_metrics_tell_of_requests_gates_adoption_and_who_leads(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, workers=1, least=1, most=2))
        await it.until_runs("a", 2)
        await world.submit(an_mpijob("b", world.namespace, pool="none"))

        async def is_refused() -> bool:
            return (await told(it.service.url))[("voda_objects_unadopted", ("refused",))] == 1

        await it.until(is_refused)
        seen = await told(it.service.url)
    assert seen[("voda_leader", ())] == 1
    assert seen[("voda_leader_epoch", ())] == 1
    assert seen[("voda_gates_lifted_total", ())] == 2
    assert seen[("voda_gate_duration_seconds_count", ())] >= 1
    assert seen[("voda_mirrored_objects", ("nodes",))] == 1
    assert seen[("voda_adoptions_total", ("adopted",))] == 1
    assert seen[("voda_adoptions_total", ("refused",))] == 1
    assert seen[("voda_objects_unadopted", ("waiting",))] == 0
    assert seen[("voda_announcements_total", ("sent",))] >= 1
    assert seen[("voda_kubernetes_requests_total", ("200", "patch"))] >= 1
    assert seen[("voda_kubernetes_request_duration_seconds_count", ("watch",))] >= 3


async def told(url: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return (sample, values of its labels by their names) -> value."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
    return {(one.name, tuple(one.labels.values())): one.value for each in families for one in each.samples}

"""What is shown of shared GPUs: what is free by node, what of it is of use to none, and pods without a GPU."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from tests.builders import a_node
from tests.service import Service, a_service
from tests.unit.projections.test_shares import GPU, a_share, an_assignment
from voda.events.types import NodeChanged, NodeJoined, ShareReleased
from voda.telemetry.share_gauges import ShareGauges


@asynccontextmanager
async def two_gpus() -> AsyncIterator[tuple[Service, ShareGauges]]:
    """Yield a service whose node n1 has two GPUs of 16,000 MiB to share, and what shows them."""
    async with a_service(nodes={"n0": 4}) as service:
        await service.happens(NodeJoined(node=a_node("n1", gpus=2, devices=(GPU, GPU))))
        yield service, ShareGauges(service.backend.journal.view, service.backend.pools)


async def shown(gauges: ShareGauges, name: str, node: str = "n1") -> Mapping[str, float]:
    """Return state -> value; where the gauge has no states, the one value by an empty name."""
    await gauges.refresh()
    samples = [sample for family in gauges.collect() for sample in family.samples]
    return {
        each.labels.get("state", ""): each.value
        for each in samples
        if each.name == f"voda_node_{name}" and each.labels["node"] == node and each.labels["pool"] == "default"
    }


async def test_gauges_when_no_node_has_gpus_are_absent() -> None:
    async with a_service() as service:
        gauges = ShareGauges(service.backend.journal.view, service.backend.pools)
        await gauges.refresh()
        assert list(gauges.collect()) == []
        assert b"voda_node_gpu_" not in (await service.ask("GET", "/metrics")).body


async def test_gauges_when_a_pod_gets_a_share_show_what_is_left() -> None:
    async with two_gpus() as (service, gauges):
        assert await shown(gauges, "shareable_gpus") == {"free": 2, "shared": 0}
        assert await shown(gauges, "shareable_gpus", "n0") == {}
        assert await shown(gauges, "gpu_fragment_milli") == {}
        await service.happens(an_assignment("u1", a_share(600, memory_mib=4_000)))
        assert await shown(gauges, "shareable_gpus") == {"free": 1, "shared": 1}
        assert await shown(gauges, "share_pods") == {"": 1}
        assert await shown(gauges, "gpu_milli") == {"free": 1_400, "shared": 600}
        assert await shown(gauges, "gpu_memory_bytes") == {"free": 28_000 << 20, "shared": 4_000 << 20}
        body = (await service.ask("GET", "/metrics")).body
        assert b'voda_node_gpu_milli{node="n1",pool="default",state="free"} 1400.0' in body
        await service.happens(ShareReleased(node="n1", pod_uid="u1"))
        assert await shown(gauges, "gpu_milli") == {"free": 2_000, "shared": 0}


async def test_fragment_is_what_pods_that_ask_for_as_much_as_the_others_cannot_use() -> None:
    async with two_gpus() as (service, gauges):
        await service.happens(an_assignment("u1", a_share(600)))
        # The 400 beside it: another pod of 600 comes to the free GPU alone.
        assert await shown(gauges, "gpu_fragment_milli") == {"": 400}
        await service.happens(an_assignment("u2", a_share(600, gpu=1)))
        # Now no more of them fits at all.
        assert await shown(gauges, "gpu_fragment_milli") == {"": 800}
        await service.happens(an_assignment("u3", a_share(400)))
        assert await shown(gauges, "gpu_fragment_milli") == {"": pytest.approx(400 * 2 / 3)}


async def test_pods_whose_gpu_has_vanished_are_counted_until_they_are_gone() -> None:
    async with two_gpus() as (service, gauges):
        await service.happens(an_assignment("u1", a_share(600, gpu=1)))
        assert await shown(gauges, "share_pods_without_gpu") == {"": 0}
        await service.happens(NodeChanged(node=a_node("n1", gpus=1, devices=(GPU,))))
        assert await shown(gauges, "share_pods_without_gpu") == {"": 1}
        assert await shown(gauges, "gpu_milli") == {"free": 1_000, "shared": 0}
        await service.happens(ShareReleased(node="n1", pod_uid="u1"))
        assert await shown(gauges, "share_pods_without_gpu") == {"": 0}


async def test_gauges_when_registered_have_unique_names() -> None:
    async with a_service() as service:
        registry = CollectorRegistry()
        registry.register(ShareGauges(service.backend.journal.view, service.backend.pools))
        with pytest.raises(ValueError, match="Duplicated"):
            registry.register(ShareGauges(service.backend.journal.view, service.backend.pools))

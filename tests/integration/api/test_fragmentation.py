"""Fragmentation over HTTP: the figures of the metric, by node, and which pods can use what is free."""

from pathlib import Path

from tests.builders import a_node, a_spec
from tests.integration.api.test_jobs import tokens
from tests.service import a_service
from tests.unit.projections.test_shares import CARD, a_share, an_assignment, whole
from voda.api.schemas.base import Problem
from voda.api.schemas.fragmentation import FragmentationList, FragmentationView, KindFragmentView, NodeFragmentView
from voda.events.types import JobSubmitted, NodeDrainRequested, NodeJoined, WorkerStarted


async def test_fragmentation_of_a_pool_has_its_nodes_with_cards_and_the_figures_of_the_metric() -> None:
    async with a_service(nodes={"n0": 4}) as service:
        await service.happens(NodeJoined(node=a_node("n1", gpus=3, devices=(CARD,) * 3)))
        await service.happens(an_assignment("u1", a_share(600, memory_mib=4_000)))
        await service.happens(JobSubmitted(spec=a_spec("train", gpus_per_replica=1)))
        await service.happens(WorkerStarted(job_id="train", workers={0: "n1"}))
        (pool,) = (await service.ask("GET", "/api/v1/fragmentation")).as_a(FragmentationList).items
        assert pool == FragmentationView(
            pool="default",
            nodes=(
                NodeFragmentView(
                    node="n1", is_open=True, cards=3, whole_free_cards=1, free_milli=1_400, fragment_milli=400.0
                ),
            ),
            kinds=(
                KindFragmentView(
                    devices=0,
                    milli=600,
                    memory_mib=4_000,
                    pods=1,
                    share=1.0,
                    usable_milli=1_000,
                    lost_milli=400,
                    more_pods=1,
                ),
            ),
            rare_pods=0,
        )
        metrics = (await service.ask("GET", "/metrics")).body
        assert b'voda_node_card_fragment_milli{node="n1",pool="default"} 400.0' in metrics


async def test_fragmentation_of_a_node_that_is_drained_is_none() -> None:
    async with a_service(nodes={}) as service:
        await service.happens(NodeJoined(node=a_node("n1", gpus=2, devices=(CARD,) * 2)))
        await service.happens(an_assignment("u1", whole(0)))
        await service.happens(NodeDrainRequested(name="n1", reason="new fan"))
        (pool,) = (await service.ask("GET", "/api/v1/fragmentation")).as_a(FragmentationList).items
        (node,) = pool.nodes
        assert (node.is_open, node.free_milli, node.fragment_milli) == (False, 0, 0)


async def test_fragmentation_is_of_one_pool_or_of_all() -> None:
    async with a_service() as service:
        await service.happens(NodeJoined(node=a_node("v1", pool="v100", gpus=1, devices=(CARD,))))
        every = (await service.ask("GET", "/api/v1/fragmentation")).as_a(FragmentationList).items
        assert [(each.pool, len(each.nodes)) for each in every] == [("default", 0), ("v100", 1)]
        one = (await service.ask("GET", "/api/v1/fragmentation?pool=v100")).as_a(FragmentationList).items
        assert one == every[1:]
        assert one[0].nodes[0].fragment_milli is None
        unknown = await service.ask("GET", "/api/v1/fragmentation?pool=v10")
        assert (unknown.status, "v100" in unknown.as_a(Problem).detail) == (404, True)
        assert (await service.ask("GET", "/api/v1/fragmentation?node=v1")).status == 422


async def test_fragmentation_is_shown_to_users_and_to_nobody_without_a_token(tmp_path: Path) -> None:
    access, anna, _, _ = tokens(tmp_path)
    async with a_service(access=access) as service:
        assert (await service.ask("GET", "/api/v1/fragmentation", token=anna)).status == 200
        assert (await service.ask("GET", "/api/v1/fragmentation", token="")).status == 401

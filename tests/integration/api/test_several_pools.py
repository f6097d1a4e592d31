"""Jobs of several pools over HTTP: what is refused, where they are, and why they are there."""

from collections.abc import Mapping

import pytest

from tests.builders import a_node
from tests.integration.api.test_virtual_clusters import annotated, apply
from tests.service import a_service
from voda.events.types import NodeJoined
from voda.wire.base import Problem
from voda.wire.jobs import SubmissionView

POOLS = ("a100", "v100")


@pytest.mark.parametrize(
    ("pool", "home", "pools"),
    [
        ("any", "a100", POOLS),
        ("v100,a100", "v100", ("v100", "a100")),
        ("v100, v100", "v100", ()),
        ("a100", "a100", ()),
    ],
)
async def test_job_when_it_lists_pools_waits_in_the_first(pool: str, home: str, pools: tuple[str, ...]) -> None:
    async with a_service(pools=POOLS) as service:
        answer = await service.ask("POST", "/api/v1/jobs", body=annotated("a", pool=pool))
        job = answer.as_a(SubmissionView).job
        assert (answer.status, job.pool, job.pools) == (201, home, pools)


async def test_pool_when_one_of_a_list_is_unknown_is_refused() -> None:
    async with a_service(pools=POOLS) as service:
        answer = await service.ask("POST", "/api/v1/jobs", body=annotated("a", pool="a100,h100"))
        assert (answer.status, "there is no pool 'h100'" in answer.as_a(Problem).detail) == (422, True)


@pytest.mark.parametrize(
    ("annotations", "pools"), [({}, POOLS), ({"priority": "5000"}, ()), ({"virtual_cluster": "vision"}, ())]
)
async def test_any_pool_when_one_would_refuse_the_job_leaves_it_out(
    annotations: Mapping[str, str], pools: tuple[str, ...]
) -> None:
    async with a_service(pools=POOLS) as service:
        await service.happens(NodeJoined(node=a_node("n1", pool="a100")))
        assert (await apply(service, "{pool: a100, virtualClusters: {vision: {cells: {node: 1}}}}")).status == 200
        answer = await service.ask("POST", "/api/v1/jobs", body=annotated("a", pool="any", **annotations))
        job = answer.as_a(SubmissionView).job
        assert (answer.status, job.pools) == (201, pools)
        assert (job.pool, job.virtual_cluster) == {
            "5000": ("v100", ""),
            "vision": ("a100", "vision"),
        }.get("".join(annotations.values()), ("a100", "vision"))

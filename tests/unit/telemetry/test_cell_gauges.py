"""What is shown of virtual clusters: quotas, their use, doomed cells, borrowed and idle GPUs."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from tests.builders import a_node, a_spec
from tests.service import Service, a_service
from tests.unit.planner.virtual_clusters.pools import SWITCHES, a_pool, replan, replanned, some_cells, submitted
from voda.domain.cells import CellsSpec
from voda.events.types import JobCancelRequested, JobSubmitted, NodeChanged, PlanAdopted, VirtualClustersApplied
from voda.telemetry import cell_gauges
from voda.telemetry.cell_gauges import CellGauges, cell_figures

NODES = tuple(a_node(f"n{index}") for index in range(1, 5))
TWO_TEAMS = some_cells({"vision": {"rack.node": 2}, "speech": {"rack.node": 1}}, physical=SWITCHES)


@asynccontextmanager
async def a_pool_of_two_teams() -> AsyncIterator[tuple[Service, CellGauges]]:
    """Yield a pool of two racks of two nodes of four GPUs, and what shows its cells."""
    async with a_service(nodes={node.name: 4 for node in NODES}) as service:
        await service.happens(VirtualClustersApplied(pool="default", cells=TWO_TEAMS))
        yield service, CellGauges(service.backend.journal.view, service.backend.pools)


async def shown(gauges: CellGauges, name: str, **labels: str) -> Mapping[str, float]:
    """Return virtual cluster -> value, of the samples with these labels."""
    await gauges.refresh()
    samples = [sample for family in gauges.collect() for sample in family.samples]
    return {
        each.labels["virtual_cluster"]: each.value
        for each in samples
        if each.name == f"voda_virtual_cluster_{name}" and labels.items() <= each.labels.items()
    }


async def test_gauges_when_a_pool_has_no_virtual_clusters_are_absent() -> None:
    async with a_service() as service:
        gauges = CellGauges(service.backend.journal.view, service.backend.pools)
        await gauges.refresh()
        assert list(gauges.collect()) == []
        answer = await service.ask("GET", "/metrics")
        assert b"virtual_cluster" not in answer.body


async def test_gauges_when_virtual_clusters_are_applied_show_quotas_until_they_are_gone() -> None:
    async with a_pool_of_two_teams() as (service, gauges):
        nodes = {"pool": "default", "chain": "rack", "cell_type": "node"}
        assert await shown(gauges, "quota_cells", **nodes) == {"vision": 2, "speech": 1, "default": 1}
        assert await shown(gauges, "quota_gpus", **nodes) == {"vision": 8, "speech": 4, "default": 4}
        assert await shown(gauges, "guarantee_lost") == {"vision": 0, "speech": 0, "default": 0}
        answer = await service.ask("GET", "/metrics")
        assert b'voda_virtual_cluster_idle_gpus{pool="default",virtual_cluster="vision"} 8.0' in answer.body
        await service.happens(VirtualClustersApplied(pool="default", cells=CellsSpec()))
        await gauges.refresh()
        assert list(gauges.collect()) == []


async def test_gauges_when_a_job_borrows_show_what_is_in_use_borrowed_and_idle() -> None:
    async with a_pool_of_two_teams() as (service, gauges):
        await shown(gauges, "quota_cells")
        await service.happens(
            JobSubmitted(spec=a_spec("elastic", virtual_cluster="vision", min_replicas=2, max_replicas=16))
        )
        await service.happens(_plan_for(service))
        assert await shown(gauges, "quota_cells_in_use") == {"vision": 2, "speech": 0, "default": 0}
        assert await shown(gauges, "quota_gpus_in_use") == {"vision": 8, "speech": 0, "default": 0}
        assert await shown(gauges, "borrowed_gpus") == {"vision": 8, "speech": 0, "default": 0}
        assert await shown(gauges, "idle_gpus") == {"vision": 0, "speech": 4, "default": 4}
        await service.happens(JobCancelRequested(job_id="elastic"))
        assert await shown(gauges, "borrowed_gpus") == {"vision": 0, "speech": 0, "default": 0}


async def test_doomed_cells_when_too_few_nodes_are_ready_are_shown_until_they_are_back() -> None:
    async with a_pool_of_two_teams() as (service, gauges):
        for name in ("n1", "n2", "n3"):
            await service.happens(NodeChanged(node=a_node(name, is_ready=False)))
        assert await shown(gauges, "doomed_cells") == {"vision": 1, "speech": 0, "default": 0}
        await service.happens(NodeChanged(node=a_node("n1")))
        assert await shown(gauges, "doomed_cells") == {"vision": 0, "speech": 0, "default": 0}


def test_lacking_cells_when_no_healthy_ones_are_left_for_all_who_are_promised_some_are_counted() -> None:
    def lacking(bad: int) -> Mapping[tuple[str, str], int]:
        nodes = [a_node(node.name, is_ready=index >= bad) for index, node in enumerate(NODES)]
        return cell_figures(a_pool({"vision": {"node": 2}, "speech": {"node.gpu": 4}}, nodes=nodes)).lacking

    # One node is the rest that `default` has: nobody was promised it.
    assert lacking(bad=0) == lacking(bad=1) == {("node", "node"): 0, ("node", "gpu"): 0}
    assert lacking(bad=2) == {("node", "node"): 0, ("node", "gpu"): 4}


async def test_cells_when_nothing_of_them_has_changed_are_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_pool_of_two_teams() as (_, gauges):
        before = await shown(gauges, "quota_cells")
        monkeypatch.setattr(cell_gauges, "cell_figures", None)
        assert await shown(gauges, "quota_cells") == before


async def test_gauges_when_registered_have_unique_names() -> None:
    async with a_service() as service:
        registry = CollectorRegistry()
        registry.register(CellGauges(service.backend.journal.view, service.backend.pools))
        with pytest.raises(ValueError, match="Duplicated"):
            registry.register(CellGauges(service.backend.journal.view, service.backend.pools))


def test_figures_when_there_are_many_virtual_clusters_show_the_last_as_one() -> None:
    pool = a_pool({f"team{index}": {"node": 1} for index in range(4)}, nodes=NODES)
    state = replanned(submitted(pool, "job", "team3", min_replicas=4, max_replicas=8))
    figures = cell_figures(state, most=2)
    assert {key[0]: use.cells for key, use in figures.quotas.items()} == {"team0": 1, "team1": 1, "(others)": 2}
    assert sum(use.leafs for use in figures.quotas.values()) == 16
    assert figures.borrowed == {"team0": 0, "team1": 0, "(others)": 4}


def test_guarantees_when_the_nodes_for_them_have_left_are_lost() -> None:
    state = a_pool({"vision": {"node": 2}, "speech": {"node": 2}}, nodes=NODES)
    assert cell_figures(state).lost == frozenset()
    fewer = replace(state, nodes={node.name: node for node in NODES[:3]})
    assert cell_figures(fewer).lost == {"speech"}


def _plan_for(service: Service) -> PlanAdopted:
    fact = replan(service.backend.live.state("default"))
    assert fact is not None
    return fact

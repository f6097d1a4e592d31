"""Pools with virtual clusters for tests: states that go from one plan to the next, as in a log."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from tests.builders import a_job, a_state
from voda.domain.cells import (
    CellsSpec,
    CellTypeSpec,
    PhysicalCellSpec,
    PhysicalClusterSpec,
    PinSpec,
    QuotaSpec,
    VirtualClusterSpec,
)
from voda.domain.job import Job, Phase
from voda.domain.node import Node
from voda.domain.settings import Settings
from voda.domain.state import ClusterState
from voda.events.types import PlanAdopted
from voda.planner.registries import Registries, redecide
from voda.projections.cluster.pool_changes import adopted

SWITCHES = PhysicalClusterSpec(
    cell_types={
        "switch": CellTypeSpec(child_cell_type="gpu", child_cell_number=2),
        "node": CellTypeSpec(child_cell_type="switch", child_cell_number=2, is_node_level=True),
        "rack": CellTypeSpec(child_cell_type="node", child_cell_number=2),
    },
    physical_cells=tuple(
        PhysicalCellSpec(cell_type="rack", cell_children=tuple(PhysicalCellSpec(cell_address=name) for name in names))
        for names in (("n1", "n2"), ("n3", "n4"))
    ),
)
"""Two racks of two nodes of two switches of two GPUs."""


def some_cells(
    quotas: Mapping[str, Mapping[str, int]],
    *,
    physical: PhysicalClusterSpec | None = None,
    policies: Mapping[str, str] | None = None,
    pins: Mapping[str, str] | None = None,
) -> CellsSpec:
    """Return virtual clusters; `quotas`: virtual cluster -> cell type -> number, `pins`: virtual cluster -> its pin."""
    clusters = {
        name: VirtualClusterSpec(
            virtual_cells=tuple(QuotaSpec(cell_type=kind, cell_number=number) for kind, number in cells.items()),
            pinned_cells=tuple(PinSpec(pinned_cell_id=pin) for owner, pin in (pins or {}).items() if owner == name),
            policy=(policies or {}).get(name, ""),
        )
        for name, cells in quotas.items()
    }
    return CellsSpec(physical_cluster=physical or PhysicalClusterSpec(), virtual_clusters=clusters)


def a_pool(
    quotas: Mapping[str, Mapping[str, int]],
    *,
    nodes: Iterable[Node],
    physical: PhysicalClusterSpec | None = None,
    policies: Mapping[str, str] | None = None,
    settings: Settings | None = None,
) -> ClusterState:
    """Return a pool without jobs."""
    cells = some_cells(quotas, physical=physical, policies=policies)
    return replace(a_state(nodes=nodes, settings=settings), cells=cells)


def submitted(state: ClusterState, job_id: str, cluster: str, **fields: object) -> ClusterState:
    """Return the state with one more job, submitted last."""
    at = 1.0 + max((job.submitted_at for job in state.jobs.values()), default=0.0)
    job = a_job(job_id, virtual_cluster=cluster, submitted_at=at, **fields)
    return replace(state, jobs={**state.jobs, job_id: job})


def ended(state: ClusterState, job_id: str) -> ClusterState:
    """Return the state without a job."""
    return replace(state, jobs={name: job for name, job in state.jobs.items() if name != job_id})


def replanned(state: ClusterState) -> ClusterState:
    """Return the state once the next plan is in force."""
    fact = replan(state)
    return state if fact is None else replace(state, plan=adopted(state.plan, fact, 0.0))


def replan(state: ClusterState, registries: Registries | None = None) -> PlanAdopted | None:
    """Return the next plan as the log records it."""
    undecided = {job_id for job_id in state.jobs if job_id not in state.plan.reasons}
    return redecide(state, undecided, registries or Registries(), 0.0, cause="tick")


def reached(state: ClusterState) -> ClusterState:
    """Return the state once every job has the workers that the plan gives it."""
    placement = state.plan.placement
    jobs = {job_id: _at_work(job, placement.get(job_id, ())) for job_id, job in state.jobs.items()}
    return replace(state, jobs=jobs)


def guaranteed(state: ClusterState, job_id: str) -> int:
    """Return how many workers of a job are guaranteed."""
    return len(state.plan.guaranteed.get(job_id, ()))


def size(state: ClusterState, job_id: str) -> int:
    """Return how many workers a job has by the plan."""
    return len(state.plan.placement.get(job_id, ()))


def _at_work(job: Job, nodes: tuple[str, ...]) -> Job:
    return replace(job, workers=dict(enumerate(nodes)), phase=Phase.RUNNING if nodes else Phase.WAITING)

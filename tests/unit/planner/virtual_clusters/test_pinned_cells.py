"""Jobs in pinned cells: these very GPUs, shared among the jobs that name them, and lent while nobody does."""

from msgspec.structs import replace

from tests.builders import a_node, a_state
from tests.reasons import said
from tests.unit.planner.virtual_clusters.pools import ended, guaranteed, replanned, size, submitted
from voda.domain.cells import (
    CellsSpec,
    CellTypeSpec,
    PhysicalCellSpec,
    PhysicalClusterSpec,
    PinSpec,
    QuotaSpec,
    VirtualClusterSpec,
)
from voda.domain.state import ClusterState

NAMES = ("n1", "n2", "n3")
PHYSICAL = PhysicalClusterSpec(
    cell_types={"node": CellTypeSpec(child_cell_type="gpu", child_cell_number=4, is_node_level=True)},
    physical_cells=tuple(
        PhysicalCellSpec(cell_type="node", cell_address=name, pinned_cell_id="lab" if name == "n2" else "")
        for name in NAMES
    ),
)


def a_lab() -> ClusterState:
    """Return a pool of three nodes: `vision` owns n2, which is pinned, and one other; `default` has the third."""
    one = QuotaSpec(cell_type="node", cell_number=1)
    vision = VirtualClusterSpec(virtual_cells=(one,), pinned_cells=(PinSpec(pinned_cell_id="lab"),))
    cells = CellsSpec(
        physical_cluster=PHYSICAL,
        virtual_clusters={"vision": vision, "default": VirtualClusterSpec(virtual_cells=(one,))},
    )
    return replace(a_state(nodes=[a_node(name) for name in NAMES]), cells=cells)


def test_pinned_job_when_it_comes_has_the_pinned_cell_and_nothing_else() -> None:
    state = replanned(submitted(a_lab(), "job", "vision", pinned_cell="lab", min_replicas=2, max_replicas=12))
    assert (state.plan.placement["job"], guaranteed(state, "job")) == (("n2",) * 4, 4)
    assert said(state.plan.reasons["job"]) == (
        "starts with 4 workers: guaranteed by virtual cluster vision, in its pinned cell lab"
    )


def test_pinned_cell_when_others_borrow_it_is_given_back_to_a_job_that_names_it() -> None:
    state = replanned(submitted(a_lab(), "elastic", "vision", min_replicas=2, max_replicas=12))
    assert (size(state, "elastic"), guaranteed(state, "elastic")) == (12, 4)
    state = replanned(submitted(state, "pinned", "vision", pinned_cell="lab", min_replicas=4, max_replicas=4))
    assert (state.plan.placement["pinned"], guaranteed(state, "pinned")) == (("n2",) * 4, 4)
    assert (size(state, "elastic"), guaranteed(state, "elastic")) == (8, 4)
    assert replanned(state).plan == state.plan
    assert size(replanned(ended(state, "pinned")), "elastic") == 12


def test_pinned_job_when_the_cell_is_in_use_waits_while_others_are_idle() -> None:
    state = submitted(a_lab(), "first", "vision", pinned_cell="lab", min_replicas=3, max_replicas=4, priority=5)
    state = replanned(submitted(state, "second", "vision", pinned_cell="lab", min_replicas=2, max_replicas=2))
    assert (size(state, "first"), size(state, "second")) == (4, 0)
    assert said(state.plan.reasons["second"]) == (
        "waits: pinned cell lab has 4 of its 4 GPUs in use by its own jobs of higher priority"
    )


def test_pinned_job_when_it_is_larger_than_the_cell_says_so() -> None:
    state = replanned(submitted(a_lab(), "large", "vision", pinned_cell="lab", min_replicas=5, max_replicas=5))
    assert said(state.plan.reasons["large"]) == "waits: pinned cell lab holds 4 workers of 1 GPU, it needs 5 at least"


def test_pinned_job_when_the_cell_is_lost_waits_and_starts_there_again() -> None:
    state = replanned(submitted(a_lab(), "job", "vision", pinned_cell="lab", min_replicas=2, max_replicas=4))
    lost = replanned(replace(state, nodes={**state.nodes, "n2": a_node("n2", is_draining=True)}))
    assert said(lost.plan.reasons["job"]) == (
        "preempted: pinned cell lab has 0 of its 4 GPUs in use by its own jobs and is on bad hardware"
    )
    assert replanned(replace(lost, nodes=state.nodes)).plan.placement["job"] == ("n2",) * 4


def test_pinned_job_when_its_pin_is_no_longer_there_stops_and_says_so() -> None:
    state = replanned(submitted(a_lab(), "job", "vision", pinned_cell="lab", min_replicas=2, max_replicas=4))
    assert state.cells is not None
    clusters = {**state.cells.virtual_clusters, "vision": VirtualClusterSpec()}
    state = replanned(replace(state, cells=replace(state.cells, virtual_clusters=clusters)))
    assert not size(state, "job")
    assert said(state.plan.reasons["job"]) == "preempted: virtual cluster vision has no pinned cell lab any longer"

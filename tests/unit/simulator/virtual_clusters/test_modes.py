"""The clusters that are compared: rigid jobs on whole nodes, private clusters of the quota, files that do not fit."""

import pytest

from tests.unit.simulator.virtual_clusters.drawn_jobs import a_shared, an_arrival, some_cells
from voda.domain.cells import CellsSpec, QuotaSpec, VirtualClusterSpec
from voda.domain.errors import InvalidInput
from voda.simulator.engine import SimulationOptions
from voda.simulator.virtual_clusters.modes import Mode, shared_workload, simulations
from voda.simulator.virtual_clusters.rigid import rigid
from voda.simulator.workload import Workload
from voda.simulator.workloads.request import parse_nodes


@pytest.mark.parametrize(("gpus", "shape"), [(1, (1, 1)), (8, (1, 8)), (12, (2, 6)), (24, (3, 8)), (128, (16, 8))])
def test_job_when_rigid_has_its_gpus_together_on_as_few_nodes_as_can_be(gpus: int, shape: tuple[int, int]) -> None:
    fixed = rigid(an_arrival("job", "a", 0.0, gpus=gpus, runs_s=3600.0, most=2 * gpus), 8)
    spec = fixed.spec
    assert (spec.min_replicas, spec.gpus_per_replica) == shape
    assert spec.max_replicas == spec.requested == spec.min_replicas
    runs_s = sum(fixed.profile.epoch_s(epoch, (1,) * spec.min_replicas) for epoch in range(fixed.profile.epochs))
    assert runs_s == pytest.approx(3600.0)


def test_private_clusters_when_simulated_have_the_nodes_of_their_quota_and_their_own_jobs() -> None:
    jobs = [an_arrival("one", "a", 0.0, gpus=1, runs_s=60.0), an_arrival("two", "b", 1.0, gpus=1, runs_s=60.0)]
    shared = a_shared(jobs, {"a": 1, "b": 2, "idle": 1})
    private = [workload for workload, _ in simulations(shared, Mode.PRIVATE, SimulationOptions())]
    assert [(each.name, len(each.nodes), [job.spec.job_id for job in each.arrivals]) for each in private] == [
        ("a", 1, ["one"]),
        ("b", 2, ["two"]),
    ]


PART_OF_A_NODE = CellsSpec(
    virtual_clusters={"a": VirtualClusterSpec(virtual_cells=(QuotaSpec(cell_type="node.gpu", cell_number=4),))}
)


@pytest.mark.parametrize(
    ("cells", "nodes", "sentence"),
    [
        (some_cells({"a": 3}), "2x8", "the virtual clusters have 3 nodes, and the cluster has 2"),
        (some_cells({"b": 1}), "2x8", "job job is in virtual cluster a, to which the file gives no nodes"),
        (some_cells({"a": 1}), "2x4", "job job asks for 8 GPUs, and virtual cluster a has 4"),
        (some_cells({"a": 1}), "1x8,1x4", "on equal nodes"),
        (some_cells({"a": 0}), "2x8", "gives no virtual cluster nodes"),
        (PART_OF_A_NODE, "2x8", "virtual cluster a: private clusters are of whole nodes"),
    ],
)
def test_virtual_clusters_when_they_do_not_fit_are_refused(cells: CellsSpec, nodes: str, sentence: str) -> None:
    arrivals = (an_arrival("job", "a", 0.0, gpus=8, runs_s=60.0),)
    workload = Workload(name="w", source="test", arrivals=arrivals, nodes=parse_nodes(nodes))
    with pytest.raises(InvalidInput, match=sentence):
        shared_workload(workload, cells)


def test_virtual_cluster_default_without_nodes_is_said_to_have_the_jobs_that_name_none() -> None:
    arrivals = (an_arrival("job", "", 0.0, gpus=8, runs_s=60.0),)
    workload = Workload(name="w", source="test", arrivals=arrivals, nodes=parse_nodes("2x8"))
    with pytest.raises(InvalidInput, match=r"such as default: \{cells: .*without a column virtual_cluster are in it"):
        shared_workload(workload, some_cells({"a": 1}))

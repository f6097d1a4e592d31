"""Claims about the workloads of the Pollux paper."""

from pathlib import Path

import pytest

from tests.public_data import folder_or_skip
from voda.domain.errors import DataNotFound, InvalidInput
from voda.simulator.data import POLLUX
from voda.simulator.workloads.catalogue import load_workload
from voda.simulator.workloads.request import parse_nodes


@pytest.mark.parametrize(("name", "jobs"), [("pollux/workload-6", 160), ("pollux-2x/workload-6", 320)])
def test_workload_has_the_jobs_and_nodes_of_the_paper(name: str, jobs: int) -> None:
    workload = load_workload(name, data=folder_or_skip(POLLUX).parent)
    assert len(workload.arrivals) == jobs
    assert [node.gpus for node in workload.nodes] == [4] * 16


def test_bounds_follow_the_batch_size_the_cluster_and_the_application() -> None:
    folder_or_skip(POLLUX)
    bounds = {
        a.spec.job_id: (a.spec.min_replicas, a.spec.requested, a.spec.max_replicas)
        for a in load_workload("pollux/workload-6").arrivals
    }
    assert bounds["cifar10-0"] == (1, 6, 64)  # 2048 / 32 = 64
    assert {most for job_id, (_, _, most) in bounds.items() if job_id.startswith("ncf")} == {1}
    small = {a.spec.job_id: a.spec for a in load_workload("pollux/workload-6", nodes=parse_nodes("1x4")).arrivals}
    assert (small["cifar10-0"].requested, small["cifar10-0"].max_replicas) == (4, 4)


def test_jobs_share_a_history_only_at_the_same_batch_size() -> None:
    folder_or_skip(POLLUX)
    first = load_workload("pollux/workload-6").arrivals[0].spec
    assert first.history_category == "cifar10-b2048"


def test_workload_when_its_file_is_absent_names_those_that_are_there(tmp_path: Path) -> None:
    marker = tmp_path / "adaptdl-osdi21" / POLLUX.marker[0]
    marker.parent.mkdir(parents=True)
    marker.touch()
    with pytest.raises(InvalidInput, match=r"there is no .*workload-6\.csv; the folder has none"):
        load_workload("pollux/workload-6", data=tmp_path)


def test_workload_when_its_file_is_damaged_says_where_to_get_it_again(tmp_path: Path) -> None:
    root = tmp_path / "adaptdl-osdi21"
    for name in (POLLUX.marker[0], "workloads/workload-6.csv"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("name,time\nx,1\n")
    with pytest.raises(InvalidInput, match=r"damaged or not what it should be .* get it again from github\.com/petuum"):
        load_workload("pollux/workload-6", data=tmp_path)


def test_workload_without_the_data_set_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataNotFound, match=r"github\.com/petuum/adaptdl"):
        load_workload("pollux/workload-6", data=tmp_path)

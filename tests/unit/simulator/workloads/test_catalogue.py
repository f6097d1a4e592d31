"""Claims every workload keeps."""

import itertools
from collections.abc import Callable

import pytest

from tests.public_data import folder_or_skip
from voda.domain.errors import InvalidInput
from voda.domain.job import validated
from voda.simulator.data import PHILLY, POLLUX
from voda.simulator.workload import Workload
from voda.simulator.workloads.catalogue import load_workload, workload_names
from voda.simulator.workloads.request import WorkloadOptions, parse_nodes, total_gpus


def _philly() -> Workload:
    folder_or_skip(PHILLY)
    return load_workload("philly", options=WorkloadOptions(begins="2017-11-01", jobs=300))


def _pollux(name: str) -> Workload:
    folder_or_skip(POLLUX)
    return load_workload(name)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "voda-exp/run_1": lambda: load_workload("voda-exp/run_1"),
    "poisson": lambda: load_workload("poisson"),
    "poisson on one node": lambda: load_workload("poisson", nodes=parse_nodes("1x2")),
    "philly": _philly,
    "pollux/workload-6": lambda: _pollux("pollux/workload-6"),
    "pollux-2x/workload-1": lambda: _pollux("pollux-2x/workload-1"),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_valid_jobs_in_order_that_its_cluster_can_run(name: str) -> None:
    workload = WORKLOADS[name]()
    gpus = total_gpus(workload.nodes)
    assert workload.arrivals[0].submitted_s >= 0
    assert len({arrival.spec.job_id for arrival in workload.arrivals}) == len(workload.arrivals)
    assert all(a.submitted_s <= b.submitted_s for a, b in itertools.pairwise(workload.arrivals))
    for arrival in workload.arrivals:
        spec = validated(arrival.spec)
        assert spec.max_replicas <= gpus
        assert spec.epochs == arrival.profile.epochs >= 1
        assert arrival.profile.epoch_s(0, (1,)) > 0
        assert arrival.profile.epoch_s(spec.epochs - 1, _packed(workload, spec.max_replicas)) > 0


def _packed(workload: Workload, replicas: int) -> tuple[int, ...]:
    per_node: list[int] = []
    for node in workload.nodes:
        if replicas > 0:
            per_node.append(min(node.gpus, replicas))
            replicas -= node.gpus
    return tuple(per_node)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_when_loaded_twice_is_the_same(name: str) -> None:
    once, again = WORKLOADS[name](), WORKLOADS[name]()
    assert [arrival.spec for arrival in once.arrivals] == [arrival.spec for arrival in again.arrivals]
    assert [arrival.profile for arrival in once.arrivals] == [arrival.profile for arrival in again.arrivals]


@pytest.mark.parametrize(
    "name",
    ["", "nonsense", "pollux", "pollux/workload-9", "pollux/../secret", "voda-exp/run_2", "philly/1", "poisson/"],
)
def test_workload_of_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_workload(name)
    assert all(one in str(refused.value) for one in workload_names())


def test_workload_with_an_option_it_does_not_heed_is_refused() -> None:
    with pytest.raises(InvalidInput, match="voda-exp/run_1 has no option jobs: it has none"):
        load_workload("voda-exp/run_1", options=WorkloadOptions(jobs=3))
    with pytest.raises(InvalidInput, match=r"poisson has no option from: .* rate$"):
        load_workload("poisson", options=WorkloadOptions(begins="2017-10-01"))

"""Claims about the Philly trace and what is drawn for it."""

import gzip
from pathlib import Path

import pytest

from tests.public_data import folder_or_skip
from voda.domain.errors import InvalidInput
from voda.simulator.data import PHILLY
from voda.simulator.workload import SpeedupProfile, Workload
from voda.simulator.workloads.catalogue import load_workload
from voda.simulator.workloads.request import WorkloadOptions, parse_nodes

TRACE = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-02 00:00:00,1000.0,16,16000.0,aa
2017-10-01 06:00:00,60.0,1,60.0,bb
2017-10-03 00:00:00,90000.0,4,360000.0,aa
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "adaptdl-osdi21/traces/philly.csv.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(TRACE.encode()))
    return tmp_path


def _profiles(workload: Workload) -> dict[str, SpeedupProfile]:
    return {a.spec.job_id: a.profile for a in workload.arrivals if isinstance(a.profile, SpeedupProfile)}


def test_trace_when_loaded_is_sorted_by_submission_and_bounded_by_what_was_asked_for(data: Path) -> None:
    workload = load_workload("philly", data=data)
    assert [(a.spec.job_id, a.submitted_s) for a in workload.arrivals] == [
        ("philly-00001", 0.0),
        ("philly-00002", 64800.0),
        ("philly-00003", 151200.0),
    ]
    sizes = [(a.spec.min_replicas, a.spec.requested, a.spec.max_replicas) for a in workload.arrivals]
    assert sizes == [(1, 1, 2), (1, 16, 32), (1, 4, 8)]
    assert [a.spec.epochs for a in workload.arrivals] == [1, 2, 10]


def test_job_on_the_size_it_asked_for_takes_as_long_as_in_the_trace(data: Path) -> None:
    profiles = _profiles(load_workload("philly", data=data))
    assert profiles["philly-00002"].epoch_s(0, (8, 8)) * 2 == pytest.approx(1000.0)
    assert profiles["philly-00003"].epoch_s(0, (4,)) * 10 == pytest.approx(90000.0)


def test_job_in_a_window_is_the_same_as_in_the_whole_trace(data: Path) -> None:
    whole = _profiles(load_workload("philly", data=data))
    window = load_workload("philly", data=data, options=WorkloadOptions(begins="2017-10-02", ends="2017-10-03"))
    assert _profiles(window) == {"philly-00002": whole["philly-00002"]}
    assert window.arrivals[0].submitted_s == 0.0
    assert _profiles(load_workload("philly", data=data, options=WorkloadOptions(jobs=1))).keys() == {"philly-00001"}


def test_speedups_depend_on_the_seed_and_on_nothing_else(data: Path) -> None:
    assert _profiles(load_workload("philly", data=data, seed=1)) == _profiles(
        load_workload("philly", data=data, seed=1)
    )
    assert _profiles(load_workload("philly", data=data, seed=1)) != _profiles(
        load_workload("philly", data=data, seed=2)
    )


def test_job_larger_than_the_cluster_asks_for_the_whole_of_it(data: Path) -> None:
    workload = load_workload("philly", data=data, nodes=parse_nodes("1x8"))
    assert [(a.spec.requested, a.spec.max_replicas) for a in workload.arrivals] == [(1, 2), (8, 8), (4, 8)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (WorkloadOptions(begins="2018-01-01"), "the trace runs from 2017-10-01T06:00:00 to 2017-10-03T00:00:00"),
        (WorkloadOptions(begins="2017-10-03", ends="2017-10-01"), "no job was submitted from 2017-10-03"),
        (WorkloadOptions(begins="yesterday"), "'yesterday' is no instant"),
        (WorkloadOptions(jobs=-1), "expected 0"),
    ],
)
def test_window_when_it_is_none_is_refused(data: Path, options: WorkloadOptions, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        load_workload("philly", data=data, options=options)


@pytest.mark.parametrize(
    "damaged",
    [
        b"no gzip",
        gzip.compress(TRACE.encode())[:40],
        gzip.compress(b"timestamp,duration\n2017,1\n"),
        gzip.compress(b"\xff\xfe"),
        gzip.compress(b"timestamp,duration,num_gpus,gpu_time,cluster\n"),
        gzip.compress(TRACE.replace("1000.0", "-5").encode()),
    ],
    # Compressed bytes carry the second of their making: as ids they would differ between worker processes.
    ids=["no-gzip", "cut", "columns", "no-text", "empty", "negative"],
)
def test_trace_when_damaged_is_refused(data: Path, damaged: bytes) -> None:
    (data / "adaptdl-osdi21/traces/philly.csv.gz").write_bytes(damaged)
    with pytest.raises(InvalidInput, match="damaged"):
        load_workload("philly", data=data)


def test_real_trace_has_82247_jobs() -> None:
    workload = load_workload("philly", data=folder_or_skip(PHILLY).parent)
    assert len(workload.arrivals) == 82_247
    assert sum(a.spec.requested == 1 for a in workload.arrivals) / 82_247 == pytest.approx(0.932, abs=0.001)


@pytest.mark.parametrize(
    "options", [WorkloadOptions(begins="2017-10-02T00:00:00-07:00"), WorkloadOptions(ends="2017-10-03T00:00:00Z")]
)
def test_offset_is_refused_as_the_trace_names_no_zone(data: Path, options: WorkloadOptions) -> None:
    with pytest.raises(InvalidInput, match=r"philly: '2017-10-.*' has an offset, which means nothing here"):
        load_workload("philly", data=data, options=options)

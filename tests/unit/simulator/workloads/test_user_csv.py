"""Claims about the user's own file, most of them about what is wrong with it."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.domain.errors import InvalidInput
from voda.simulator.workload import Costs, SpeedupProfile, Workload, speedup_law
from voda.simulator.workloads.catalogue import load_workload
from voda.simulator.workloads.request import WorkloadOptions, parse_nodes

HEADER = "name,submitted_s,epochs,work_s"


def _load(tmp_path: Path, text: str | bytes, nodes: str = "4x4") -> Workload:
    path = tmp_path / "mine.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_workload(str(path), nodes=parse_nodes(nodes))


def test_row_with_only_the_required_columns_is_a_rigid_job_of_one_replica(tmp_path: Path) -> None:
    arrival = _load(tmp_path, f"{HEADER}\nresnet-1,5,10,3600\n").arrivals[0]
    spec = arrival.spec
    assert (spec.job_id, spec.min_replicas, spec.requested, spec.max_replicas) == ("resnet-1", 1, 1, 1)
    assert arrival.submitted_s == 5.0
    assert arrival.profile == SpeedupProfile(
        epochs=10, work_s=3600.0, speedup=(0.0, 1.0), costs=Costs(start_s=30.0, resize_s=30.0, migrate_s=30.0)
    )


def test_row_with_every_column_is_read_as_it_says(tmp_path: Path) -> None:
    text = (
        "name,submitted_s,requested,min,max,epochs,epoch_s,gpus_per_replica,priority,a,b,span_penalty,restart_s\n"
        "late,10,2,1,4,5,60,2,7,0.1,0.01,0.2,0\n"
        "\n"
        "early,0,,2,,5,60,,,,,,\n"
    )
    early, late = _load(tmp_path, text).arrivals
    assert (early.spec.job_id, early.spec.min_replicas, early.spec.max_replicas) == ("early", 2, 2)
    assert (late.spec.requested, late.spec.gpus_per_replica, late.spec.priority) == (2, 2, 7)
    assert late.profile == SpeedupProfile(
        epochs=5, work_s=300.0, speedup=speedup_law(0.1, 0.01, 4), span_penalty=0.2, costs=Costs()
    )


def test_speedup_column_gives_one_figure_for_each_size(tmp_path: Path) -> None:
    profile = _load(tmp_path, f"{HEADER},max,speedup\nx,0,1,10,3,1 1.8 2.4\n").arrivals[0].profile
    assert isinstance(profile, SpeedupProfile)
    assert profile.speedup == (0.0, 1.0, 1.8, 2.4)


def test_file_saved_by_a_spreadsheet_is_read(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf"name","submitted_s","epochs","work_s"\r\n"x","0","1","10"\r\n'
    assert len(_load(tmp_path, text).arrivals) == 1


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (["x,0,1,10", "x,1,1,10"], "line 3, column name: x is taken by line 2"),
        (["x,nan,1,10"], "line 2, column submitted_s: 'nan' is no number from 0 to"),
        (["x,-1,1,10"], "line 2, column submitted_s: '-1' is no number"),
        (["x,inf,1,10"], "line 2, column submitted_s"),
        (["x,1e300,1,10"], "line 2, column submitted_s"),
        (["x,,1,10"], "line 2, column submitted_s: '' is no number"),
        (["x,0,1.5,10"], "line 2, column epochs: '1.5' is no whole number"),
        (["x,0,0,10"], "line 2, column epochs: '0' is no number from 1"),
        (["x,0,1,0"], "line 2, column work_s"),
        (["x,0,1,"], "line 2, column epoch_s: give either epoch_s"),
        (["x,0,1," + "9" * 5000], "line 2, column work_s"),
        ([",0,1,10"], "line 2, column name: job ''"),
        (["Bad Name,0,1,10"], "line 2, column name: job 'Bad Name': expected a name of 1 to 128"),
        (["x,0,1"], "line 2: 3 cells, expected 4"),
        (["x,0,1,10,11"], "line 2: 5 cells, expected 4"),
        (['"x,0,1,10'], "is no CSV"),
        ([], "has no jobs"),
    ],
)
def test_bad_row_is_refused_with_its_line_and_reason(tmp_path: Path, rows: list[str], reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        _load(tmp_path, "\n".join([HEADER, *rows]))
    message = str(refused.value)
    assert reason in message
    assert message.startswith(str(tmp_path / "mine.csv"))
    assert len(message) < len(str(tmp_path)) + 200


@pytest.mark.parametrize(
    ("columns", "cells", "reason"),
    [
        ("min,max", "4,2", "column max: '2' is no number from 4"),
        ("min,requested", "4,2", "column requested: '2' is no number from 4"),
        ("min", "17", "17 replicas of 1 GPUs never fit: the nodes take 16"),
        ("gpus_per_replica", "5", "1 replicas of 5 GPUs never fit: the nodes take 0"),
        ("max", "99999", "column max: '99999' is no number from 1 to 4096"),
        ("max,speedup", "2,1", "column speedup: 1 figures, expected 2"),
        ("max,speedup", "2,1 x", "column speedup: 'x' is no number"),
        ("max,speedup,a", "2,1 2,0.1", "column speedup: give either"),
        ("a", "-0.1", "column a"),
        ("span_penalty", "nan", "column span_penalty"),
        ("epoch_s", "5", "column epoch_s: give either epoch_s"),
    ],
)
def test_impossible_job_is_refused(tmp_path: Path, columns: str, cells: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        _load(tmp_path, f"{HEADER},{columns}\nx,0,1,10,{cells}\n")
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("", "has no column name"),
        ("name,submitted_s", "has no column epochs"),
        ("name,submitted_s,work_s,gpu", "has no column epochs"),
        ("name,name,submitted_s,epochs", "column name is there 2 times"),
    ],
)
def test_bad_header_is_refused(tmp_path: Path, header: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        _load(tmp_path, f"{header}\nx,0,1,10\n")


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not UTF-8 text"):
        _load(tmp_path, b"name,submitted_s,epochs,work_s\n\xff\xfe,0,1,10\n")


def test_file_that_is_absent_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        load_workload(str(tmp_path / "none.csv"))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InvalidInput, match="cannot be read: Is a directory"):
        load_workload(str(tmp_path / "folder.csv"))


def test_file_with_options_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no option jobs: it has none"):
        load_workload(str(tmp_path / "mine.csv"), options=WorkloadOptions(jobs=1))


@given(st.binary(max_size=80))
def test_file_of_any_bytes_is_refused_or_read(tmp_path_factory: pytest.TempPathFactory, rubbish: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "rubbish.csv"
    path.write_bytes(f"{HEADER}\nx,0,1,10\n".encode() + rubbish)
    with contextlib.suppress(InvalidInput):
        assert load_workload(str(path)).arrivals


def test_unix_times_are_told_from_seconds_after_the_beginning(tmp_path: Path) -> None:
    rows = "a,1591728087,1,10\nb,1591728061,1,10\nc,2020-06-09T20:42:01+02:00,1,10\nd,2020-06-09 18:43:01,1,10\n"
    workload = _load(tmp_path, f"{HEADER}\n{rows}")
    assert {arrival.spec.job_id: arrival.submitted_s for arrival in workload.arrivals} == {
        "b": 0.0,
        "a": 26.0,
        "c": 60.0,
        "d": 120.0,
    }
    assert workload.begins_at == 1591728061.0
    assert _load(tmp_path, f"{HEADER}\na,20,1,10\n").arrivals[0].submitted_s == 20.0


@pytest.mark.parametrize("time", ["1591728061000", "2020-13-01T00:00:00", "0001-01-01T00:00:00+14:00"])
def test_time_that_is_none_is_refused(tmp_path: Path, time: str) -> None:
    with pytest.raises(InvalidInput, match=r"line 2, column submitted_s: '.*' is no number from 0 to"):
        _load(tmp_path, f"{HEADER}\na,{time},1,10\n")


def test_times_of_two_kinds_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"line 3, column submitted_s: '1591728061' is .* or all of them Unix times"):
        _load(tmp_path, f"{HEADER}\na,0,1,10\nb,1591728061,1,10\n")


def test_columns_without_a_meaning_are_named_once(tmp_path: Path) -> None:
    workload = _load(tmp_path, f"{HEADER},colour,,colour\na,0,1,10,red,x,\nb,0,1,10,,,\n")
    assert (len(workload.arrivals), workload.left_out) == (2, ("ignored: colour, '', colour",))


def test_user_and_state_of_a_job_are_read_and_jobs_without_gpus_or_an_end_are_left_out(tmp_path: Path) -> None:
    rows = [
        "a,0,1,10,1,ann,COMPLETED",
        "b,0,1,10,1,bob,CANCELLED by 1000",
        "c,0,1,10,0,ann,COMPLETED",
        "d,0,1,10,0,,",
        "e,0,1,,1,ann,RUNNING",
        "f,0,1,10,1,,",
    ]
    workload = _load(tmp_path, "\n".join([f"{HEADER},gpus_per_replica,user,state", *rows]))
    assert [(one.spec.job_id, one.spec.user, dict(one.spec.labels)) for one in workload.arrivals] == [
        ("a", "ann", {"state": "completed"}),
        ("b", "bob", {"state": "canceled"}),
        ("f", "", {}),
    ]
    assert workload.left_out == ("left out: 2 jobs without GPUs", "left out: 1 job that had not ended")
    with pytest.raises(InvalidInput, match="line 2, column state: 'Bavaria' is none, expected such as COMPLETED"):
        _load(tmp_path, f"{HEADER},state\na,0,1,10,Bavaria\n")


def test_line_without_an_end_is_refused_as_in_other_traces(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"mine\.csv, line 2: is longer than 1,000,000 characters"):
        _load(tmp_path, f"{HEADER}\n" + "," * 1_100_000)

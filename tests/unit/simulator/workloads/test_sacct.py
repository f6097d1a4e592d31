"""What `sacct --parsable2` prints: steps, arrays, heterogeneous and requeued jobs, GPUs, times, and what is wrong."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.domain.errors import InvalidInput
from voda.simulator.workload import SpeedupProfile, Workload
from voda.simulator.workloads.catalogue import load_workload
from voda.simulator.workloads.request import WorkloadOptions

COLUMNS = "JobID|User|State|Submit|Elapsed|AllocTRES"
TWO = "billing=2,cpu=2,gres/gpu:a100=2,gres/gpu=2,node=1"


def a_row(job: str, **cells: str) -> str:
    """Return a row of an ended job of two GPUs that ran for an hour."""
    known: Mapping[str, str] = {
        "user": "ann",
        "state": "COMPLETED",
        "submit": "2024-03-01T12:00:00",
        "elapsed": "01:00:00",
        "tres": TWO,
    }
    return "|".join([job, *{**known, **cells}.values()])


def loaded(tmp_path: Path, *rows: str, columns: str = COLUMNS, options: WorkloadOptions | None = None) -> Workload:
    path = tmp_path / "jobs.sacct"
    path.write_text("\n".join([columns, *rows]) + "\n")
    return load_workload(str(path), options=options)


def jobs_of(workload: Workload) -> dict[str, tuple[int, float]]:
    """Return id -> (GPUs, seconds that the job takes on them)."""
    found = {}
    for arrival in workload.arrivals:
        size, profile = arrival.spec.requested, arrival.profile
        assert isinstance(profile, SpeedupProfile)
        found[arrival.spec.job_id] = size, round(profile.work_s / profile.speedup[size], 6)
    return found


def test_row_is_a_job_and_its_steps_are_parts_of_it(tmp_path: Path) -> None:
    steps = [a_row(f"1{step}", user="") for step in (".batch", ".extern", ".0")]
    workload = loaded(tmp_path, a_row("1"), *steps, a_row("2", submit="2024-03-01T12:00:30", user="bob"))
    assert jobs_of(workload) == {"job-1": (2, 3600.0), "job-2": (2, 3600.0)}
    assert [(one.submitted_s, one.spec.user) for one in workload.arrivals] == [(0.0, "ann"), (30.0, "bob")]
    assert workload.arrivals[0].spec.labels == {"state": "completed"}


def test_each_task_of_an_array_is_a_job_and_those_that_wait_are_counted(tmp_path: Path) -> None:
    workload = loaded(tmp_path, a_row("2_1"), a_row("2_2"), a_row("2_2.batch"), a_row("2_[3,5,7-9%2]", state="PENDING"))
    assert jobs_of(workload) == {"job-2_1": (2, 3600.0), "job-2_2": (2, 3600.0)}
    assert workload.left_out == ("left out: 1 job of an array that had not started",)


def test_components_of_a_heterogeneous_job_are_one_job(tmp_path: Path) -> None:
    rows = [a_row("11+0", tres="cpu=4"), a_row("11+1"), a_row("11+2", elapsed="00:30:00"), a_row("11+0.0")]
    assert jobs_of(loaded(tmp_path, *rows)) == {"job-11": (4, 3600.0)}


def test_runs_of_a_requeued_job_are_one_job(tmp_path: Path) -> None:
    rows = [a_row("5", state="NODE_FAIL", elapsed="00:10:00"), a_row("5", submit="2024-03-01T13:00:00")]
    workload = loaded(tmp_path, *rows)
    assert jobs_of(workload) == {"job-5": (2, 4200.0)}
    assert workload.arrivals[0].spec.labels == {"state": "completed"}


@pytest.mark.parametrize(
    ("cells", "gpus"),
    [
        ("gres/gpu:a100=2,gres/gpu=2|gres/gpu=2|gpu:a100:2|1", 2),
        ("gres/gpu:a100=2,gres/gpu:h100=1||gpu:3|1", 3),
        ("cpu=2,gres/gpumem=80G,gres/gpu=1|||1", 1),
        ("|gres/gpu=4||2", 4),
        ("||gpu:a100:2(IDX:0-1),gpu:1|2", 6),
        ("||gres:gpu:2|1", 2),
    ],
)
def test_gpus_that_stand_several_times_count_once(tmp_path: Path, cells: str, gpus: int) -> None:
    columns = "JobID|State|Submit|Elapsed|AllocTRES|ReqTRES|AllocGRES|NNodes"
    workload = loaded(tmp_path, f"1|COMPLETED|2024-03-01T12:00:00|00:00:10|{cells}", columns=columns)
    assert jobs_of(workload) == {"job-1": (gpus, 10.0)}


def test_run_time_is_without_the_time_that_the_job_was_suspended(tmp_path: Path) -> None:
    columns = "JobID|State|Submit|Start|End|Elapsed|Suspended|AllocTRES"
    times = "2024-03-01T15:03:00|2024-03-01T15:04:00|2024-03-01T15:04:08|00:00:04|00:00:04"
    workload = loaded(tmp_path, f"1|COMPLETED|{times}|{TWO}", columns=columns)
    assert jobs_of(workload) == {"job-1": (2, 4.0)}
    assert workload.left_out == ("ignored: Start, End, Suspended",)


@pytest.mark.parametrize(
    ("text", "seconds"), [("2-03:04:05", 183_845.0), ("00:00:09.250", 9.0), ("12:30", 750.0), ("100:00:00", 360_000.0)]
)
def test_span_of_slurm_is_read(tmp_path: Path, text: str, seconds: float) -> None:
    assert jobs_of(loaded(tmp_path, a_row("1", elapsed=text)))["job-1"][1] == pytest.approx(seconds)


def test_jobs_without_gpus_without_an_end_or_never_started_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        a_row("1", tres="cpu=64,node=1"),
        a_row("2", state="RUNNING"),
        a_row("3", state="PENDING", elapsed="00:00:00", tres=""),
        a_row("4", state="CANCELLED by 0", elapsed="00:00:00"),
        a_row("5", state="CANCELLED+"),
        a_row("6", state="OUT_OF_MEMORY"),
    ]
    workload = loaded(tmp_path, *rows)
    assert {one.spec.job_id: one.spec.labels["state"] for one in workload.arrivals} == {
        "job-5": "canceled",
        "job-6": "failed",
    }
    assert workload.left_out == (
        "left out: 2 jobs that had not ended",
        "left out: 1 job without GPUs",
        "left out: 1 job that never ran",
    )


def test_bar_in_the_only_free_text_is_part_of_it_and_else_an_error(tmp_path: Path) -> None:
    columns = f"JobName|{COLUMNS}"
    assert jobs_of(loaded(tmp_path, f"na|me|{a_row('1')}", columns=columns)) == {"job-1": (2, 3600.0)}
    with pytest.raises(InvalidInput, match=r"line 2: 9 cells, expected 8 .* a '|' in a name is not escaped: leave"):
        loaded(tmp_path, f"na|me|x|{a_row('1')}", columns=f"JobName|Comment|{COLUMNS}")


def test_window_with_an_offset_is_refused_as_the_clock_has_no_zone(tmp_path: Path) -> None:
    rows = [a_row(str(hour), submit=f"2024-03-01T{hour}:00:00") for hour in (12, 13, 14)]
    part = loaded(tmp_path, *rows, options=WorkloadOptions(begins="2024-03-01T13:00:00", jobs=1))
    assert [arrival.spec.job_id for arrival in part.arrivals] == ["job-13"]
    with pytest.raises(InvalidInput, match=r"'2024-03-01T13:00:00\+01:00' has an offset, which means nothing here"):
        loaded(tmp_path, *rows, options=WorkloadOptions(begins="2024-03-01T13:00:00+01:00"))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1|ann", "line 2: 2 cells, expected 6 as in the header"),
        (a_row("one"), "line 2: JobID is 'one', expected such as 17"),
        (a_row("1", state="DONE"), "line 2: State: 'DONE' is none, expected such as COMPLETED"),
        (a_row("1", state=""), "line 2: State: '' is none"),
        (a_row("1", submit="Unknown"), "line 2: Submit is 'Unknown', expected such as 2024-03-01T12:00:00"),
        (a_row("1", submit="2024-03-01T12:00:00+01:00"), "line 2: Submit is .*, without an offset"),
        (a_row("1", elapsed="soon"), "line 2: Elapsed is 'soon', expected"),
        (a_row("1", elapsed="999999-00:00:00"), r"line 2: Elapsed is 8\.63999e\+10 s, expected up to 1e\+09"),
        (a_row("1", tres="cpu=1"), "has no jobs that ran on GPUs; left out: 1 job without GPUs"),
    ],
)
def test_bad_row_is_refused_with_its_line(tmp_path: Path, row: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=rf"jobs\.sacct(, |: ){reason}"):
        loaded(tmp_path, row)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("JobID|State|Submit|Elapsed", "has no column AllocTRES or ReqTRES"),
        ("JobID|State|Submit|AllocTRES", "has no column ElapsedRaw or Elapsed"),
        ("State|Submit|Elapsed|AllocTRES", "has no column JobID"),
        (f"{COLUMNS}|User", "column 'User' is there 2 times"),
    ],
)
def test_header_without_what_is_needed_is_refused(tmp_path: Path, columns: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        loaded(tmp_path, columns=columns)


_CELL = st.one_of(
    st.text(st.characters(exclude_characters="\r\n"), max_size=8),
    st.sampled_from(["1", "1_2", "1+0", "1_[2-3]", "COMPLETED", "2024-03-01", "0:0:1", "gres/gpu=1", "gpu:2", ""]),
)


@given(st.lists(st.lists(_CELL, min_size=5, max_size=8), max_size=4))
def test_whatever_the_rows_say_they_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    path = tmp_path_factory.mktemp("sacct") / "jobs.sacct"
    path.write_text("\n".join([f"{COLUMNS}|JobName", *("|".join(row) for row in rows)]))
    with contextlib.suppress(InvalidInput):
        assert load_workload(str(path)).arrivals

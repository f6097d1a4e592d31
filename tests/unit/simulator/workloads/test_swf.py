"""Traces in the Standard Workload Format: units, parts of one job, what is not known, and what is wrong."""

import contextlib
import gzip
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.domain.errors import InvalidInput
from voda.simulator.workload import SpeedupProfile, Workload
from voda.simulator.workloads.catalogue import load_workload
from voda.simulator.workloads.request import WorkloadOptions
from voda.simulator.workloads.traces import numbered_lines

HEADER = """; Version: 2.2
;  UnixStartTime: 1000000000
; TimeZoneString: Europe/Vienna
;
"""


def a_line(number: int, submitted: float, ran: float, allocated: int, *, status: int = 1, **known: int) -> str:
    """Return one line; the fields that are not given are unknown."""
    fields: list[float] = [-1] * 18
    fields[0], fields[1], fields[3], fields[4], fields[10] = number, submitted, ran, allocated, status
    fields[7], fields[11] = known.get("requested", -1), known.get("user", -1)
    return " ".join(f"{field:g}" for field in fields)


def loaded(tmp_path: Path, *lines: str, header: str = HEADER, options: WorkloadOptions | None = None) -> Workload:
    path = tmp_path / "trace.swf"
    path.write_text(header + "\n".join(lines))
    return load_workload(str(path), options=options)


def jobs_of(workload: Workload) -> list[tuple[str, float, int, float]]:
    """Return (id, submission, processors, seconds that it takes on them) of each job."""
    found = []
    for arrival in workload.arrivals:
        size, profile = arrival.spec.requested, arrival.profile
        assert isinstance(profile, SpeedupProfile)
        packed = profile.work_s / profile.speedup[size]
        found.append((arrival.spec.job_id, arrival.submitted_s, size, round(packed, 6)))
    return found


def test_line_is_a_job_of_its_processors_and_run_time_and_the_first_one_counts_too(tmp_path: Path) -> None:
    workload = loaded(
        tmp_path,
        a_line(1, 0, 3600, 4, user=7),
        "  ",
        a_line(2, 30.5, 60, -1, requested=2, status=0),
        a_line(3, 31, 5, 1),
    )
    assert jobs_of(workload) == [("swf-1", 0.0, 4, 3600.0), ("swf-2", 30.5, 2, 60.0), ("swf-3", 31.0, 1, 5.0)]
    assert [(one.spec.user, dict(one.spec.labels)) for one in workload.arrivals[:2]] == [
        ("user-7", {"state": "completed"}),
        ("", {"state": "failed"}),
    ]
    assert workload.begins_at == 1_000_000_000.0


def test_parts_of_a_job_count_once_by_its_whole_line_or_else_together(tmp_path: Path) -> None:
    summed_up = [a_line(1, 0, 100, 2), a_line(1, 0, 60, 2, status=2), a_line(1, -1, 40, 2, status=3)]
    in_parts = [a_line(2, 5, 60, 2, status=2), a_line(3, 6, 9, 1), a_line(2, -1, 50, 2, status=4)]
    workload = loaded(tmp_path, *summed_up, *in_parts)
    assert jobs_of(workload) == [("swf-1", 0.0, 2, 100.0), ("swf-2", 5.0, 2, 110.0), ("swf-3", 6.0, 1, 9.0)]
    assert workload.arrivals[1].spec.labels == {"state": "failed"}


def test_jobs_that_never_ran_or_whose_size_is_not_known_are_left_out_and_counted(tmp_path: Path) -> None:
    workload = loaded(
        tmp_path,
        a_line(1, 0, -1, 4, status=5),
        a_line(2, 0, 0, 4),
        a_line(3, 0, 10, -1),
        a_line(4, 0, 10, 5000),
        a_line(5, 0, 10, 1),
    )
    assert jobs_of(workload) == [("swf-5", 0.0, 1, 10.0)]
    assert workload.left_out == (
        "left out: 2 jobs that never ran",
        "left out: 1 job without GPUs",
        "left out: 1 job of more than 4,096 GPUs",
    )


def test_window_is_of_the_trace_and_its_jobs_are_those_of_the_whole_trace(tmp_path: Path) -> None:
    lines = [a_line(number, number * 3600, 60, 2) for number in range(1, 9)]
    options = WorkloadOptions(begins="2001-09-09T05:46:40+00:00", ends="2001-09-09T07:46:40")
    part, whole = loaded(tmp_path, *lines, options=options), loaded(tmp_path, *lines)
    assert [arrival.spec.job_id for arrival in part.arrivals] == ["swf-4", "swf-5"]
    assert part.arrivals[0].submitted_s == 0.0
    assert [one.profile for one in part.arrivals] == [one.profile for one in whole.arrivals[3:5]]
    with pytest.raises(InvalidInput, match="has no UnixStartTime in its header, so that --from and --to mean nothing"):
        loaded(tmp_path, *lines, header="", options=options)


def test_compressed_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.swf.gz"
    path.write_bytes(gzip.compress((HEADER + a_line(1, 0, 9, 1)).encode()))
    assert len(load_workload(str(path)).arrivals) == 1
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InvalidInput, match=r"trace\.swf\.gz: is no whole gzip file"):
        load_workload(str(path))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 2 3", "line 5: has 3 fields, expected 18"),
        (a_line(1, 0, 9, 1) + " 4", "line 5: has 19 fields, expected 18"),
        (a_line(1, 0, 9, 1).replace(" 9 ", " nine "), "line 5: field 4 is 'nine', expected a number"),
        (a_line(1, 0, 9, 1).replace(" 9 ", " nan "), "line 5: field 4 is 'nan', expected a number"),
        (a_line(1, 0, 9, 1, status=9), "line 5: status .field 11. is 9, expected -1 or 0 to 5"),
        (a_line(1, 0, 2e9, 1), "line 5: submission and run time are expected to be up to 1e.09 seconds"),
        ("", "has no jobs that ran on GPUs"),
    ],
)
def test_bad_line_is_refused_with_its_number(tmp_path: Path, line: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=rf"trace\.swf(, |: ){reason}"):
        loaded(tmp_path, line)


def test_comments_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace.swf.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.writelines(f";h{number}: {'x' * 1_000}\n" for number in range(20_000))
        file.write(HEADER + a_line(1, 0, 3600, 4))
    tracemalloc.start()
    try:
        workload = load_workload(str(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(workload.arrivals), workload.begins_at) == (1, 1e9)
    assert peak < 5_000_000, "the comments have 20 MB"


def test_file_of_too_many_lines_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.swf"
    path.write_text(";\n" * 5)
    assert len(list(numbered_lines(path, most=5))) == 5
    with pytest.raises(
        InvalidInput, match=r"trace\.swf: has more lines than a trace may have, 4: simulate a part of it$"
    ):
        list(numbered_lines(path, most=4))


_CELLS = st.one_of(st.integers(-2, 6), st.integers(), st.floats(), st.sampled_from(["-1", "x", ";", "", "1e308"]))


@given(st.lists(st.lists(_CELLS, min_size=17, max_size=19), max_size=4), st.text(max_size=40))
def test_whatever_the_file_says_it_is_read_or_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[object]], header: str
) -> None:
    path = tmp_path_factory.mktemp("swf") / "trace.swf"
    path.write_text(f"; UnixStartTime: {header}\n" + "\n".join(" ".join(map(str, row)) for row in rows))
    with contextlib.suppress(InvalidInput):
        assert load_workload(str(path)).arrivals


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("swf")
    for name in ("trace.swf", "trace.swf.gz", "trace.sacct", "trace.sacct.gz"):
        (folder / name).write_bytes(data)
        with contextlib.suppress(InvalidInput):
            assert load_workload(str(folder / name)).arrivals

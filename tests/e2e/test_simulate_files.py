"""`voda simulate` on files that users bring: their own CSV, SWF, and what sacct prints."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from voda.cli import build_app

CSV = """name,submitted_s,epochs,work_s,requested,gpus_per_replica,user,state,team
one,1591728061,1,3600,1,1,ann,completed,vision
two,1591728091,1,60,1,4,bob,failed,speech
three,1591728092,1,60,1,0,bob,failed,speech
"""
SWF = """; Version: 2.2
; UnixStartTime: 1000000000
1 0 -1 3600 1 -1 -1 -1 -1 -1 1 7 -1 -1 -1 -1 -1 -1
2 30 -1 60 -1 -1 -1 4 -1 -1 0 8 -1 -1 -1 -1 -1 -1
"""
SACCT = """JobID|User|State|Submit|Elapsed|AllocTRES|Team
1|ann|COMPLETED|2024-03-01T12:00:00|01:00:00|cpu=2,gres/gpu:a100=1,gres/gpu=1|vision
1.batch||COMPLETED|2024-03-01T12:00:00|01:00:00|cpu=2|
2|bob|FAILED|2024-03-01T12:00:30|00:01:00|cpu=2,gres/gpu:a100=4|vision
3|bob|FAILED|2024-03-01T12:00:31|00:01:00|cpu=2|vision
"""


@pytest.mark.parametrize(
    ("name", "text", "users", "notes"),
    [
        ("mine.csv", CSV, {"ann", "bob"}, ["mine: ignored: team", "mine: left out: 1 job without GPUs"]),
        ("trace.swf", SWF, {"user-7", "user-8"}, []),
        ("jobs.sacct", SACCT, {"ann", "bob"}, ["sacct: ignored: Team", "sacct: left out: 1 job without GPUs"]),
    ],
)
def test_jobs_of_a_file_run_as_its_owners_and_what_is_not_read_is_named(
    name: str, text: str, users: set[str], notes: list[str], tmp_path: Path
) -> None:
    path, out = tmp_path / name, tmp_path / "out"
    path.write_text(text)
    done = CliRunner().invoke(build_app(), ["simulate", "--workload", str(path), "--nodes", "1x8", "--out", str(out)])
    assert (done.exit_code, done.stderr.splitlines()) == (0, notes)
    log = str(out / "elastic-fifo" / "log")
    told = CliRunner().invoke(build_app(), ["events", log, "--type", "job.submitted", "-o", "json"]).stdout
    jobs = [event["data"]["spec"] for event in map(json.loads, told.splitlines())]
    assert {job["user"] for job in jobs} == users
    assert [job["labels"]["state"] for job in jobs] == ["completed", "failed"]

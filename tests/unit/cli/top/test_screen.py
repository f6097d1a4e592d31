"""Claims about the screen of `voda top`."""

from datetime import timedelta

import pytest

from tests.wire import NOW, a_wire_job, a_wire_node, a_wire_pool, ago
from voda.cli.top.plan_changes import PlanChange
from voda.cli.top.screen import ScreenState, frame

JOBS = [
    a_wire_job("digits-1", on=("n1", "n1"), epochs=20, epochs_done=12, submitted_at=ago(300)),
    a_wire_job("digits-2", on=("n1",), submitted_at=ago(200)),
    a_wire_job("digits-3", position=1, starts_at=NOW + timedelta(minutes=3), reason="waits: needs 2, 0 free"),
]


def a_scene(**fields: object) -> ScreenState:
    given: dict[str, object] = {
        "server": "http://127.0.0.1:8470",
        "at": NOW,
        "pools": [a_wire_pool()],
        "nodes": [a_wire_node("n1", jobs={"digits-1": 2, "digits-2": 1}, foreign_gpus=1)],
        "jobs": JOBS,
        "total": 3,
        "changes": [PlanChange(at=ago(9), job_id="digits-1", size="1 -> 2", reason="grows: saves 4m over 12s")],
        **fields,
    }
    return ScreenState(**given)  # type: ignore[arg-type]


def shown(scene: ScreenState, width: int | None, height: int | None) -> list[str]:
    return [line.plain for line in frame(scene, width=width, height=height)]


def test_screen_of_80_columns_and_24_lines() -> None:
    assert shown(a_scene(), 80, 24) == [
        "voda top  http://127.0.0.1:8470  14:05:09                                q quits",
        "pool default: 3 of 4 GPUs used, 2 running, 1 waiting; elastic-fifo, plan 12",
        "",
        "NODE  GPUS  USED  HELD BY",
        "n1    aab#  4/4   a digits-1, b digits-2, # others",
        "",
        "   JOB       STATE    REPLICAS  PROGRESS   ETA",
        "a  digits-1  Running  2/1/4     12/20 60%  -",
        "b  digits-2  Running  1/1/4     -          -",
        "",
        "QUEUE  JOB       STATE    ASKS  ETA        REASON",
        "    1  digits-3  Waiting  1-4   starts 3m  waits: needs 2, 0 free",
        "",
        "DECIDED   JOB       REPLICAS  REASON",
        "14:05:00  digits-1  1 -> 2    grows: saves 4m over 12s",
    ]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (140, 40), (60, 16)])
def test_screen_when_there_is_too_much_fits_and_keeps_every_part(width: int, height: int) -> None:
    many = [a_wire_job(f"job-{number}-{'x' * 60}", on=("n1",) * 4) for number in range(60)]
    queue = [a_wire_job(f"late-{number}", position=number + 1, reason="long " * 50) for number in range(60)]
    nodes = [a_wire_node(f"node-{number}", gpus=64, jobs={f"job-{number}": 64}) for number in range(60)]
    changes = [PlanChange(at=NOW, job_id=f"job-{number}", size="1 -> 2", reason="why " * 50) for number in range(60)]
    lines = shown(a_scene(jobs=many + queue, nodes=nodes, changes=changes, total=500), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    for head in ("NODE", "   JOB", "QUEUE", "DECIDED"):
        assert any(line.startswith(head) for line in lines)
    assert any(line.startswith("... ") and line.endswith(" more") for line in lines)
    assert "380 more live jobs are not shown" in lines


def test_screen_when_nothing_happens_shows_the_free_gpus() -> None:
    lines = shown(a_scene(jobs=[], nodes=[a_wire_node("n1")], changes=[], total=0), 80, 24)
    assert lines[-1].split() == ["n1", "....", "0/4", "-"]


def test_screen_when_the_server_is_away_says_so() -> None:
    assert "the connection was lost" in shown(a_scene(note="the connection was lost"), 80, 24)

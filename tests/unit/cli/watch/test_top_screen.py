"""Claims about the screen of `voda top`, and the changes of plans that it shows."""

from datetime import timedelta

import pytest

from tests.builders import Log
from tests.reasons import worded
from tests.unit.cli.render.test_node_details import GPUS
from tests.wire import NOW, a_wire_job, a_wire_node, a_wire_pool, ago
from voda.api.presenters.events import event_of
from voda.cli.watch.top_screen import PlanChange, PlanChanges, ScreenState, frame
from voda.events.types import JobCompleted, PlanAdopted

JOBS = [
    a_wire_job("digits-1", on=("n1", "n1"), epochs=20, epochs_done=12, submitted_at=ago(300)),
    a_wire_job("digits-2", on=("n1",), submitted_at=ago(200)),
    a_wire_job(
        "digits-3", position=1, starts_at=NOW + timedelta(minutes=3), message="waits: needs 2 GPUs, none is free"
    ),
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
        "    1  digits-3  Waiting  1-4   starts 3m  waits: needs 2 GPUs, none is free",
        "",
        "DECIDED   JOB       REPLICAS  REASON",
        "14:05:00  digits-1  1 -> 2    grows: saves 4m over 12s",
    ]


def test_screen_tells_gpus_that_jobs_share_from_those_that_others_use() -> None:
    nodes = [
        a_wire_node("n1", foreign_gpus=1, devices=GPUS[:1]),
        a_wire_node("n2", foreign_gpus=2, devices=GPUS[:1]),
    ]
    lines = shown(a_scene(nodes=nodes), 80, 24)
    assert [line.rpartition("  ")[2] for line in lines if line.startswith("n")] == [
        "# shared GPUs",
        "# shared GPUs and others",
    ]


def test_screen_counts_shared_gpus_among_those_of_the_pool_and_those_that_are_used() -> None:
    pool = a_wire_pool(gpus=1, used_gpus=1, shared_gpus=1, running=3, waiting=0)
    assert shown(a_scene(pools=[pool]), 100, 24)[1] == (
        "pool default: 2 of 2 GPUs used (1 shared), 3 running, 0 waiting; elastic-fifo, plan 12"
    )
    pool = a_wire_pool(gpus=3, used_gpus=1, shared_gpus=1)
    assert shown(a_scene(pools=[pool]), 80, 24)[1].startswith("pool default: 2 of 4 GPUs used (1 shared), 2 running,")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (140, 40), (60, 16)])
def test_screen_when_there_is_too_much_fits_and_keeps_every_part(width: int, height: int) -> None:
    many = [a_wire_job(f"job-{number}-{'x' * 60}", on=("n1",) * 4) for number in range(60)]
    queue = [a_wire_job(f"late-{number}", position=number + 1, message="long " * 50) for number in range(60)]
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


def a_plan(number: int, **fields: object) -> PlanAdopted:
    settled = {"policy": "fifo", "placer": "steady", "cause": "job.submitted", **fields}
    return PlanAdopted(pool="default", number=number, based_on=0, **settled)  # type: ignore[arg-type]


def test_change_of_a_job_whose_past_is_known_begins_at_none() -> None:
    changes = PlanChanges(is_complete=True)
    changes.add(event_of(Log().add(a_plan(1, placed={"a": ("n1",)}, reasons={"a": worded("starts")}), at=0)))
    assert [change.size for change in changes] == ["0 -> 1"]


def test_change_of_a_guarantee_alone_keeps_the_size() -> None:
    log, changes = Log(), PlanChanges()
    for fact in (
        a_plan(1, guaranteed={"a": ()}, reasons={"a": worded("keeps 2 workers")}),
        a_plan(2, placed={"a": ("n1", "n1")}, reasons={"a": worded("starts")}),
        a_plan(3, guaranteed={"a": ()}, reasons={"a": worded("keeps 2 workers")}),
        a_plan(4, placed={"a": ("n1",)}, reasons={"a": worded("shrinks")}),
    ):
        changes.add(event_of(log.add(fact, at=0)))
    assert [change.size for change in changes] == ["2 -> 1", "2 kept", "-> 2", "kept"]


def test_changes_tell_sizes_before_and_after_newest_first() -> None:
    log, changes = Log(), PlanChanges()
    for fact in (
        a_plan(1, placed={"a": ("n1",)}, reasons={"a": worded("starts"), "b": worded("waits: 0 free")}),
        a_plan(2, placed={"a": ("n1", "n1", "n2")}, reasons={"a": worded("grows")}),
        a_plan(3, placed={"a": ("n1", "n2", "n2")}, reasons={"a": worded("moves")}),
        JobCompleted(job_id="a"),
        a_plan(4, released=("a",), placed={"b": ("n1", "n1")}, reasons={"b": worded("starts")}),
    ):
        changes.add(event_of(log.add(fact, at=0)))
    assert [(change.job_id, change.size, change.reason) for change in changes] == [
        ("b", "0 -> 2", "starts"),
        ("a", "3 -> 0", "the job had ended"),
        ("a", "3 moved", "moves"),
        ("a", "1 -> 3", "grows"),
        ("b", "waits", "waits: 0 free"),
        ("a", "-> 1", "starts"),
    ]

"""Claims about the lists of `voda get`: columns, widths, and words of others."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.wire import NOW, a_wire_job, a_wire_node, a_wire_pool, ago
from voda.cli.render.job_text import summary
from voda.cli.render.tables import jobs_table, nodes_table, pools_table
from voda.domain.job import Phase
from voda.domain.reasons.requests import Requested
from voda.wire.jobs import JobView

JOBS = [
    a_wire_job(
        "digits-mpi-large-batch",
        on=("node-01", "node-01"),
        epochs=20,
        epochs_done=12,
        finishes_at=NOW + timedelta(minutes=12),
        planned_replicas=3,
        message="grows to 3: saves 4m over 12s",
        launcher="mpirun",
    ),
    a_wire_job("resnet-7", on=("node-01", "node-02"), epochs=90, epochs_done=3.5, priority=5),
    a_wire_job(
        "vgg16-19",
        position=1,
        starts_at=NOW + timedelta(minutes=3),
        message="waits: needs 3, 0 free",
        is_preempted=True,
        min_replicas=3,
    ),
    a_wire_job("bert-1", phase=Phase.FAILED, finished_at=ago(60), message="exit code 1"),
]


def lines(jobs: list[JobView], *, wide: bool = False, width: int | None = None) -> list[str]:
    return [line.plain for line in jobs_table(jobs, NOW, wide=wide, width=width)]


def test_jobs_are_a_line_each_with_size_progress_queue_and_what_comes_next() -> None:
    assert lines(JOBS, width=80) == [
        "NAME                    STATE      REPLICAS  PROGRESS   QUEUE  ETA        AGE",
        "digits-mpi-large-batch  Running    2>3/1/4   12/20 60%  -      ends 12m   2m",
        "resnet-7                Running    2/1/4     3.5/90 4%  -      -          2m",
        "vgg16-19                Preempted  0/3/4     -          1      starts 3m  2m",
        "bert-1                  Failed     0/1/4     -          -      60s ago    2m",
    ]


def test_jobs_when_wide_tell_priority_pool_nodes_wait_user_and_reason() -> None:
    head, first, *_ = lines(JOBS, wide=True)
    assert head.split()[-8:] == ["PRIO", "POOL", "LAUNCHER", "NODES", "WAIT", "GPU-H", "USER", "REASON"]
    assert first.endswith("0     default  mpirun    node-01 x2        30s       0  ada   grows to 3: saves 4m over 12s")


def test_jobs_when_wide_on_a_narrow_terminal_take_two_lines() -> None:
    shown = lines(JOBS, wide=True, width=80)
    assert shown[4] == "    -; on node-01, node-02, waited 30s, 0 GPU-hours, priority 5, user ada"
    assert shown[6] == "    waits: needs 3, 0 free; waited 2m, 0 GPU-hours, priority 0, user ada"
    assert lines(JOBS, wide=True, width=120)[2].endswith("priority 0, user ada, launcher mpirun")
    assert max(map(len, shown)) <= 80


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("wide", [False, True])
def test_jobs_fit_the_terminal(width: int, wide: bool) -> None:
    long = a_wire_job("a" * 128, on=("node" * 20,) * 3, user="u" * 64, message="because " * 40)
    assert max(len(line) for line in lines([*JOBS, long], wide=wide, width=width)) <= width


def test_jobs_when_cut_give_up_nodes_before_the_reason() -> None:
    job = a_wire_job(on=("n1", "n2", "n3", "n4", "n5", "n6"), message="its minimum, and not one replica more")
    (_, line) = lines([job], wide=True, width=150)
    assert "n1, n2, n3, …" in line
    assert line.endswith("its minimum, and not one replica more")


def test_words_of_others_cannot_command_the_terminal() -> None:
    job = a_wire_job(message="\x1b[2J\x07gone\nforged  Running", user="\u202eada")
    assert not any(sign in line for line in lines([job], wide=True) for sign in "\x1b\x07\n\u202e")


def test_nodes_tell_who_holds_their_gpus() -> None:
    nodes = [
        a_wire_node("node-01", jobs={"digits": 2, "resnet-7": 1}, foreign_gpus=1),
        a_wire_node("node-02", is_ready=False, is_schedulable=False),
    ]
    assert [line.plain for line in nodes_table(nodes, width=80)] == [
        "NAME     STATUS             GPUS  USED  FREE  HELD BY",
        "node-01  Ready                 4     3     0  digits x2, resnet-7, (others x1)",
        "node-02  NotReady,cordoned     4     0     4  -",
    ]


def test_drain_is_a_state_of_the_node_and_holds_nothing() -> None:
    drain = Requested(by="root", text="the fan of its third GPU is to be replaced on Monday")
    node = a_wire_node("node-01", jobs={"nv": 4}, is_draining=True, drain_reason=drain)
    assert [line.plain for line in nodes_table([node], width=70)] == [
        "NAME     STATUS                              GPUS  USED  FREE  HELD BY",
        "node-01  Ready,draining by root: the fan o…     4     4     0  nv x4",
    ]
    assert max(line.cell_len for line in nodes_table([node], width=100)) <= 100


def test_nodes_of_several_pools_tell_which() -> None:
    nodes = [a_wire_node("node-01", pool="a100"), a_wire_node("node-02", pool="v100")]
    assert [line.plain for line in nodes_table(nodes, width=80)] == [
        "NAME     STATUS  POOL  GPUS  USED  FREE  HELD BY",
        "node-01  Ready   a100     4     0     4  -",
        "node-02  Ready   v100     4     0     4  -",
    ]


def test_pools_tell_load_and_policy() -> None:
    assert [line.plain for line in pools_table([a_wire_pool()], wide=True, width=100)] == [
        "NAME     NODES  GPUS  USED  RUNNING  WAITING  PLAN  POLICY        PLACER  RATELIMIT",
        "default      1     4     3        2        1    12  elastic-fifo  steady  30s",
    ]


def test_pools_count_shared_gpus_among_their_gpus_and_those_that_are_used() -> None:
    line = pools_table([a_wire_pool(gpus=1, used_gpus=1, shared_gpus=1)], width=100)[1].plain
    assert line.split()[:4] == ["default", "1", "2", "2"]


def test_jobs_when_very_narrow_leave_whole_columns_out_and_cut_no_figure() -> None:
    job = a_wire_job("a-job-with-a-name-that-is-long", on=("n1",) * 12, max_replicas=128, min_replicas=10)
    heads, line = lines([job], width=60)
    assert len(line) <= 60
    assert heads.split() == ["NAME", "STATE", "REPLICAS", "PROGRESS", "ETA"]
    assert "12/10/128" in line
    assert lines([job], width=None)[0].endswith("AGE")


def test_nodes_and_pools_fit_sixty_columns() -> None:
    nodes = nodes_table([a_wire_node("node-of-rack-12-0034", is_schedulable=False)], width=60)
    pools = pools_table([a_wire_pool("nvidia-a100-80gb")], width=60)
    assert max(line.cell_len for line in (*nodes, *pools)) <= 60


def test_job_whose_program_fails_again_and_again_says_so() -> None:
    looping = replace(JOBS[1], program_failures=3, last_failure="worker-0 ended with exit code 1: no data")
    assert "Running (3 failures)" in lines([looping])[1]
    assert "3 failures, the last: worker-0 ended with exit code 1: no data" in summary(looping, NOW)
    ended = replace(looping, phase=Phase.COMPLETED)
    assert "failures" not in lines([ended])[1]

"""Claims about what is said of one job."""

from datetime import timedelta

import pytest

from tests.wire import NOW, a_wire_job, ago
from voda.cli.render.job_text import (
    forecast,
    gpu_hours,
    interruption,
    launcher,
    next_try,
    ordinal,
    silence,
    state,
    state_text,
    summary,
    waited_s,
)
from voda.cli.watch.lists import failures_note
from voda.domain.job import Phase


@pytest.mark.parametrize(
    ("launcher_name", "expected"),
    [("program", "none: a plain program"), ("torchrun", "torchrun (MPIJob)"), ("", "not known (MPIJob)")],
)
def test_launcher_is_told_with_the_kind_unless_nothing_but_the_program_runs(launcher_name: str, expected: str) -> None:
    assert launcher(a_wire_job(launcher=launcher_name)) == expected


def test_forecast_of_a_waiting_job_tells_its_place_its_start_and_its_end() -> None:
    starts_at, finishes_at = NOW + timedelta(minutes=3), NOW + timedelta(hours=1)
    assert forecast(a_wire_job(position=2, made_at=NOW, starts_at=starts_at, finishes_at=finishes_at), NOW) == (
        "waits: 2nd in the order of expected starts; expected to start in 3m (14:08) and to finish in 1h (15:05),"
        " if no more jobs are submitted"
    )
    assert forecast(a_wire_job(position=2, made_at=NOW), NOW) == (
        "waits: 2nd in the order of expected starts; its own is not known"
    )
    assert forecast(a_wire_job(position=2), NOW) == "waits: 2nd in the queue; no forecast yet"


def test_forecast_when_none_was_made_says_so() -> None:
    assert forecast(a_wire_job(on=("n1",)), NOW) == "no forecast yet"
    assert forecast(a_wire_job(phase=Phase.COMPLETED, finished_at=ago(1)), NOW) == ""


def test_state_tells_more_than_the_phase() -> None:
    assert state(a_wire_job(is_preempted=True)) == "Preempted"
    assert state(a_wire_job(on=("n1",), is_canceling=True)) == "Canceling"
    assert state(a_wire_job(phase=Phase.CANCELED, is_canceling=True, finished_at=NOW)) == "Canceled"


def test_interruption_says_why_a_job_that_ran_waits() -> None:
    assert interruption(a_wire_job(interruption="halted")) == (
        "it was halted and resumed, and it waits to go on from its checkpoint, or from the beginning without one"
    )
    assert interruption(a_wire_job(is_halted=True, interruption="halted")) == (
        "no plan gives it workers until it is resumed"
    )
    assert interruption(a_wire_job(on=("n1",), interruption="")) == ""
    assert interruption(a_wire_job(phase=Phase.FAILED, interruption="failed", finished_at=NOW)) == ""


def test_next_try_is_told_with_its_time_until_it_is_due() -> None:
    job = a_wire_job(program_failures=1, next_try=2, most_tries=7, next_try_at=NOW + timedelta(seconds=12))
    assert state_text(job, NOW).plain == "BackOff (try 2 of 7 in 12s)"
    assert (
        next_try(job, NOW, lambda instant: f"{instant:%H:%M:%S}")
        == "waits 12s for its next try (2 of 7), next at 14:05:21"
    )
    later = NOW + timedelta(minutes=1)
    assert (next_try(job, later), state_text(job, later).plain) == ("try 2 of 7", "Waiting (try 2 of 7)")
    assert state_text(a_wire_job(program_failures=2), NOW).plain == "Waiting (2 failures)"


@pytest.mark.parametrize(
    ("before", "size", "expected"),
    [(0, 2, "started"), (2, 2, "started"), (1, 2, "grew to 2"), (3, 1, "shrank to 1")],
)
def test_silence_tells_since_which_change(before: int, size: int, expected: str) -> None:
    job = a_wire_job(on=("n1",) * size, silent_since=ago(180), silent_from=before)
    assert silence(job, NOW) == f"silent for 3m since it {expected}"
    assert state_text(job, NOW).plain == "Running (silent 3m)"
    assert f"silent for 3m since it {expected}" in summary(job, NOW)
    assert silence(a_wire_job(), NOW) == ""


def test_gpu_hours_go_on_while_workers_hold_gpus() -> None:
    running = a_wire_job(on=("n1",), gpus=8, gpu_s=3_600.0, counted_at=ago(1_800))
    assert gpu_hours(running, NOW) == 1.0 + 4.0
    assert gpu_hours(a_wire_job(gpu_s=3_600.0, counted_at=ago(1_800)), NOW) == 1.0


def test_waiting_time_goes_on_while_there_are_no_workers() -> None:
    assert waited_s(a_wire_job(waiting_s=5.0, counted_at=ago(60)), NOW) == 65.0
    assert waited_s(a_wire_job(on=("n1",), waiting_s=5.0, counted_at=ago(60)), NOW) == 5.0


def test_summary_is_one_line_with_what_a_follower_wants() -> None:
    job = a_wire_job(on=("n1", "n1"), epochs=20, epochs_done=3, metrics={"accuracy": 0.93})
    assert summary(job, NOW) == "digits: Running, replicas 2/1/4, epochs 3/20 15%, accuracy 0.93"
    ended = a_wire_job(
        phase=Phase.FAILED,
        finished_at=ago(1),
        running_s=60.0,
        waiting_s=60.0,
        message="exit code 1",
        is_preempted=False,
    )
    assert summary(ended, NOW) == "digits: Failed after 2m, exit code 1"


def test_ordinals() -> None:
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th",
    ]  # fmt: skip


def test_running_job_whose_next_try_is_ahead_is_in_backoff() -> None:
    job = a_wire_job(
        phase=Phase.RUNNING, program_failures=1, next_try=2, most_tries=7, next_try_at=NOW + timedelta(seconds=12)
    )
    assert state_text(job, NOW).plain == "BackOff (try 2 of 7 in 12s)"
    assert state_text(job, NOW + timedelta(seconds=12)).plain == "Running (try 2 of 7)"


def test_failures_of_the_last_ten_minutes_are_named() -> None:
    failed = [a_wire_job(f"bad-{n}", phase=Phase.FAILED, finished_at=NOW - timedelta(minutes=3 * n)) for n in range(9)]
    assert failures_note([], NOW) == failures_note(failed[4:], NOW) == ""
    assert failures_note(failed[2:], NOW) == "failed lately: bad-2, bad-3 (voda describe bad-2)"
    many = [a_wire_job(f"bad-{n}", phase=Phase.FAILED, finished_at=NOW) for n in range(7)]
    assert failures_note(many, NOW) == "failed lately: bad-0, bad-1, bad-2 and 4 more (voda describe bad-0)"

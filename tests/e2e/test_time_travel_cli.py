"""The commands that read a log, as a user calls them."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from voda.cli import EXIT_PERMANENT, build_app, main
from voda.log.factory import open_store

LOGS = Path(__file__).parents[1] / "replay" / "logs"
LOG = str(LOGS / "elastic-fifo")


def voda(*arguments: str) -> Result:
    """Run a command, with its options' errors and voda's own let through."""
    return CliRunner().invoke(build_app(), [*arguments], env={"COLUMNS": "80"}, catch_exceptions=False)


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """Run a command that must fail, and return its one sentence."""
    monkeypatch.setattr(sys, "argv", ["voda", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == EXIT_PERMANENT
    said = capsys.readouterr().err
    assert said.startswith("voda: ")
    assert said.count("\n") == 1
    return said


@pytest.fixture
def empty_log(tmp_path: Path) -> str:
    """An SQLite log in which nothing has happened."""

    async def make() -> None:
        await (await open_store(tmp_path / "empty.db")).close()

    asyncio.run(make())
    return str(tmp_path / "empty.db")


@pytest.mark.parametrize("command", ["events", "replay", "explain"])
def test_help_shows_an_example(command: str) -> None:
    assert f"voda {command} voda.db" in voda(command, "--help").output


def test_events_are_one_line_each_with_position_time_subject_and_words() -> None:
    lines = voda("events", LOG, "--from", "11", "--to", "13", "--relative").output.splitlines()
    assert lines[0] == "    11 +00:00:10.000 beta-1: 2 workers started on node-02 x2"
    assert lines[1].startswith("    12 +00:00:40.000 alpha-2: submitted: 2-6 replicas, 4 requested, 8 epochs")
    assert len(lines) == 3


def test_events_of_a_job_include_the_plans_about_it() -> None:
    found = [json.loads(line) for line in voda("events", LOG, "--job", "gamma-1", "-o", "json").output.splitlines()]
    assert {event["type"] for event in found} == {
        "job.submitted",
        "plan.adopted",
        "worker.started",
        "job.progressed",
        "job.completed",
        "worker.exited",
    }
    assert found[0]["recorded_at"].endswith("Z")
    assert found[-1]["message"]


def test_events_of_a_type_are_those_alone() -> None:
    lines = voda("events", LOG, "--type", "job.completed").output.splitlines()
    assert len(lines) == 8
    assert all(line.endswith("completed") for line in lines)


def test_replay_until_shows_nodes_and_jobs_without_padding() -> None:
    shown = voda("replay", LOG, "--until", "+2m").output
    assert "gamma-1 x2" in shown
    assert "3/3-3" in shown
    assert "size: replicas/min-max" in shown
    assert all(line == line.rstrip() for line in shown.splitlines())


def test_replay_at_the_end_tells_how_well_times_were_predicted(tmp_path: Path) -> None:
    voda("simulate", "--workload", "voda-exp/run_1", "--out", str(tmp_path))
    log = str(tmp_path / "elastic-fifo" / "log")
    assert "Time of an epoch on one replica, predicted at submission against measured:" in voda("replay", log).output
    estimates = json.loads(voda("replay", log, "-o", "json").output)["estimates"]
    assert estimates["vgg16"]["jobs"] > 0
    assert 0 <= estimates["vgg16"]["mean_error"] < 0.5


def test_replay_until_as_json_is_the_same_scene() -> None:
    told = json.loads(voda("replay", LOG, "--until", "+2m", "-o", "json").output)
    (pool,) = told["pools"]
    assert pool["nodes"][1]["held_gpus"] == {"beta-1": 2, "gamma-1": 2}


def test_replay_verify_says_how_many_decisions_were_made_again(tmp_path: Path) -> None:
    cluster = ("--nodes", "2x4", "--ratelimit", "5", "--seed", "3")
    voda("simulate", "-w", str(LOGS / "jobs.csv"), *cluster, "-p", "elastic-fifo", "--out", str(tmp_path))
    done = voda("replay", str(tmp_path / "elastic-fifo" / "log"), "--verify")
    assert done.exit_code == 0
    assert done.output == "16 decisions made again: all equal the recorded ones\n"


def test_replay_verify_of_a_log_of_another_version_names_the_first_that_is_decided_otherwise() -> None:
    done = voda("replay", LOG, "--verify")
    assert done.exit_code == 1
    assert "alpha-1" in done.output
    assert "4 is its maximum" in done.output


def test_replay_what_if_shows_three_runs_side_by_side_without_padding() -> None:
    shown = voda("replay", LOG, "--what-if", "elastic-tiresias", "--from", "+5m").output
    assert "re-simulated" in shown
    assert "effect of" in shown
    assert all(line == line.rstrip() for line in shown.splitlines())
    told = json.loads(voda("replay", LOG, "--what-if", "elastic-tiresias", "-o", "json").output)
    assert set(told) >= {"recorded", "resimulated", "what_if", "winners", "losers"}


def test_explain_tells_of_the_present_and_of_the_past() -> None:
    shown = voda("explain", LOG, "gamma-2", "--at", "+14m").output
    assert "why: waits: needs 3 GPUs, none is free" in shown
    assert "expected to start" in shown
    assert "Completed" in voda("explain", LOG, "gamma-2").output
    assert json.loads(voda("explain", LOG, "gamma-2", "-o", "json").output)["ended"]["outcome"] == "completed"


def test_commands_when_the_log_is_empty_say_so(empty_log: str) -> None:
    for arguments in (["events", empty_log], ["replay", empty_log]):
        done = voda(*arguments)
        assert (done.exit_code, done.stdout) == (0, "")
        assert "The log is empty" in done.stderr
    assert voda("replay", empty_log, "--verify").exit_code == 0
    assert voda("replay", empty_log, "--what-if", "fifo").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["events", LOG, "--type", "job.compleeted"], "Did you mean 'job.completed'?"),
        (["events", LOG, "--job", "gama-1"], "Did you mean 'gamma-1'?"),
        (["events", LOG, "--from", "yesterday"], "'yesterday' is no moment"),
        (["events", LOG, "--follow"], "--follow needs a log that grows"),
        (["events", LOG, "--follow", "--to", "5"], "exclude each other"),
        (["replay", LOG, "--until", "5", "--verify"], "exclude each other"),
        (["replay", LOG, "--from", "5"], "belong to --what-if"),
        (["replay", LOG, "--until", "9999"], "beyond the end of the log"),
        (["replay", LOG, "--until", "+99999999999999999999h"], "is too long: expected a span of at most 36500d"),
        (["explain", LOG, "gamma-2", "--at=-99999999999999999999h"], "is too long: expected a span of at most 36500d"),
        (["replay", LOG, "--what-if", "elastic-fivo"], "Did you mean 'elastic-fifo'?"),
        (["replay", LOG, "--what-if", "fifo", "--placer", "stedy"], "Did you mean 'steady'?"),
        (["explain", LOG, "gama-1"], "Did you mean 'gamma-1'?"),
        (["explain", "nowhere.db", "a"], "nowhere.db"),
    ],
)
def test_command_when_misused_answers_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sentence in refused(capsys, monkeypatch, *arguments)


def test_timeline_when_asked_draws_the_log_as_one_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "pictures" / "timeline.html"
    assert "there is no folder" in refused(capsys, monkeypatch, "timeline", LOG, "--out", str(page))
    assert not page.parent.exists()
    page.parent.mkdir()
    assert voda("timeline", LOG, "--out", str(page)).exit_code == 0
    assert "<svg" in page.read_text()


def test_timeline_when_a_trace_is_asked_for_then_has_the_jobs_of_its_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "trace.json"
    assert voda("timeline", LOG, "--format", "chrome-trace", "--from", "+10m", "--out", str(file)).exit_code == 0
    events = json.loads(file.read_text())["traceEvents"]
    assert {event["ph"] for event in events} >= {"M", "X", "C"}
    assert "add --format chrome-trace" in refused(capsys, monkeypatch, "timeline", LOG, "--from", "+10m")
    late = ("timeline", LOG, "--format", "chrome-trace", "--from", "+20m", "--until", "+10m")
    assert "expected a later moment" in refused(capsys, monkeypatch, *late)


def test_timeline_when_the_log_is_empty_says_so(
    empty_log: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing to draw" in refused(capsys, monkeypatch, "timeline", empty_log)

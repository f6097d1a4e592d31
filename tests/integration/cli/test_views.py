"""The commands that tell about a job and what happened, against the real API."""

from pathlib import Path

import msgspec
import pytest

from tests.integration.cli.conftest import LINES
from tests.served import Printed, Server, served, under_way
from voda.cli.http.client import Client
from voda.cli.options import ServerOptions
from voda.domain.errors import InvalidInput, NotAllowed, NotFound, TransientError
from voda.events.types import JobCanceled, JobCompleted, JobProgressed, WorkerStarted

LOG = str(Path(__file__).parents[2] / "replay" / "logs" / "elastic-fifo")


def test_describe_tells_everything_about_a_job(server: Server) -> None:
    shown = server.voda("describe", "digits").stdout
    assert "0 resizes, started again 0 times" in shown
    for words in (
        "digits",
        "Running",
        "Launcher   mpirun (MPIJob)\nUser       admin",
        "2 on n1 x2 (minimum 1, maximum 4",
        "3/20 15% epochs, the last took 1.5s, accuracy 0.9",
        "starts on 2",
        "2 workers started on n1 x2",
        "voda logs digits [--replica worker-1]; launcher, worker-1",
    ):
        assert words in shown
    assert all(line == line.rstrip() for line in shown.splitlines())


def test_describe_of_a_waiting_job_tells_why_and_what_would_help(server: Server) -> None:
    shown = server.voda("describe", "bert").stdout
    assert "waits: needs 1 GPU, none is free" in shown
    assert "nothing printed yet" in shown


def test_explain_asks_the_server_or_reads_a_log(server: Server) -> None:
    assert "digits: Running since" in server.voda("explain", "digits").stdout
    assert msgspec.json.decode(server.voda("explain", "digits", "-o", "json").stdout)["job_id"] == "digits"
    assert "gamma-2: Completed" in server.voda("explain", LOG, "gamma-2").stdout
    with pytest.raises(InvalidInput, match="which job of"):
        server.voda("explain", LOG)
    with pytest.raises(NotFound, match="nobody"):
        server.voda("explain", "nobody")


def test_events_of_the_server_are_told_in_the_words_of_the_log(server: Server) -> None:
    lines = server.voda("events").stdout.splitlines()
    assert lines[0].endswith("node n1: joined with 4 GPUs")
    assert lines[-1].endswith("digits: 3 epochs done on 2 workers, the last in 1.5 s")
    assert len(lines) == 8


def test_events_of_a_job_include_the_plans_about_it(server: Server) -> None:
    by_argument = server.voda("events", "bert").stdout
    assert by_argument == server.voda("events", "--job", "bert").stdout
    assert [line.split(": ")[1].split()[0] for line in by_argument.splitlines()] == ["submitted", "plan"]
    with pytest.raises(NotFound):
        server.voda("events", "nobody")


def test_events_between_two_moments(server: Server) -> None:
    assert len(server.voda("events", "--from", "3", "--to", "5").stdout.splitlines()) == 3
    assert server.voda("events", "--from", "2", "--to", "2", "--relative").stdout.startswith("     2 +00:00:0")
    assert len(server.voda("events", "--from", "-1h", "--type", "job.submitted").stdout.splitlines()) == 3


def test_events_when_a_log_is_named_are_read_from_it(server: Server) -> None:
    assert len(server.voda("events", LOG, "--type", "job.completed").stdout.splitlines()) == 8


def test_logs_are_the_bytes_that_were_printed(server: Server) -> None:
    assert server.voda("logs", "digits").stdout_bytes == LINES
    assert server.voda("logs", "digits", "--replica", "worker-1").stdout_bytes == b"no end of line"
    assert server.voda("logs", "digits", "--replicas").stdout == "launcher\nworker-1\n"


@pytest.mark.parametrize("lines", [0, 1, 7, 900, 5000])
@pytest.mark.parametrize("follow", [False, True])
def test_logs_when_only_the_last_lines_are_wanted(server: Server, lines: int, follow: bool) -> None:
    shown = server.voda("logs", "digits", "--tail", str(lines), *(["-f"] if follow else [])).stdout_bytes
    assert shown == b"".join(LINES.splitlines(keepends=True)[-lines:] if lines else [])


def test_logs_of_all_replicas_have_their_names_before_each_line(server: Server) -> None:
    shown = server.voda("logs", "digits", "--all-replicas", "--tail", "1").stdout
    assert shown == "[launcher] epoch 1000\n[worker-1] no end of line\n"
    followed = server.voda("logs", "resnet", "-A", exit_code=0).stdout
    assert followed == ""
    server.happens(JobCompleted(job_id="digits"))
    assert sorted(server.voda("logs", "digits", "-A", "-f", "--tail", "1").stdout.splitlines()) == shown.splitlines()
    with pytest.raises(InvalidInput, match="--all-replicas and --replica exclude each other"):
        server.voda("logs", "digits", "-A", "-r", "worker-1")


def test_logs_followed_wait_for_the_start_and_end_where_it_never_comes(server: Server) -> None:
    server.begins(_canceled_once_followed(server))
    done = server.voda("logs", "bert", "-f")
    assert (done.stdout, done.stderr.splitlines()) == (
        "",
        ["voda: bert is waiting: its output follows once it starts", "voda: bert is canceled and has printed nothing"],
    )


def test_logs_followed_begin_once_the_job_prints(server: Server) -> None:
    outputs = server.service.backend.outputs
    assert isinstance(outputs, Printed)

    async def print_later() -> None:
        await under_way(server)
        outputs.add("bert", "launcher", b"hello\n")
        await server.service.happens(WorkerStarted(job_id="bert", workers={0: "n1"}))

    server.begins(print_later())
    assert server.voda("logs", "bert", "-f").stdout == "hello\n"


async def _canceled_once_followed(server: Server) -> None:
    await under_way(server)
    await server.service.happens(JobCanceled(job_id="bert"))


def test_logs_of_a_job_that_printed_nothing_say_so(server: Server) -> None:
    with pytest.raises((NotFound, InvalidInput)):
        server.voda("logs", "nobody")


def test_top_when_nobody_watches_is_one_frame(server: Server) -> None:
    shown = server.voda("top").stdout
    assert "pool default: 3 of 4 GPUs used, 2 running, 1 waiting; elastic-fifo, plan 1" in shown
    assert "aab." in shown
    assert "0 -> 2" in shown


def test_events_when_the_connection_is_lost_go_on_where_they_stopped(server: Server) -> None:
    with server.behind_a_relay() as relay:
        seen: list[str] = []
        for message in Client(ServerOptions(home=server.home)).follow_events(after=0):
            seen.append(message.id)
            if len(seen) in (3, 8):
                server.loop.call_soon_threadsafe(relay.cut)
            if len(seen) == 8:
                server.happens(JobProgressed(job_id="digits", epochs_done=4, workers=2))
            if len(seen) == 9:
                break
        assert seen == [str(position) for position in range(1, 10)]


def test_command_when_the_server_is_gone_says_so_and_may_be_tried_again(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        pass
    with pytest.raises(TransientError, match=r"cannot be reached: Connection refused \(is `voda up` running\?\)"):
        server.voda("get")


def test_command_without_a_token_is_refused(tmp_path: Path) -> None:
    from voda.auth.tokens import Authenticator
    from voda.clock import SystemClock

    (tmp_path / "access").mkdir()
    with served(tmp_path, access=Authenticator.open(tmp_path / "access", SystemClock())) as server:
        with pytest.raises(NotAllowed):
            server.voda("get")
        with pytest.raises(NotAllowed):
            server.voda("get", "--token", "wrong")

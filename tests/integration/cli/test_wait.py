"""`voda wait` against the real API."""

from collections.abc import Sequence

import pytest

from tests.served import Server, under_way
from voda.domain.errors import NotFound
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.requests import Requested
from voda.events.types import (
    AnyFact,
    JobCanceled,
    JobCompleted,
    JobFailed,
    JobHaltRequested,
    ProgramFailed,
    WorkerExited,
    WorkerStarted,
)


def once_watched(server: Server, *facts: AnyFact) -> None:
    """Let facts happen once a reader follows the live events."""

    async def happen(facts: Sequence[AnyFact]) -> None:
        await under_way(server)
        for fact in facts:
            await server.service.happens(fact)

    server.begins(happen(facts))


def test_wait_returns_once_every_job_is_there_and_tells_each(server: Server) -> None:
    server.happens(JobCompleted(job_id="resnet"))
    once_watched(server, JobCompleted(job_id="bert"), JobCompleted(job_id="digits"))
    assert server.voda("wait", "digits", "resnet", "bert").stdout == (
        "resnet is completed\nbert is completed\ndigits is completed\n"
    )


def test_wait_when_a_job_ends_otherwise_exits_with_1_and_says_why(server: Server) -> None:
    once_watched(server, JobFailed(job_id="digits", reason=Said(text="exit code 7")))
    done = server.voda("wait", "digits", "bert", exit_code=1)
    assert (done.stdout, done.stderr) == ("", "voda: digits is failed: exit code 7\n")
    assert server.voda("wait", "digits", "--for", "failed").stdout == "digits is failed\n"
    assert server.voda("wait", "digits", "--for", "ended").stdout == "digits is failed\n"
    assert server.voda("wait", "digits", "--for", "running").stdout == "digits is failed\n"


def test_wait_for_running_ends_with_the_first_worker_or_with_1_if_it_never_comes(server: Server) -> None:
    once_watched(server, WorkerStarted(job_id="bert", workers={0: "n1"}))
    assert server.voda("wait", "bert", "--for", "running").stdout == "bert is running\n"
    server.happens(WorkerExited(job_id="bert", workers=(0,)))
    assert server.voda("wait", "bert", "--for", "waiting").stdout == "bert is preempted\n"


def test_wait_for_running_of_a_job_that_was_canceled_first_exits_with_1(server: Server) -> None:
    once_watched(server, JobCanceled(job_id="bert"))
    assert "bert is canceled" in server.voda("wait", "bert", "--for", "running", exit_code=1).stderr


def test_wait_for_halted_ends_when_the_workers_are_gone(server: Server) -> None:
    once_watched(
        server,
        JobHaltRequested(job_id="digits", reason=Requested(by="ann")),
        WorkerExited(job_id="digits", workers=(0, 1)),
    )
    assert server.voda("wait", "digits", "--for", "halted").stdout == "digits is halted\n"


def test_wait_when_time_is_up_exits_with_124_and_says_what_is_left(server: Server) -> None:
    done = server.voda("wait", "digits", "bert", "--timeout", "1s", exit_code=124)
    assert done.stderr == "voda: not completed after 1s: digits is running, bert is waiting\n"


def test_wait_when_time_is_up_for_a_program_that_fails_says_which_try_it_waits_for(server: Server) -> None:
    failed = ProgramFailed(
        job_id="digits", replica="launcher", reason=Said(text="exit code 1"), next_try=2, most_tries=7
    )
    server.happens(failed)
    said = server.voda("wait", "digits", "--timeout", "1s", exit_code=124).stderr
    assert said == "voda: not completed after 1s: digits is running, its program failed: try 2 of 7\n"


def test_wait_follows_the_run_that_its_name_meant(server: Server) -> None:
    once_watched(server, JobFailed(job_id="bert", reason=Said(text="first run")))
    assert "first run" in server.voda("wait", "bert", exit_code=1).stderr
    server.voda("rerun", "bert")
    once_watched(server, JobCompleted(job_id="bert-2"))
    assert server.voda("wait", "bert").stdout == "bert-2 is completed\n"


def test_wait_when_it_cannot_is_refused(server: Server) -> None:
    with pytest.raises(NotFound, match="nobody"):
        server.voda("wait", "nobody")
    said = server.voda("wait", "digits", "--timeout", "soon", exit_code=2).stderr
    assert "--timeout" in said
    assert "expected a span such as 30 (seconds)" in said
    assert "lunch" in server.voda("wait", "digits", "--for", "lunch", exit_code=2).stderr

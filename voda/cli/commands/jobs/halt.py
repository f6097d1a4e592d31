"""`voda halt`, `voda resume` and `voda rerun`: interrupt jobs, let them go on, run them again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from voda.cli.command_group import command
from voda.cli.completion import all_jobs, live_jobs
from voda.cli.options import JOB_HELP, Output, OutputOption, ServerOptions, YesOption
from voda.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from voda.cli.http.client import Client
    from voda.wire.jobs import JobView


_GOES_ON: Final = "goes on from its checkpoint, or begins again if it has saved none"


@command("halt")
def halt(
    where: ServerOptions,
    jobs: Annotated[list[str], Argument(help=JOB_HELP, autocompletion=live_jobs)],
    reason: Annotated[str, Option("--reason", help="Why; the log keeps it.")] = "",
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Take all GPUs from jobs until they are resumed.

    A job checkpoints and stops as when it is preempted, and keeps its place in
    the queue and its files. No plan gives it workers before voda resume; then
    it goes on from its checkpoint, or begins again if it has saved none.

    \b
    Examples:
      voda halt resnet-7
      voda halt resnet-7 vgg16-2 --reason "disk is full"
    """
    from voda.cli.http.client import call_server

    query = {"reason": reason} if reason else {}
    call_server(where, lambda client: _ask_each(client, jobs, JobRequest("halt", query, is_sure=yes), output))


@command("resume")
def resume(
    where: ServerOptions,
    jobs: Annotated[list[str], Argument(help=JOB_HELP, autocompletion=live_jobs)],
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Let halted jobs have GPUs again.

    They go on from their checkpoints; a program that saves none begins again.

    \b
    Example:
      voda resume resnet-7
    """
    from voda.cli.http.client import call_server

    call_server(where, lambda client: _ask_each(client, jobs, JobRequest("resume", {}, is_sure=yes), output))


@command("rerun")
def rerun(
    where: ServerOptions,
    jobs: Annotated[list[str], Argument(help=JOB_HELP, autocompletion=all_jobs)],
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Run ended jobs again: submit the same manifest as the next run of the name.

    The new run has a folder of its own and starts from the beginning.

    \b
    Examples:
      voda rerun resnet-7
      voda rerun $(voda get --phase Failed -o name)
    """
    from voda.cli.http.client import call_server

    call_server(where, lambda client: _rerun_each(client, jobs, output, is_sure=yes))


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What is asked of each job."""

    verb: str
    query: dict[str, str]
    is_sure: bool


def _ask_each(client: "Client", jobs: Sequence[str], request: JobRequest, output: Output) -> None:
    from voda.cli.http.client import HttpCall, decode, for_each, resource_path
    from voda.cli.http.confirmation import ChangeConfirmation
    from voda.cli.render.job_text import exactly
    from voda.wire.jobs import JobView

    confirmation = ChangeConfirmation(client, request.verb, is_sure=request.is_sure)

    def ask(name: str) -> None:
        path = resource_path("jobs", exactly(confirmation.job(name)), request.verb)
        answer = client.ask_repeatedly(HttpCall(method="POST", path=path, params=request.query))
        _print(answer.body, decode(answer.body, JobView), output, _halted if request.verb == "halt" else _resumed)

    for_each(jobs, ask)


def _rerun_each(client: "Client", jobs: Sequence[str], output: Output, *, is_sure: bool) -> None:
    from voda.cli.http.client import HttpCall, decode, for_each, resource_path
    from voda.cli.http.confirmation import ChangeConfirmation
    from voda.cli.render.job_text import exactly
    from voda.clock import SystemClock
    from voda.wire.jobs import SubmissionView

    confirmation = ChangeConfirmation(client, "rerun", is_sure=is_sure)

    def run_again(name: str) -> None:
        path = resource_path("jobs", exactly(confirmation.job(name)), "rerun")
        headers = {"Idempotency-Key": SystemClock().new_id()}
        answer = client.ask_repeatedly(HttpCall(method="POST", path=path, headers=headers))
        job = decode(answer.body, SubmissionView).job
        _print(answer.body, job, output, lambda job: f"{job.job_id} submitted: runs {job.name} again")

    for_each(jobs, run_again)


def _print(body: bytes, job: "JobView", output: Output, sentence: Callable[["JobView"], str]) -> None:
    from voda.cli.render.terminal import plain, print_answer

    print_answer(body, output, [job.job_id], lambda: plain(sentence(job)))


def _halted(job: "JobView") -> str:
    from voda.text import counted

    if job.replicas:
        workers = counted(job.replicas, "worker")
        return f"{job.job_id} is being halted: {workers} will stop; once resumed it {_GOES_ON}"
    return f"{job.job_id} is halted"


def _resumed(job: "JobView") -> str:
    if job.replicas:
        return f"{job.job_id} runs on"
    if job.started_at is None:
        return f"{job.job_id} may have GPUs again"
    return f"{job.job_id} may have GPUs again: with them it {_GOES_ON}"

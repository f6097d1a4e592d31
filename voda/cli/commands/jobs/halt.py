"""`voda halt`, `voda resume` and `voda rerun`: interrupt jobs, let them go on, run them again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

from voda.cli.command_group import command
from voda.cli.completion import all_jobs, live_jobs
from voda.cli.options import JOB_HELP, Output, OutputOption, ServerOptions, YesOption
from voda.cli.parameters import Argument, Option

if TYPE_CHECKING:
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
    query = {"reason": reason} if reason else {}
    _ask_each(where, jobs, JobRequest("halt", _halted, yes, query), output)


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
    _ask_each(where, jobs, JobRequest("resume", _resumed, yes), output)


@command("rerun")
def rerun(
    where: ServerOptions,
    jobs: Annotated[list[str], Argument(help=JOB_HELP, autocompletion=all_jobs)],
    goes_on: Annotated[
        bool, Option("--continue", help="In the job's own folder, with its checkpoints, and the program as it is now.")
    ] = False,
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Run ended jobs again: submit the same manifest as the next run of the name.

    The new run has a folder of its own, starts from the beginning and runs the
    code that was submitted. With --continue it goes on where the job was.

    \b
    Examples:
      voda rerun resnet-7
      voda rerun --continue resnet-7
      voda rerun $(voda get --phase Failed -o name)
    """
    _ask_each(where, jobs, JobRequest("rerun", _continued if goes_on else _rerun, yes, goes_on=goes_on), output)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What is asked of each job, and what its answer comes to."""

    verb: str
    sentence: "Callable[[JobView], str]"
    is_sure: bool
    query: Mapping[str, str] = field(default_factory=dict)
    goes_on: bool = False
    """Of a rerun, whether it goes on in the job's folder."""


def _ask_each(where: ServerOptions, jobs: Sequence[str], request: JobRequest, output: Output) -> None:
    from voda.cli.http.client import Client, HttpCall, call_server, decode, for_each, resource_path
    from voda.cli.http.confirmation import ChangeConfirmation
    from voda.cli.render.job_text import exactly
    from voda.cli.render.terminal import plain, print_answer
    from voda.client.going_on import goes_on_query
    from voda.clock import SystemClock
    from voda.wire.jobs import JobView, SubmissionView

    submits = request.verb == "rerun"

    def ask_all(client: Client) -> None:
        confirmation = ChangeConfirmation(client, request.verb, is_sure=request.is_sure)

        def ask(name: str) -> None:
            path = resource_path("jobs", exactly(confirmation.job(name)), request.verb)
            headers = {"Idempotency-Key": SystemClock().new_id()} if submits else {}
            query = goes_on_query(client, path.removesuffix("/rerun")) if request.goes_on else {**request.query}
            call = HttpCall(method="POST", path=path, params=query, headers=headers)
            body = client.ask_repeatedly(call).body
            job = decode(body, SubmissionView).job if submits else decode(body, JobView)
            print_answer(body, output, [job.job_id], lambda: plain(request.sentence(job)))

        for_each(jobs, ask)

    call_server(where, ask_all)


def _rerun(job: "JobView") -> str:
    return f"{job.job_id} submitted: runs {job.name} again"


def _continued(job: "JobView") -> str:
    if not job.continues:
        return f"{job.job_id} submitted: runs {job.name} from the beginning, as it never ran"
    return f"{job.job_id} submitted: goes on in the folder of {job.continues}"


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

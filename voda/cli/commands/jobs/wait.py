"""`voda wait`: returns once jobs are where a script wants them."""

from typing import Annotated, Literal

import click

from voda.cli.command_group import command
from voda.cli.completion import all_jobs
from voda.cli.options import JOB_HELP, ServerOptions
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput

Goal = Literal["completed", "ended", "running", "waiting", "halted", "failed", "canceled"]
_EXIT_OTHERWISE = 1
_EXIT_TIMEOUT = 124
"""That of timeout(1)."""


@command("wait")
def wait(
    where: ServerOptions,
    jobs: Annotated[list[str] | None, Argument(help=JOB_HELP, autocompletion=all_jobs)] = None,
    selector: Annotated[
        str,
        Option("--selector", "-l", metavar="LABELS", help="The live jobs with these labels, as they are now."),
    ] = "",
    goal: Annotated[
        Goal,
        Option("--for", metavar="STATE", help="completed, ended, running, waiting, halted, failed, canceled."),
    ] = "completed",
    timeout: Annotated[
        float | None,
        Option("--timeout", metavar="SPAN", help="Give up after so long: 30 (seconds), 10m, 4h.", is_span=True),
    ] = None,
) -> None:
    """Wait until all jobs are in a state: by default, until they have completed.

    A job that has run and ended counts as running, too; an array stands for all
    its tasks. Exit status: 0 when all are there; 1 as soon as a job has ended
    otherwise and can no longer get there; 124 after --timeout. Each job is told
    in a line when it gets there.

    \b
    Examples:
      voda wait resnet-7 && ./evaluate.sh
      voda wait resnet-7 --for running --timeout 10m
      voda wait resnet-7 vgg16-2 --for ended
      voda wait sweep --for ended
      voda wait -l sweep=lr --for ended
    """
    from voda.cli.http.client import call_server
    from voda.cli.watch.wait import TimedOut, wait_for

    if bool(jobs) == bool(selector):
        raise InvalidInput("expected the names of jobs, or labels that choose them with -l")
    try:
        if not call_server(where, lambda client: wait_for(client, jobs or selector, goal, limit_s=timeout)):
            raise click.exceptions.Exit(_EXIT_OTHERWISE)
    except TimedOut as error:
        from voda.cli.render.terminal import note

        note(str(error))
        raise click.exceptions.Exit(_EXIT_TIMEOUT) from None

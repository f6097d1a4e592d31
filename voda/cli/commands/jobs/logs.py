"""`voda logs`: prints a job's output, byte for byte."""

import os
import sys
from typing import Annotated

import typer

from voda.cli.completion import all_jobs
from voda.cli.options import ServerOptions, asks_server

_HELP = """
Print a job's output.

By default the output of the launcher of an MPIJob, or of the first worker of
any other job. --replicas lists the replicas.

\b
Examples:
  voda logs resnet-7
  voda logs resnet-7 -f
  voda logs resnet-7 --replicas
  voda logs resnet-7 --replica worker-1 --tail 20
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("logs", help=_HELP)(asks_server(logs))


def logs(  # noqa: PLR0913 - a command's options are its parameters
    where: ServerOptions,
    job: Annotated[str, typer.Argument(help="The job.", autocompletion=all_jobs)],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the job ends.")] = False,
    replica: Annotated[str, typer.Option("--replica", "-r", help="Print the output of this replica.")] = "",
    tail: Annotated[int, typer.Option("--tail", min=-1, metavar="LINES", help="Only the last lines; -1 = all.")] = -1,
    listed: Annotated[bool, typer.Option("--replicas", help="List the replicas that printed something.")] = False,
) -> None:
    """Print the output."""
    from voda.cli.http.client import call_server
    from voda.cli.http.job_logs import LogRange, print_output, replicas
    from voda.cli.render.stdout import print_names

    wanted = LogRange(replica=replica, tail=tail, follow=follow)
    try:
        if listed:
            print_names(call_server(where, lambda client: replicas(client, job)))
        else:
            call_server(where, lambda client: print_output(client, job, wanted))
    except BrokenPipeError:
        # The reader has seen enough, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""`voda logs`: what a job's replicas print, byte for byte."""

import os
import sys
from typing import Annotated

import typer

from voda.cli.completion import all_jobs
from voda.cli.options import ServerOptions, asks_server

_HELP = """
Print what a job prints.

By default its most telling replica: the launcher of an MPIJob, else the
first worker. --replicas lists them.

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
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    replica: Annotated[str, typer.Option("--replica", "-r", help="Of this replica.")] = "",
    tail: Annotated[int, typer.Option("--tail", min=-1, metavar="LINES", help="The last lines only; -1 = all.")] = -1,
    listed: Annotated[bool, typer.Option("--replicas", help="List the replicas that have printed.")] = False,
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

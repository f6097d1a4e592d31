"""`voda logs`: prints a job's output, byte for byte; lines are counted, never decoded."""

import os
import sys
from dataclasses import dataclass
from typing import Annotated

from voda.cli.command_group import command
from voda.cli.completion import all_jobs
from voda.cli.options import JOB_HELP, ServerOptions
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    follow: Annotated[
        bool, Option("--follow", "-f", help="Wait for the job's start, and keep printing until it ends.")
    ] = False
    replica: Annotated[str, Option("--replica", "-r", help="Print the output of this replica.")] = ""
    every: Annotated[
        bool, Option("--all-replicas", "-A", help="Print that of all, with the replica before each line.")
    ] = False
    tail: Annotated[int, Option("--tail", min=-1, metavar="LINES", help="Only the last lines; -1 = all.")] = -1
    since: Annotated[
        str, Option("--since", metavar="10m|TIME", help="Only lines printed since a span ago, or a time.")
    ] = ""
    timestamps: Annotated[bool, Option("--timestamps", "-t", help="Print before each line when it was printed.")] = (
        False
    )


@command("logs")
def logs(
    where: ServerOptions,
    job: Annotated[str, Argument(help=JOB_HELP, autocompletion=all_jobs)],
    wanted: LogRange,
    listed: Annotated[bool, Option("--replicas", help="List the replicas that printed something.")] = False,
) -> None:
    """Print a job's output.

    By default the output of the launcher of an MPIJob, or of the first worker of
    any other job. --replicas lists the replicas. On one machine, times are right
    to the second.

    \b
    Examples:
      voda logs resnet-7
      voda logs resnet-7 -f
      voda logs resnet-7 --all-replicas -f --tail 5
      voda logs resnet-7 --replica worker-1 --since 10m --timestamps
      voda logs resnet-7 --since 2026-01-31T12:00:00Z
    """
    from voda.cli.http.client import Client, call_server
    from voda.cli.http.confirmation import note_owner
    from voda.cli.render.job_details import replicas_with_output
    from voda.cli.render.terminal import print_names
    from voda.cli.watch.job_output import OutputChoice, print_all_outputs, print_output

    if wanted.every and wanted.replica:
        raise InvalidInput("--all-replicas and --replica exclude each other: give one of them")
    choice = OutputChoice(
        replica=wanted.replica,
        follow=wanted.follow,
        tail=wanted.tail,
        since=wanted.since,
        timestamps=wanted.timestamps,
    )
    printed = print_all_outputs if wanted.every else print_output

    def print_chosen(client: Client) -> None:
        note_owner(client, job)
        printed(client, job, choice)

    try:
        if listed:
            print_names(call_server(where, lambda client: replicas_with_output(client, job)))
        else:
            call_server(where, print_chosen)
    except BrokenPipeError:
        # The reader has seen enough, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""`voda logs`: prints a job's output, byte for byte; lines are counted, never decoded."""

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.options import ServerOptions, all_jobs, command

if TYPE_CHECKING:
    from voda.cli.http.client import Client

_LINE_BYTES = 200
"""First guess of the length of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the job ends.")] = False
    replica: Annotated[str, typer.Option("--replica", "-r", help="Print the output of this replica.")] = ""
    tail: Annotated[int, typer.Option("--tail", min=-1, metavar="LINES", help="Only the last lines; -1 = all.")] = -1


@command("logs")
def logs(
    where: ServerOptions,
    job: Annotated[str, typer.Argument(help="The job.", autocompletion=all_jobs)],
    wanted: LogRange,
    listed: Annotated[bool, typer.Option("--replicas", help="List the replicas that printed something.")] = False,
) -> None:
    """Print a job's output.

    By default the output of the launcher of an MPIJob, or of the first worker of
    any other job. --replicas lists the replicas.

    \b
    Examples:
      voda logs resnet-7
      voda logs resnet-7 -f
      voda logs resnet-7 --replicas
      voda logs resnet-7 --replica worker-1 --tail 20
    """
    from voda.cli.http.client import call_server
    from voda.cli.render.job_details import replicas_with_output
    from voda.cli.render.terminal import print_names

    try:
        if listed:
            print_names(call_server(where, lambda client: replicas_with_output(client, job)))
        else:
            call_server(where, lambda client: _print_output(client, job, wanted))
    except BrokenPipeError:
        # The reader has seen enough, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _print_output(client: "Client", job: str, wanted: LogRange) -> None:
    from voda.cli.http.client import resource_path
    from voda.cli.render.terminal import note

    where = resource_path("jobs", job, "logs")
    query: dict[str, str | int] = {"replica": wanted.replica} if wanted.replica else {}
    if wanted.tail < 0:
        printed = await _print_stream(client, where, {**query, **({"follow": "true"} if wanted.follow else {})})
    else:
        last = await _last_lines(client, where, query, wanted.tail)
        printed = len(last)
        if wanted.follow:
            # Output between the two requests moves the beginning; nothing new is missed.
            printed = await _print_stream(client, where, {**query, "follow": "true", "tail_bytes": len(last)})
        else:
            _write(last)
    if not printed and not wanted.follow and wanted.tail:
        note(f"{job} has printed nothing yet")


async def _print_stream(client: "Client", where: str, query: dict[str, str | int]) -> int:
    printed = 0
    # A program may be silent for hours, so there is no idle timeout here.
    async for piece in client.stream(where, params=query, idle_s=None):
        _write(piece)
        printed += len(piece)
    return printed


async def _last_lines(client: "Client", where: str, query: dict[str, str | int], lines: int) -> bytes:
    """Return the last lines, asking for more bytes until there are enough of them."""
    size = max(4_096, (lines + 1) * _LINE_BYTES)
    while True:
        pieces = [piece async for piece in client.stream(where, params={**query, "tail_bytes": size}, idle_s=30.0)]
        text = b"".join(pieces)
        found = text.splitlines(keepends=True)
        # The server begins at the start of a line, so a full answer may be one line shorter than requested.
        if len(found) > lines or len(text) < size // 2:
            return b"".join(found[-lines:]) if lines else b""
        size *= 4


def _write(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()

"""Prints the output of a job's replicas, fetched from the server.

Rule: the bytes stay unchanged; lines are counted, never decoded.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from voda.cli.http.client import Client, decode, resource_path
from voda.cli.render.stdout import note

_LINE_BYTES = 200
"""First guess of the length of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """The part of the output to print."""

    replica: str = ""
    """Empty = the launcher, else the first worker."""
    tail: int = -1
    """Last lines; -1 = all."""
    follow: bool = False


async def replicas(client: Client, job: str) -> Sequence[str]:
    """Return the replicas that printed something, the most useful one first."""
    return decode(await client.get(resource_path("jobs", job, "logs", "replicas")), list[str])


async def print_output(client: Client, job: str, wanted: LogRange) -> None:
    """Print the output, until its end or the job's."""
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


async def _print_stream(client: Client, where: str, query: dict[str, str | int]) -> int:
    printed = 0
    # A program may be silent for hours, so there is no idle timeout here.
    async for piece in client.stream(where, params=query, idle_s=None):
        _write(piece)
        printed += len(piece)
    return printed


async def _last_lines(client: Client, where: str, query: dict[str, str | int], lines: int) -> bytes:
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

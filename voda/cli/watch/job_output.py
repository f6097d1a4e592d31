"""Prints what replicas of a job print: of one replica byte for byte, of all of them line by line behind their names.

Rule: lines are counted, never decoded; the job is named exactly, so that a newer run of its name does not come between.
"""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from voda.cli.http.client import Client, HttpCall, decode, resource_path
from voda.cli.render.job_details import replicas_with_output
from voda.cli.render.job_text import exactly, has_ended, state
from voda.cli.render.terminal import console, note
from voda.cli.watch.refresh import wake_on_change
from voda.client.connection import Cancellation
from voda.domain.errors import InvalidInput, NotFound
from voda.wire.jobs import JobView

_LINE_BYTES: Final = 200
"""First guess of the length of a line."""
_LOOK_EVERY_S: Final = 1.0
_IDLE_S: Final = 30.0
_MOST_FOLLOWED: Final = 16
"""Replicas that are followed at once: each is a stream, and a caller may only have so many."""
_COLOURS: Final = (36, 33, 32, 35, 34, 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChoice:
    """Which part of a job's output, and how."""

    replica: str = ""
    follow: bool = False
    tail: int = -1
    """Only so many last lines; -1 = all."""
    since: str = ""
    timestamps: bool = False

    @property
    def query(self) -> dict[str, str | int]:
        given = {"replica": self.replica, "since": self.since, "timestamps": "true" if self.timestamps else ""}
        return {name: value for name, value in given.items() if value}


def print_output(client: Client, name: str, choice: OutputChoice) -> None:
    """Print the output of one replica; to follow a job begins with its start."""
    if choice.follow:
        job = decode(client.get(resource_path("jobs", name)), JobView)
        if not _until_started(client, job):
            return
        name = exactly(job)
    printed = 0
    for piece in _pieces(client, name, choice):
        _write(piece)
        printed += len(piece)
    if not printed and not choice.follow and choice.tail:
        note(f"{name} has printed nothing {'since then' if choice.since else 'yet'}")


def print_all_outputs(client: Client, name: str, choice: OutputChoice) -> None:
    """Print the output of all replicas, each line behind the name of its replica."""
    job = decode(client.get(resource_path("jobs", name)), JobView)
    if not choice.follow:
        for number, replica in enumerate(names := replicas_with_output(client, exactly(job))):
            _print_lines(client, exactly(job), _of(choice, replica), _prefix(replica, number, names))
    elif _until_started(client, job):
        _follow_all(client, job, choice)


def _until_started(client: Client, job: JobView) -> bool:
    """Return whether the job has output, once it has started; False if it ended without any."""
    named = exactly(job)
    if replicas_with_output(client, named):
        return True
    if not has_ended(job):
        note(f"{job.job_id} is {state(job).lower()}: its output follows once it starts")
    with wake_on_change(client, every_s=_LOOK_EVERY_S, params={"job": named}) as wait:
        while True:
            # The end first: what was printed before it is there afterwards.
            is_over = has_ended(job := decode(client.get(resource_path("jobs", named)), JobView))
            if replicas_with_output(client, named):
                return True
            if is_over:
                note(f"{job.job_id} is {state(job).lower()} and has printed nothing")
                return False
            wait()


def _follow_all(client: Client, job: JobView, choice: OutputChoice) -> None:
    named = exactly(job)
    followed: dict[str, Future[None]] = {}
    ending = Cancellation()
    own = client.with_cancellation(ending)
    watching = wake_on_change(client, every_s=_LOOK_EVERY_S, params={"job": named})
    with watching as wait, ThreadPoolExecutor(_MOST_FOLLOWED) as threads, _canceled_on_error(ending):
        while True:
            is_over = has_ended(decode(client.get(resource_path("jobs", named)), JobView))
            names = replicas_with_output(client, named)
            if len({*followed, *names}) > _MOST_FOLLOWED:
                raise InvalidInput(
                    f"{job.job_id} has {len(names)} replicas with output, and --all-replicas -f follows up to"
                    f" {_MOST_FOLLOWED}: leave -f out, or name one with --replica"
                )
            for replica in names:
                if replica not in followed:
                    prefix = _prefix(replica, len(followed), names)
                    followed[replica] = threads.submit(_print_lines, own, named, _of(choice, replica), prefix)
            for each in followed.values():
                if is_over or each.done():
                    each.result()
            if is_over:
                return
            wait()


@contextmanager
def _canceled_on_error(ending: Cancellation) -> Iterator[None]:
    """End the exchanges of other threads, which would be waited for, where the block fails."""
    try:
        yield
    except BaseException:
        ending.cancel()
        raise


def _print_lines(client: Client, named: str, choice: OutputChoice, prefix: bytes) -> None:
    rest = b""
    try:
        for piece in _pieces(client, named, choice):
            *lines, rest = (rest + piece).split(b"\n")
            _write(b"".join(prefix + line + b"\n" for line in lines))
    except NotFound:
        # A pod that went, and its output with it.
        return
    if rest:
        _write(prefix + rest + b"\n")


def _pieces(client: Client, named: str, choice: OutputChoice) -> Iterator[bytes]:
    """Yield the part of the output that is chosen."""
    where, query = resource_path("jobs", named, "logs"), choice.query
    follow: dict[str, str | int] = {"follow": "true"} if choice.follow else {}
    if choice.tail >= 0:
        last = _last_lines(client, where, query, choice.tail)
        if not choice.follow:
            yield last
            return
        # Output between the two requests moves the beginning; nothing new is missed.
        follow["tail_bytes"] = len(last) - (_stamps_bytes(last) if choice.timestamps else 0)
    # A program may be silent for hours, so there is no idle timeout here.
    yield from client.stream(HttpCall(path=where, params={**query, **follow}), idle_s=None)


def _last_lines(client: Client, where: str, query: dict[str, str | int], lines: int) -> bytes:
    """Return the last lines, asking for more bytes until there are enough of them."""
    size = max(4_096, (lines + 1) * _LINE_BYTES)
    while True:
        call = HttpCall(path=where, params={**query, "tail_bytes": size})
        text = b"".join(client.stream(call, idle_s=_IDLE_S))
        found = text.splitlines(keepends=True)
        # The server begins at the start of a line, so a full answer may be one line shorter than requested.
        if len(found) > lines or len(text) < size // 2:
            return b"".join(found[-lines:]) if lines else b""
        size *= 4


def _stamps_bytes(lines: bytes) -> int:
    """Return how many bytes the instants before the lines have."""
    return sum(len(line.partition(b" ")[0]) + 1 for line in lines.splitlines())


def _of(choice: OutputChoice, replica: str) -> OutputChoice:
    return replace(choice, replica=replica)


def _prefix(replica: str, number: int, names: Sequence[str]) -> bytes:
    """Return the name of a replica, as wide as the longest one, in a colour on a terminal."""
    text = f"[{replica}]".ljust(max(map(len, names)) + 2)
    if console().is_terminal:
        text = f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{text}\x1b[0m"
    return f"{text} ".encode()


def _write(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()

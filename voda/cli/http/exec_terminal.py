"""The terminal, or the pipes, of a command that runs beside a replica: `voda exec`.

Rule: a terminal that is made raw is put right again, however the command ends.
"""

import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from voda.cli.http.port_forward import reached
from voda.client.connection import HttpCall
from voda.client.exec.session import OUTPUT, PROTOCOL, ExecEnd, carry, start_of
from voda.client.http import HttpClient, resource_path
from voda.domain.errors import InvalidInput, PermanentError

if TYPE_CHECKING:
    from voda.cli.options import ExecOptions, ServerOptions

_IN, _OUT, _ERR = 0, 1, 2
_AT_ONCE: Final = 4_096
"""A pipe that can be written takes so much without blocking."""


class _OutputGone(Exception):
    """Nobody reads what is printed any more."""


class _Streams:
    """An adapter of CommandStreams: those of this process."""

    def __init__(self, resized: int | None) -> None:
        self._resized = resized

    def input_file(self) -> int | None:
        return _IN

    def output_file(self, stream: int) -> int | None:
        return _OUT if stream == OUTPUT else _ERR

    def wake_file(self) -> int | None:
        return self._resized

    def new_size(self) -> tuple[int, int]:
        if self._resized is not None:
            os.read(self._resized, _AT_ONCE)
        return terminal_size()

    def read(self, most: int) -> bytes:
        try:
            return os.read(_IN, most)
        except OSError:
            # Of a terminal that is gone, or of another process now.
            return b""

    def write(self, stream: int, data: bytes) -> int:
        try:
            return os.write(_OUT if stream == OUTPUT else _ERR, data[:_AT_ONCE])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _OutputGone from error


def run_command(where: "ServerOptions", job: str, argv: Sequence[str], options: "ExecOptions") -> int:
    """Run a command beside a replica with this process's input and output, and return its exit status.

    Raises:
        VodaError: it could not be run, or voda has ended it.
        BrokenPipeError: nobody reads its output.
    """
    if options.tty and not (os.isatty(_IN) and os.isatty(_OUT)):
        raise InvalidInput("--tty needs a terminal here: leave it out, or run voda in one")
    start = start_of(argv, has_input=options.stdin, terminal=terminal_size() if options.tty else None)
    call = HttpCall(
        path=f"{resource_path('jobs', job)}/exec", params={"replica": options.replica} if options.replica else None
    )
    try:
        with (
            reached(where) as there,
            HttpClient(there).upgraded(call, protocol=PROTOCOL) as connected,
            _terminal(options) as resized,
        ):
            end = carry(connected, start, _Streams(resized))
    except _OutputGone as gone:
        raise BrokenPipeError from gone
    return _status(end)


def terminal_size() -> tuple[int, int]:
    """Return columns and rows of this terminal."""
    # Not that of shutil, which believes a variable first.
    size = os.get_terminal_size(_OUT)
    return size.columns or 80, size.lines or 24


def _status(end: ExecEnd) -> int:
    if end.status is None:
        raise PermanentError(end.problem)
    if end.problem:
        hint = "; its path, or the PATH of the job, says where it is looked for" if end.status == 127 else ""
        print(f"voda: {end.problem}{hint}", file=sys.stderr)
    return end.status


@contextmanager
def _terminal(options: "ExecOptions") -> Iterator[int | None]:
    """Pass every key on and report changes of size while the block runs; yield what becomes readable at each change."""
    if not options.tty:
        yield None
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = termios.tcgetattr(_IN)
    handlers = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}

    def resized(_number: int, _frame: object) -> None:
        with suppress(BlockingIOError):
            os.write(write, b"\0")

    handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, resized)
    try:
        if options.stdin:
            # What was typed before is the command's, too.
            tty.setraw(_IN, termios.TCSADRAIN)
        yield read
    finally:
        termios.tcsetattr(_IN, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)

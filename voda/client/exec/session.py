"""A command beside a job's replica: what both sides say, and the loop that carries its input and output.

The messages of a WebSocket, once the server has agreed (docs/api.md):
1. The client says as JSON what to run: {"argv": [...], "has_input": true, "terminal": {"columns": 80, "rows": 24}}.
2. Binary messages carry input to the server, and output from it behind one byte: 1 = output, 2 = errors.
3. {"taken": n} says that so many bytes were used up; nobody sends more than WINDOW_BYTES ahead of that.
   {"resize": size} and {"ends_input": true} come from the client.
4. The server says {"status": 3, "problem": ""}, and closes; a command whose connection is lost is ended.

Rule: one thread does all, and the connection is always read, however slow the other ends are: signs of life pass.
"""

import json
import math
import selectors
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from voda.client.errors import ServerUnreachable, WaitTimeout
from voda.client.exec import websocket
from voda.client.exec.websocket import FrameParser
from voda.domain.errors import InvalidInput, PermanentError

PROTOCOL: Final = "voda.exec.v1"
WINDOW_BYTES: Final = 256 << 10
OUTPUT, ERRORS = 1, 2
_SILENCE_S: Final = 75.0
"""A healthy server sends a sign of life more often."""
_MOST_RESULT_BYTES: Final = 64 << 20
_PIECE_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """How a command beside a replica ended, and what it printed."""

    status: int
    """As a shell counts it: 128 + the signal, 127 not found, 126 not to be run."""
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecEnd:
    """How it ended."""

    status: int | None
    """None: voda could not start it, or has ended it."""
    problem: str = ""
    """Why it could not be run, or was ended."""


class CommandStreams(Protocol):
    """Where a command's input comes from and its output goes to; nothing here blocks for long."""

    def input_file(self) -> int | None:
        """Return what becomes readable once there is input; None: `read` has some now, or the end."""

    def output_file(self, stream: int) -> int | None:
        """Return what becomes writable once OUTPUT or ERRORS can be written; None: always."""

    def wake_file(self) -> int | None:
        """Return what becomes readable once the terminal has another size."""

    def read(self, most: int) -> bytes:
        """Return some input; empty at its end."""

    def write(self, stream: int, data: bytes) -> int:
        """Write some of the output, and return how many bytes."""

    def new_size(self) -> tuple[int, int]:
        """Return columns and rows of the terminal."""


class _Exchange:
    """What was said on one connection, and what is to be said."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        self.outgoing = bytearray()
        self.printed: dict[int, bytearray] = {OUTPUT: bytearray(), ERRORS: bytearray()}
        """What was received and not written yet."""
        self.credit = WINDOW_BYTES if start.get("has_input") else 0
        """How many bytes of input the server takes now."""
        self.end: ExecEnd | None = None
        self._parser = FrameParser()
        self._say(start)

    def receive(self, data: bytes) -> None:
        for opcode, payload in self._parser.feed(data):
            if opcode == websocket.PING:
                self.outgoing += websocket.frame(websocket.PONG, payload)
            elif opcode == websocket.BINARY:
                stream = payload[0] if payload else 0
                if stream not in self.printed or sum(map(len, self.printed.values())) > 2 * WINDOW_BYTES:
                    raise PermanentError("the server sent output that nobody asked for: it is not voda")
                self.printed[stream] += payload[1:]
            elif opcode == websocket.TEXT:
                self._hear(payload)
            elif opcode == websocket.CLOSE and self.end is None:
                raise ServerUnreachable("the server closed the connection, and has ended the command")

    def _hear(self, payload: bytes) -> None:
        try:
            said = json.loads(payload)
            if "taken" in said:
                self.credit += int(said["taken"])
            if "status" in said:
                status = said["status"]
                self.end = ExecEnd(status=None if status is None else int(status), problem=str(said.get("problem", "")))
        except (ValueError, TypeError, RecursionError) as error:
            raise PermanentError(f"voda does not understand the server ({error}): is it another version?") from error

    def send_input(self, data: bytes) -> None:
        self.credit -= len(data)
        self.outgoing += websocket.frame(websocket.BINARY, data)

    def end_input(self) -> None:
        self.credit = 0
        self._say({"ends_input": True})

    def resize(self, columns: int, rows: int) -> None:
        self._say({"resize": {"columns": columns, "rows": rows}})

    def take(self, stream: int, size: int) -> None:
        del self.printed[stream][:size]
        self._say({"taken": size})

    def _say(self, what: Mapping[str, Any]) -> None:
        self.outgoing += websocket.frame(websocket.TEXT, json.dumps(what).encode())


def start_of(argv: Sequence[str], *, has_input: bool, terminal: tuple[int, int] | None) -> Mapping[str, Any]:
    """Return what the server is told to run; `terminal`: columns and rows, None = none."""
    if isinstance(argv, str) or not argv:
        raise InvalidInput("which command? give it as a list of words, such as ['nvidia-smi', '-L']")
    size = {"terminal": {"columns": terminal[0], "rows": terminal[1]}} if terminal else {}
    return {"argv": [*argv], "has_input": has_input, **size}


def carry(
    connected: socket.socket, start: Mapping[str, Any], streams: CommandStreams, *, timeout_s: float | None = None
) -> ExecEnd:
    """Carry input and output until the command has ended, and return how.

    Raises:
        ServerUnreachable: the connection was lost, and the command ended with it.
        WaitTimeout: it has not ended within `timeout_s`, and was ended.
    """
    exchange, has_input = _Exchange(start), bool(start.get("has_input"))
    heard_at = time.perf_counter()
    ends_at = math.inf if timeout_s is None else heard_at + timeout_s
    connected.setblocking(False)
    while True:
        if exchange.end is not None and not any(exchange.printed.values()):
            return exchange.end
        wants_input = has_input and exchange.credit > 0 and exchange.end is None
        ready = _wait(connected, exchange, streams, wants_input=wants_input, until=min(ends_at, heard_at + _SILENCE_S))
        now = time.perf_counter()
        if now >= ends_at:
            raise WaitTimeout(f"the command has not ended within {timeout_s:g} s, and was ended")
        if "socket" in ready and (data := _received(connected)):
            exchange.receive(data)
            heard_at = now
        elif now - heard_at > _SILENCE_S:
            raise ServerUnreachable(f"the server was silent for {_SILENCE_S:.0f} s; the command is ended")
        if "resize" in ready:
            exchange.resize(*streams.new_size())
        if "input" in ready:
            data = streams.read(min(exchange.credit, _PIECE_BYTES))
            has_input = bool(data)
            exchange.send_input(data) if data else exchange.end_input()
        for stream in (OUTPUT, ERRORS):
            if stream in ready and exchange.printed[stream]:
                exchange.take(stream, streams.write(stream, bytes(exchange.printed[stream][:_PIECE_BYTES])))
        _send(connected, exchange)


def _wait(
    connected: socket.socket, exchange: _Exchange, streams: CommandStreams, *, wants_input: bool, until: float
) -> set[str | int]:
    """Return what is ready, of: socket, input, resize, OUTPUT, ERRORS; empty where nothing is by then."""
    ready: set[str | int] = set()
    files: dict[int, tuple[int, str | int]] = {}

    def want(file: int | None, event: int, what: str | int) -> None:
        if file is None:
            ready.add(what)
        else:
            files[file] = (files.get(file, (0, what))[0] | event, what)

    # The end was said: what comes behind it says nothing more.
    if exchange.end is None:
        want(connected.fileno(), selectors.EVENT_READ, "socket")
        if exchange.outgoing:
            want(connected.fileno(), selectors.EVENT_WRITE, "socket")
    if wants_input:
        want(streams.input_file(), selectors.EVENT_READ, "input")
    if (wake := streams.wake_file()) is not None:
        want(wake, selectors.EVENT_READ, "resize")
    for stream, printed in exchange.printed.items():
        if printed:
            want(streams.output_file(stream), selectors.EVENT_WRITE, stream)
    # Not epoll, which takes no regular files.
    with selectors.PollSelector() as selector:
        for file, (events, what) in files.items():
            selector.register(file, events, what)
        is_pending = isinstance(connected, ssl.SSLSocket) and connected.pending() > 0
        left_s = 0.0 if ready or is_pending else max(0.0, until - time.perf_counter())
        ready |= {key.data for key, _ in selector.select(left_s)}
    return ready | {"socket"} if is_pending else ready


def _received(connected: socket.socket) -> bytes:
    """Return what has arrived; empty where nothing has."""
    try:
        data = connected.recv(_PIECE_BYTES)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return b""
    if not data:
        raise ServerUnreachable("the connection to the server was lost, and the command was ended")
    return data


def _send(connected: socket.socket, exchange: _Exchange) -> None:
    while exchange.outgoing and exchange.end is None:
        try:
            sent = connected.send(exchange.outgoing[:_PIECE_BYTES])
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        del exchange.outgoing[:sent]


class MemoryStreams:
    """Input that is at hand, and output that is kept, within a bound."""

    def __init__(self, stdin: bytes) -> None:
        self._stdin = memoryview(stdin)
        self.printed = {OUTPUT: bytearray(), ERRORS: bytearray()}

    def input_file(self) -> int | None:
        return None

    def output_file(self, stream: int) -> int | None:
        return None

    def wake_file(self) -> int | None:
        return None

    def new_size(self) -> tuple[int, int]:
        return 80, 24

    def read(self, most: int) -> bytes:
        piece, self._stdin = bytes(self._stdin[:most]), self._stdin[most:]
        return piece

    def write(self, stream: int, data: bytes) -> int:
        self.printed[stream] += data
        if sum(map(len, self.printed.values())) > _MOST_RESULT_BYTES:
            raise InvalidInput(
                f"the command printed more than {_MOST_RESULT_BYTES >> 20} MiB, and was ended: write it to a file of"
                " the job, or use voda exec ... > FILE"
            )
        return len(data)

    def result(self, end: ExecEnd) -> ExecResult:
        """Return how it ended; a sentence on why it could not be run is among what it printed."""
        if end.status is None:
            raise PermanentError(end.problem)
        said = f"voda: {end.problem}\n".encode() if end.problem else b""
        return ExecResult(
            status=end.status, stdout=bytes(self.printed[OUTPUT]), stderr=bytes(self.printed[ERRORS]) + said
        )

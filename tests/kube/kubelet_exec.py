"""The part of a kubelet that runs commands: a WebSocket of v5.channel.k8s.io for each.

Rule: it says what kubelet 1.37 with containerd 2.2 said of the same commands; these are programs of this machine. The
tests run against real kubelets too (see pod_commands.py), and so show that they are alike.
"""

import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import termios
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from aiohttp import WSMsgType, web

_INPUT, _OUTPUT, _ERRORS, _STATUS, _SIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_NOT_STARTED = (
    "Internal error occurred: error executing command in container: failed to exec in container: failed to start exec"
    ' "83080666cc4f": OCI runtime exec failed: exec failed: unable to start container process: exec: '
)


class Programs:
    """The commands that run; see the module."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Sequence[str]]] = []
        """pod/container and command line of each request."""
        self._running: set[asyncio.subprocess.Process] = set()
        self._serving: set[asyncio.Task[Any]] = set()

    def kill(self) -> None:
        """End all of them, as their container does when it ends."""
        for process in self._running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End all of them, and return once that has been said."""
        self.kill()
        if self._serving:
            await asyncio.wait(self._serving)

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """Run the command that a request asks for."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        # Like the real one, it waits for no answer to its farewell.
        opened = web.WebSocketResponse(protocols=("v5.channel.k8s.io",), timeout=0.01)
        await opened.prepare(request)
        await opened.send_bytes(bytes([_OUTPUT]))
        argv = request.query.getall("command")
        self.asked.append((f"{request.match_info['pod']}/{request.match_info['container']}", argv))
        flags = {name for name in ("input", "output", "error", "tty") if request.query.get(name) == "1"}
        with ExitStack() as stack:
            try:
                status = await self._run(opened, argv, flags, stack)
            except (FileNotFoundError, PermissionError) as error:
                is_there = isinstance(error, PermissionError)
                why = "permission denied" if is_there else "executable file not found in $PATH"
                status = _internal(f'{_NOT_STARTED}"{argv[0]}": {why}')
        with suppress(ConnectionError):
            await opened.send_bytes(bytes([_STATUS]) + json.dumps(status).encode())
        await opened.close()
        return opened

    async def _run(
        self, opened: web.WebSocketResponse, argv: Sequence[str], flags: set[str], stack: ExitStack
    ) -> dict[str, Any]:
        terminal = -1
        given: Any = asyncio.subprocess.PIPE
        if "tty" in flags:
            terminal, given = pty.openpty()
            stack.callback(os.close, terminal)
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=given if {"input", "tty"} & flags else asyncio.subprocess.DEVNULL,
            stdout=given,
            stderr=given,
            start_new_session=True,
            preexec_fn=partial(_begin, has_terminal="tty" in flags),
        )
        if "tty" in flags:
            os.close(given)
        self._running.add(process)
        listening = asyncio.create_task(_obey(opened, process, terminal))
        try:
            await _print(opened, process, terminal)
            code = await process.wait()
        finally:
            self._running.discard(process)
            listening.cancel()
            await asyncio.wait([listening])
        return _ended(128 - code if code < 0 else code)


async def _print(opened: web.WebSocketResponse, process: asyncio.subprocess.Process, terminal: int) -> None:
    """Send what a process prints, until it has ended."""
    if terminal >= 0:
        while data := await asyncio.to_thread(_read, terminal):
            await _send(opened, _OUTPUT, data)
        return
    assert process.stdout is not None
    assert process.stderr is not None

    async def copy(stream: asyncio.StreamReader, channel: int) -> None:
        while data := await stream.read(32 << 10):
            await _send(opened, channel, data)

    await asyncio.gather(copy(process.stdout, _OUTPUT), copy(process.stderr, _ERRORS))


async def _send(opened: web.WebSocketResponse, channel: int, data: bytes) -> None:
    with suppress(ConnectionError):
        await opened.send_bytes(bytes([channel]) + data)


async def _obey(opened: web.WebSocketResponse, process: asyncio.subprocess.Process, terminal: int) -> None:
    """Do what the caller says; once it is gone the input ends, and a terminal hangs up."""
    async for message in opened:
        assert message.type == WSMsgType.BINARY
        channel, data = message.data[0], message.data[1:]
        if channel == _SIZE:
            size = json.loads(data)
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size["Height"], size["Width"], 0, 0))
        elif channel == _INPUT and terminal >= 0:
            await asyncio.to_thread(os.write, terminal, data)
        elif process.stdin is not None and channel == _INPUT:
            process.stdin.write(data)
            with suppress(ConnectionError):
                await process.stdin.drain()
        elif process.stdin is not None and channel == _CLOSE and data == bytes([_INPUT]):
            process.stdin.close()
    if process.stdin is not None:
        process.stdin.close()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 32 << 10)
    except OSError:
        # So a terminal ends.
        return b""


def _begin(*, has_terminal: bool) -> None:
    # As in a container, also where the tests were started with them ignored, such as in the background of a shell.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    if has_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _ended(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: command terminated with exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _internal(message: str) -> dict[str, Any]:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {message}",
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    }

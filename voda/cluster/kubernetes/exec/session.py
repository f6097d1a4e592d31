"""One command in a pod, in the API server's own protocol: a WebSocket of v5.channel.k8s.io.

Rules: the first byte of a message is its channel; nothing is read before it is asked for, so that a command that prints
faster than its caller reads stands still.
"""

import asyncio
import re
from contextlib import suppress
from typing import Final

import msgspec
from aiohttp import ClientWebSocketResponse, WSMsgType
from msgspec import Struct

from voda.cluster.port import CommandEnd, CommandOutput, CommandRequest, TerminalSize
from voda.domain.errors import ClusterUnavailable
from voda.kubernetes_client.errors import one_line

PROTOCOL: Final = "v5.channel.k8s.io"
"""Since Kubernetes 1.30; the first that can let the input end."""
_INPUT, _OUTPUT, _ERRORS, _STATUS, _SIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_INTERRUPT, _END_OF_INPUT = b"\x03", b"\x04"
"""What a terminal takes for them."""
_LEAVE_S: Final = 1.0
_NOT_FOUND: Final = re.compile(r"executable file .*not found|exec: .*no such file or directory")
_NOT_RUNNABLE: Final = re.compile(r"exec: .*(permission denied|exec format error)")


class _Cause(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _StatusDetails(Struct, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _Status(Struct, frozen=True):
    status: str = ""
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


class PodCommand:
    """An adapter of the RemoteCommand port."""

    def __init__(self, opened: ClientWebSocketResponse, request: CommandRequest) -> None:
        self._socket = opened
        self._program = request.argv[0]
        self._has_terminal = request.terminal is not None
        self._takes_input = request.has_input
        self._end: CommandEnd | None = None

    async def read(self) -> CommandOutput | CommandEnd:
        while self._end is None:
            message = await self._socket.receive()
            if message.type != WSMsgType.BINARY:
                raise ClusterUnavailable("how the command ended is not known: the connection to its pod broke off")
            channel, data = message.data[:1], message.data[1:]
            if not data:
                continue
            if channel[0] == _STATUS:
                self._end = end_of(data, self._program)
            elif channel[0] in (_OUTPUT, _ERRORS):
                return CommandOutput(data, is_error=channel[0] == _ERRORS)
        return self._end

    async def write(self, data: bytes) -> None:
        if self._takes_input:
            await self._send(_INPUT, data)

    async def end_input(self) -> None:
        if not self._takes_input:
            return
        if self._has_terminal:
            await self._send(_INPUT, _END_OF_INPUT)
        else:
            self._takes_input = False
            await self._send(_CLOSE, bytes([_INPUT]))

    async def resize(self, size: TerminalSize) -> None:
        if self._has_terminal:
            await self._send(_SIZE, msgspec.json.encode({"Width": size.columns, "Height": size.rows}))

    async def leave(self) -> None:
        """Interrupt a command on a terminal that has not ended, and end its input: no runtime would hang up."""
        if self._end is None and self._has_terminal and self._takes_input:
            # It may not read. A connection that closes at once may take along what is on its way.
            with suppress(TimeoutError, ClusterUnavailable):
                async with asyncio.timeout(_LEAVE_S):
                    await self._send(_INPUT, _INTERRUPT + _END_OF_INPUT)
                    while not isinstance(await self.read(), CommandEnd):
                        pass

    async def _send(self, channel: int, data: bytes) -> None:
        # How the command ended is for `read` to say.
        with suppress(ConnectionError):
            await self._socket.send_bytes(bytes([channel]) + data)


def end_of(said: bytes, program: str) -> CommandEnd:
    """Return how a command ended, from the Status that the kubelet sends last.

    Raises:
        ClusterUnavailable: the kubelet could not run it, or says something else than a Status.
    """
    try:
        status = msgspec.json.decode(said, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClusterUnavailable(f"how the command ended is not known: the kubelet says no Status ({error})") from error
    if status.status == "Success":
        return CommandEnd(0)
    causes = status.details.causes if status.details is not None else ()
    codes = (each.message for each in causes if each.reason == "ExitCode")
    if (code := next(codes, "")).isdecimal() and int(code[:3]) <= 255:
        return CommandEnd(int(code[:3]))
    if _NOT_FOUND.search(status.message):
        return CommandEnd(127, f"command {program[:200]}: not found")
    if _NOT_RUNNABLE.search(status.message):
        return CommandEnd(126, f"command {program[:200]}: cannot be run")
    raise ClusterUnavailable(f"the command cannot be run in its pod: {one_line(status.message)}")

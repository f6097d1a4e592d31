"""Carries the input and output of a command over a WebSocket; voda.client.exec.session says what both sides say.

Rules: neither side sends more than a window ahead of what the other has used up, so neither keeps more than that in
memory, and the connection is always read; the command ends with the connection, and by two time limits.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from msgspec import Struct

from voda.api.admission import CallerLimits
from voda.client.exec.session import ERRORS, OUTPUT, PROTOCOL, WINDOW_BYTES
from voda.cluster.port import CommandEnd, CommandRequest, RemoteCommand, TerminalSize
from voda.domain.errors import InvalidInput, VodaError

_SILENT_BEATS: Final = 4
"""A caller that leaves so many signs of life in a row unanswered is gone."""
_CLOSE_S: Final = 2.0
_GOODBYE_S: Final = 10.0
"""In which a caller takes the last that is said."""
_END: Final = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)
_log = logging.getLogger(__name__)


class _Control(Struct, frozen=True, forbid_unknown_fields=True):
    """What a caller says while the command runs."""

    taken: int = 0
    resize: TerminalSize | None = None
    ends_input: bool = False


class _Ended(Struct, frozen=True):
    """The last that the server says."""

    status: int | None
    problem: str


def command_socket() -> web.WebSocketResponse:
    """Return the answer to a request for a command."""
    # Uncompressed, since a small message may unpack to a huge one.
    return web.WebSocketResponse(
        protocols=(PROTOCOL,), max_msg_size=2 * WINDOW_BYTES, compress=False, autoping=False, timeout=_CLOSE_S
    )


class CommandSession:
    """One command of one caller."""

    def __init__(
        self, opened: web.WebSocketResponse, limits: CallerLimits, ending: asyncio.Event, abort: Callable[[], None]
    ) -> None:
        self._socket = opened
        self._abort = abort
        """Cuts the connection."""
        self._limits = limits
        self._ending = ending
        """Set when the server shuts down."""
        self._loop = asyncio.get_running_loop()
        self._input: asyncio.Queue[bytes] = asyncio.Queue()
        """What was not written to the command yet; empty = the end."""
        self._held_bytes = 0
        self._credit = WINDOW_BYTES
        """How many bytes of output the caller takes now."""
        self._more_credit = asyncio.Event()
        self._heard_at = self._active_at = self._loop.time()

    async def request(self) -> CommandRequest:
        """Return what to run, the first that a caller says; raises InvalidInput where it is something else."""
        try:
            async with asyncio.timeout(self._limits.request_s):
                message = await self._socket.receive()
        except TimeoutError:
            raise InvalidInput(f"nothing was said within {self._limits.request_s:g} s of what to run") from None
        if message.type != WSMsgType.TEXT:
            raise InvalidInput("the first message has to say as JSON what to run")
        try:
            found = msgspec.json.decode(message.data, type=CommandRequest)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise InvalidInput(f"what to run is not understood: {error}") from error
        if not found.argv[0] or any("\0" in word for word in found.argv):
            raise InvalidInput("the command is empty, or a word of it holds a NUL, which no command can have")
        return found

    async def carry(self, command: RemoteCommand) -> CommandEnd | str | None:
        """Carry input and output until the command has ended, the caller is gone, or it takes too long; return which,
        as `end` says it.
        """
        parts = (self._copy_output(command), self._receive(command), self._write_input(command), self._watch())
        tasks = [asyncio.create_task(each) for each in (*parts, self._shutdown())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        return next(_ended(result) for task, result in zip(tasks, results, strict=True) if task in done)

    async def end(self, ended: CommandEnd | str | None) -> None:
        """Say how it ended, or why voda ended or never began it, and close; None: the caller is gone.

        To be called once nothing of the command is held, since a caller may take its time.
        """
        said = _Ended(ended.status, ended.problem) if isinstance(ended, CommandEnd) else _Ended(None, ended or "")
        try:
            async with asyncio.timeout(_GOODBYE_S):
                if ended is not None:
                    await self._say(said)
                await self._socket.close()
        except TimeoutError:
            self._abort()
        except asyncio.CancelledError:
            # Also where this voda is not stopped: once a write was canceled halfway, aiohttp cancels the next one.
            self._abort()
            raise
        except ConnectionError:
            _log.debug("caller gone before it heard how its command ended")
        else:
            # A caller that did not answer may never take what is left, which a mere close would wait for.
            if self._socket.close_code == WSCloseCode.ABNORMAL_CLOSURE:
                self._abort()

    async def _say(self, what: object) -> None:
        await self._socket.send_str(msgspec.json.encode(what).decode())

    async def _copy_output(self, command: RemoteCommand) -> CommandEnd:
        while not isinstance(output := await command.read(), CommandEnd):
            self._active_at = self._loop.time()
            stream, rest = bytes([ERRORS if output.is_error else OUTPUT]), output.data
            while rest:
                while self._credit <= 0:
                    self._more_credit.clear()
                    await self._more_credit.wait()
                piece, rest = rest[: self._credit], rest[self._credit :]
                self._credit -= len(piece)
                await self._socket.send_bytes(stream + piece)
        return output

    async def _write_input(self, command: RemoteCommand) -> None:
        while data := await self._input.get():
            await command.write(data)
            self._held_bytes -= len(data)
            await self._say({"taken": len(data)})
        await command.end_input()
        await asyncio.Event().wait()

    async def _receive(self, command: RemoteCommand) -> str | None:
        while (message := await self._socket.receive()).type not in _END:
            self._heard_at = self._loop.time()
            if message.type == WSMsgType.PING:
                await self._socket.pong(message.data)
            elif message.type == WSMsgType.BINARY and message.data:
                self._active_at = self._heard_at
                self._held_bytes += len(message.data)
                if self._held_bytes > WINDOW_BYTES:
                    return f"more than {WINDOW_BYTES} bytes of input came ahead of what the command reads"
                self._input.put_nowait(message.data)
            elif message.type == WSMsgType.TEXT and (problem := await self._obey(message, command)):
                return problem
        return None

    async def _obey(self, message: WSMessage, command: RemoteCommand) -> str:
        """Do what a caller says; return why it cannot be done, a sentence."""
        try:
            said = msgspec.json.decode(message.data, type=_Control)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            return f"what was said is not understood: {error}"
        self._credit = min(WINDOW_BYTES, self._credit + max(0, said.taken))
        self._more_credit.set()
        if said.resize is not None:
            await command.resize(said.resize)
        if said.ends_input:
            self._input.put_nowait(b"")
        return ""

    async def _watch(self) -> str | None:
        limits, began_at = self._limits, self._loop.time()
        while True:
            now = self._loop.time()
            if now - self._heard_at > _SILENT_BEATS * limits.heartbeat_s:
                return None
            if now - began_at >= limits.command_s:
                return f"it was ended after {limits.command_s:g} s, the longest that this voda lets a command take"
            if now - self._active_at >= limits.command_idle_s:
                return f"it was ended after {limits.command_idle_s:g} s without input or output"
            left_s = min(began_at + limits.command_s, self._active_at + limits.command_idle_s) - now
            await asyncio.sleep(min(limits.heartbeat_s, left_s))
            await self._socket.ping()

    async def _shutdown(self) -> str:
        await self._ending.wait()
        return "this voda shuts down, and has ended the command"


def _ended(result: object) -> CommandEnd | str | None:
    """Return how a session ended, from what its first part to end returned or raised."""
    match result:
        case CommandEnd() | str() | None:
            return result
        case VodaError():
            return str(result)
        case ConnectionError():
            return None
        case BaseException():
            raise result
    raise TypeError(f"a part of a session returned {result!r}")

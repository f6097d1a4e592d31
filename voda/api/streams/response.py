"""Sends an answer that goes on until its work is done, the server shuts down, or the reader is gone.

Rule: a reader can ask again for what it missed, so nothing waits for slow readers: their connections are closed (see
voda.api.listener). aiohttp-sse does not serve here: it answers no HEAD, makes each frame once per reader, and its
pings carry no position; and job logs are streams too, but no events.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping

from aiohttp import hdrs, web

from voda.api.admission import CALLER, SHARES, CallerLimits
from voda.api.listener import TimedConnection
from voda.api.operation import SHUTTING_DOWN
from voda.domain.errors import VodaError

_log = logging.getLogger(__name__)


class StreamedResponse:
    """One streamed answer."""

    def __init__(self, request: web.Request, limits: CallerLimits, headers: Mapping[str, str]) -> None:
        self._request = request
        self._limits = limits
        self._response = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", **headers})

    async def write(self, data: bytes) -> None:
        """Send data, waiting while the reader's buffers are full; raises ConnectionError once it is gone or cut off."""
        await self._response.write(data)

    async def run(self, work: Callable[[], Coroutine[object, object, None]]) -> web.StreamResponse:
        """Send what `work` writes, until it is done, the server shuts down, or the reader is gone.

        Raises:
            TooManyRequests: the caller follows as many streams as one may.
        """
        with self._request.app[SHARES].stream(self._request[CALLER]):
            await self._response.prepare(self._request)
            return self._response if self._request.method == hdrs.METH_HEAD else await self._send(work)

    async def _send(self, work: Callable[[], Coroutine[object, object, None]]) -> web.StreamResponse:
        ending = self._request.app[SHUTTING_DOWN]
        async with asyncio.TaskGroup() as group:
            tasks: set[asyncio.Task[object]] = {
                group.create_task(self._run_guarded(work)),
                group.create_task(ending.wait()),
                group.create_task(self._reader_left()),
            }
            while not self._is_gone:
                done, _ = await asyncio.wait(
                    tasks, timeout=self._limits.heartbeat_s, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    break
            for task in tasks:
                task.cancel()
        if not self._is_gone:
            await self._run_guarded(self._response.write_eof)
        return self._response

    async def _reader_left(self) -> None:
        """Return once the reader has closed its connection, which nothing else tells while nothing is sent."""
        connection = self._request.protocol
        if isinstance(connection, TimedConnection):
            await connection.lost.wait()
        else:
            await asyncio.Event().wait()

    @property
    def _is_gone(self) -> bool:
        transport = self._request.transport
        return transport is None or transport.is_closing()

    async def _run_guarded(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await work()
        except ConnectionError:
            _log.debug("reader gone path=%r", self._request.path)
        except VodaError as error:
            # The answer has begun, so it can only break off; the reader sees the error when it comes back.
            _log.warning("stream broken off path=%r reason=%s", self._request.path, error)

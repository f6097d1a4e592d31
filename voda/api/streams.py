"""Answers that go on: written with a limit on every wait, ended when the server ends or the reader is gone.

Rule: a reader that takes nothing is cut off; what it missed it can ask for again.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping

from aiohttp import web

from voda.api.backend import Limits
from voda.api.operation import ENDING
from voda.domain.errors import VodaError

_log = logging.getLogger(__name__)


class Stream:
    """One answer that goes on."""

    def __init__(self, request: web.Request, limits: Limits, headers: Mapping[str, str]) -> None:
        self._request = request
        self._limits = limits
        self._response = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", **headers})

    async def write(self, data: bytes) -> None:
        """Send more; waits while the reader is busy with what it has.

        Raises:
            ConnectionError: the reader is gone, or took nothing for so long that it was cut off.
        """
        try:
            async with asyncio.timeout(self._limits.write_s):
                await self._response.write(data)
        except TimeoutError as error:
            if (transport := self._request.transport) is not None:
                transport.abort()
            _log.info("reader cut off path=%s silent_s=%g", self._request.path, self._limits.write_s)
            raise ConnectionResetError("the reader took nothing") from error

    async def run(self, work: Coroutine[object, object, None]) -> web.StreamResponse:
        """Answer with what `work` writes, until it is done, the server ends, or the reader is gone."""
        await self._response.prepare(self._request)
        ending = self._request.app[ENDING]
        async with asyncio.TaskGroup() as group:
            tasks = {group.create_task(self._guarded(work)), group.create_task(_flag(ending))}
            while not self._is_gone:
                done, _ = await asyncio.wait(
                    tasks, timeout=self._limits.heartbeat_s, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    break
            for task in tasks:
                task.cancel()
        if not self._is_gone:
            await self._guarded(self._finish())
        return self._response

    @property
    def _is_gone(self) -> bool:
        transport = self._request.transport
        return transport is None or transport.is_closing()

    async def _finish(self) -> None:
        async with asyncio.timeout(self._limits.write_s):
            await self._response.write_eof()

    async def _guarded(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except (ConnectionError, TimeoutError):
            # Whom it was for is not there any more.
            _log.debug("reader gone path=%s", self._request.path)
        except VodaError as error:
            # The answer has begun, so it can only break off; the reader comes back and is told then.
            _log.warning("stream broken off path=%s reason=%s", self._request.path, error)


async def _flag(event: asyncio.Event) -> None:
    await event.wait()

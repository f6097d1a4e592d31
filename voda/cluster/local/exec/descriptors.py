"""Pipes, sockets and terminals that never block the event loop: each waits only while it is asked for something.

Rule: nothing is read ahead, so what the other side of a pipe has not been asked for stays in the kernel.
"""

import asyncio
import os
from collections.abc import Iterable
from typing import Final

_PIECE_BYTES: Final = 64 << 10


class Descriptor:
    """One open file; used on one event loop, and closed once."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self.number = number

    @property
    def is_open(self) -> bool:
        return self.number >= 0

    def read_ready(self) -> bytes | None:
        """Return what can be read at once, b"" at the end, None where there is nothing yet."""
        try:
            return os.read(self.number, _PIECE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            # So a terminal ends.
            return b""

    async def write(self, data: bytes) -> bool:
        """Write all of it, waiting while there is no room; return whether anybody will read it."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.number, rest) :]
            except BlockingIOError:
                await self._writable()
            except OSError:
                return False
        return True

    def close(self) -> None:
        if self.is_open:
            os.close(self.number)
            self.number = -1

    async def _writable(self) -> None:
        loop, number = asyncio.get_running_loop(), self.number
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_writer(number, _finish, ready)
        try:
            await ready
        finally:
            loop.remove_writer(number)


async def any_readable(descriptors: Iterable[Descriptor]) -> None:
    """Return once one of some descriptors has something to read, or has ended."""
    loop, numbers = asyncio.get_running_loop(), [each.number for each in descriptors]
    ready: asyncio.Future[None] = loop.create_future()
    for number in numbers:
        loop.add_reader(number, _finish, ready)
    try:
        await ready
    finally:
        for number in numbers:
            loop.remove_reader(number)


def _finish(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)

"""Looks up the addresses of hosts: a pod that comes again under the same name is another host.

Rules: a host keeps its last address while its name cannot be looked up; one that never had any is not there yet. Each
name is looked up at most once in `every_s`, and no look-up is waited for longer than `timeout_s`.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

LookUp = Callable[[str], Awaitable[str]]
"""host -> its address; OSError: it has none."""
_EVERY_S: Final = 5.0
_TIMEOUT_S: Final = 3.0
_AT_ONCE: Final = 16


async def look_up(host: str) -> str:
    """Return the first address of a host, by the machine's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return min(str(each[4][0]) for each in found)


class Resolver:
    def __init__(self, look_up: LookUp = look_up, *, every_s: float = _EVERY_S, timeout_s: float = _TIMEOUT_S) -> None:
        self._look_up = look_up
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._known: dict[str, str] = {}
        self._at: dict[str, float] = {}
        """host -> instant of its last look-up."""

    async def addresses(self, hosts: Collection[str]) -> Mapping[str, str]:
        """Return host -> address, of those that have, or had, one; hosts that are not named are forgotten."""
        now = asyncio.get_running_loop().time()
        self._known = {host: address for host, address in self._known.items() if host in hosts}
        self._at = {host: at for host, at in self._at.items() if host in hosts}
        due = [host for host in hosts if now - self._at.get(host, -self._every_s) >= self._every_s]
        some = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for host in due:
                group.create_task(self._refresh(host, some))
        return {host: self._known[host] for host in hosts if host in self._known}

    async def _refresh(self, host: str, some: asyncio.Semaphore) -> None:
        async with some:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    self._known[host] = await self._look_up(host)
            # One that is not there yet is looked up again with the next list.
            if host in self._known:
                self._at[host] = asyncio.get_running_loop().time()

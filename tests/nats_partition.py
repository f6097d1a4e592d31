"""A cluster of NATS servers that can be parted: every way from one to another goes through a relay.

Rule: the relays live on a loop and a thread of their own, because servers are started by code that waits.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager

from tests.nats import NatsServer, serving
from tests.relay import Relay, relayed

_WAIT_S = 120.0


class Ways:
    """The ways between the nodes of a cluster."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._relays: dict[tuple[str, str], Relay] = {}
        self._stack = AsyncExitStack()

    def between(self, ports: Mapping[str, int]) -> Mapping[str, Mapping[str, int]]:
        """Lay them: from each node to each other one."""
        return asyncio.run_coroutine_threadsafe(self._lay(ports), self._loop).result(_WAIT_S)

    def isolate(self, node: str) -> None:
        """Cut all ways to and from a node, and keep them cut."""
        self._have(Relay.close, node)

    def heal(self) -> None:
        """Let the nodes find each other again."""
        self._have(Relay.open)

    def close(self) -> None:
        """Cut them all for good."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_WAIT_S)

    def _have(self, act: Callable[[Relay], None], node: str = "") -> None:
        """Act on the ways to and from a node, or on all, and return when that is done."""

        async def on_each() -> None:
            for ends, relay in self._relays.items():
                if not node or node in ends:
                    act(relay)

        asyncio.run_coroutine_threadsafe(on_each(), self._loop).result(_WAIT_S)

    async def _close(self) -> None:
        await self._stack.aclose()
        if carrying := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(carrying)

    async def _lay(self, ports: Mapping[str, int]) -> Mapping[str, Mapping[str, int]]:
        found: dict[str, dict[str, int]] = {name: {} for name in ports}
        for here in ports:
            for there in ports.keys() - {here}:
                relay = await self._stack.enter_async_context(relayed(f"http://127.0.0.1:{ports[there]}"))
                self._relays[here, there] = relay
                found[here][there] = int(relay.url.rpartition(":")[2])
        return found


@contextmanager
def partible() -> Iterator[tuple[NatsServer, Ways]]:
    """Run a cluster of three whose nodes can be isolated."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    ways = Ways(loop)
    try:
        with serving(3, between=ways.between) as server:
            yield server, ways
    finally:
        ways.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_WAIT_S)
        loop.close()

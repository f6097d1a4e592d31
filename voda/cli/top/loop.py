"""Keeps the screen of `voda top` fresh: asks the server again whenever something happened, and by a timer.

Rule: a server that is away leaves the last screen, marked as old.
"""

import asyncio
from dataclasses import replace

import msgspec
from rich.console import Console, Group
from rich.live import Live

from voda.api.schemas.events import EventView
from voda.cli.http.client import Client, NoAnswer
from voda.cli.http.remote_log import ServerLog
from voda.cli.http.sse import Message
from voda.cli.render.stdout import console
from voda.cli.render.times import now
from voda.cli.top.keys import keys
from voda.cli.top.plan_changes import PLANS, Changes
from voda.cli.top.screen import Scene, frame
from voda.cli.watch import pages
from voda.cli.watch.changes import woken
from voda.domain.errors import StoreUnavailable

_EVERY_S = 1.0
_PAUSE_S = 0.35
"""Between two looks at the least."""
_JOBS = 200
"""More fit on no screen."""
_PRINTED = 10
"""Changes that are shown where the output is no terminal."""
_REACH = 2_000
"""Events before now among which the last decisions are looked for."""


class Top:
    """The screen, of all pools or of one."""

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._changes = Changes()
        self._scene: Scene | None = None
        self._quits = asyncio.Event()

    async def run(self, client: Client) -> None:
        """Show the screen until q is pressed; once where the output is no terminal."""
        await self._recall(client)
        screen = console()
        if not screen.is_terminal:
            scene = await self._look(client)
            for line in frame(replace(scene, changes=scene.changes[:_PRINTED]), width=None, height=None):
                screen.print(line, soft_wrap=True)
            return
        await self._look(client)
        with Live(console=screen, screen=True, auto_refresh=False) as live:
            await self._show(client, live, screen)

    async def _show(self, client: Client, live: Live, screen: Console) -> None:
        async with woken(client, every_s=_EVERY_S, seen=self._see) as wait:

            def pressed(key: str) -> None:
                if key in "qQ":
                    self._quits.set()
                    wait.wake()

            with keys(pressed):
                while not self._quits.is_set():
                    scene = await self._look_again(client)
                    live.update(Group(*frame(scene, width=screen.width, height=screen.height)), refresh=True)
                    await asyncio.sleep(_PAUSE_S)
                    await wait()

    async def _recall(self, client: Client) -> None:
        log = ServerLog(client, {"type": PLANS})
        position = await log.position()
        self._changes = Changes(is_complete=position <= _REACH)
        async for seen in log.between(max(0, position - _REACH), position):
            self._changes.add(seen.event)

    def _see(self, message: Message) -> None:
        self._changes.add(msgspec.json.decode(message.data, type=EventView))

    async def _look_again(self, client: Client) -> Scene:
        """Return what is there now, or what was, if the server does not answer."""
        try:
            return await self._look(client)
        except (NoAnswer, StoreUnavailable) as error:
            if self._scene is None:
                raise
            return replace(self._scene, note=str(error), at=now())

    async def _look(self, client: Client) -> Scene:
        of_pool = {"pool": self._pool} if self._pool else {}
        jobs = await pages.jobs(client, {**of_pool, "phase": "live"}, limit=_JOBS)
        nodes, _ = await pages.nodes(client, (), self._pool)
        pools, _ = await pages.pools(client, [self._pool] if self._pool else [])
        self._scene = Scene(
            server=client.target.url,
            at=now(),
            pools=pools,
            nodes=nodes,
            jobs=jobs.items,
            total=jobs.total,
            changes=list(self._changes),
        )
        return self._scene

"""Refreshes the screen of `voda top` whenever something happens, by a timer, and until q is pressed.

Rules: while the server is away, the last screen stays, marked as old; the terminal's settings are restored.
"""

import os
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec
from rich.console import Console, Group
from rich.live import Live

from voda.cli.http.client import Client, ServerUnreachable
from voda.cli.http.remote_log import RemoteLog
from voda.cli.render.terminal import console, now
from voda.cli.watch.lists import fetch_jobs, fetch_nodes, fetch_pools
from voda.cli.watch.refresh import wake_on_change
from voda.cli.watch.top_screen import PLANS, PlanChanges, ScreenState, frame
from voda.client.sse import SseMessage
from voda.domain.errors import StoreUnavailable
from voda.wire.events import EventView

_EVERY_S = 1.0
_PAUSE_S = 0.35
"""Shortest time between two requests."""
_JOBS = 200
"""No screen shows more."""
_PRINTED = 10
"""Changes printed when the output is not a terminal."""
_REACH = 2_000
"""Newest events that are searched for recent decisions."""


class LiveScreen:
    def __init__(self, pool: str, selector: str = "") -> None:
        self._pool = pool
        self._selector = selector
        self._changes = PlanChanges()
        self._state: ScreenState | None = None
        self._quits = threading.Event()

    def run(self, client: Client) -> None:
        """Show the screen until q is pressed; print it once when the output is not a terminal."""
        self._load_changes(client)
        screen = console()
        if not screen.is_terminal:
            state = self._fetch(client)
            for line in frame(replace(state, changes=state.changes[:_PRINTED]), width=None, height=None):
                screen.print(line, soft_wrap=True)
            return
        self._fetch(client)
        with Live(console=screen, screen=True, auto_refresh=False) as live:
            self._show(client, live, screen)

    def _show(self, client: Client, live: Live, screen: Console) -> None:
        with wake_on_change(client, every_s=_EVERY_S, seen=self._on_event) as wait:

            def pressed(key: str) -> None:
                if key in "qQ":
                    self._quits.set()
                    wait.wake()

            with keys(pressed):
                while not self._quits.is_set():
                    state = self._refresh(client)
                    live.update(Group(*frame(state, width=screen.width, height=screen.height)), refresh=True)
                    time.sleep(_PAUSE_S)
                    wait()

    def _load_changes(self, client: Client) -> None:
        log = RemoteLog(client, {"type": PLANS})
        position = log.position()
        self._changes = PlanChanges(is_complete=position <= _REACH)
        for seen in log.between(max(0, position - _REACH), position):
            self._changes.add(seen.event)

    def _on_event(self, message: SseMessage) -> None:
        self._changes.add(msgspec.json.decode(message.data, type=EventView))

    def _refresh(self, client: Client) -> ScreenState:
        """Return the present state, or the last one if the server does not answer."""
        try:
            return self._fetch(client)
        except (ServerUnreachable, StoreUnavailable) as error:
            if self._state is None:
                raise
            return replace(self._state, note=str(error), at=now())

    def _fetch(self, client: Client) -> ScreenState:
        chosen = {name: value for name, value in {"pool": self._pool, "selector": self._selector}.items() if value}
        jobs = fetch_jobs(client, {**chosen, "phase": "live"}, limit=_JOBS)
        nodes, _ = fetch_nodes(client, (), self._pool)
        pools, _ = fetch_pools(client, [self._pool] if self._pool else [])
        self._state = ScreenState(
            server=client.target.url,
            at=now(),
            pools=pools,
            nodes=nodes,
            jobs=jobs.items,
            total=jobs.total,
            changes=list(self._changes),
        )
        return self._state


@contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Call `pressed` with each key while the block runs; never, when standard input is not a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)

    def read() -> None:
        while text := os.read(handle, 64).decode("utf-8", "replace"):
            for key in text:
                pressed(key)

    # Ctrl-C still interrupts.
    tty.setcbreak(handle)
    threading.Thread(target=read, name="voda-keys", daemon=True).start()
    try:
        yield
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)

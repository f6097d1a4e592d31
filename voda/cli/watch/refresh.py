"""Shows a list once, or again whenever it changes: the server's live events wake the view, and so does a timer.

Rules: an event only says that something changed; the view then asks for the present state. A terminal redraws the
list; elsewhere each change is one line, so that it can be piped.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from queue import Empty, SimpleQueue

from rich.console import Group
from rich.live import Live

from voda.cli.http.client import Client, Params, ServerUnreachable, call_server
from voda.cli.http.remote_log import RemoteLog
from voda.cli.options import Output, ServerOptions
from voda.cli.render.terminal import console, note, print_answer, print_bytes, print_names, show_lines
from voda.cli.watch.lists import Listing, ListSource
from voda.client.connection import Cancellation
from voda.client.errors import ClientClosed
from voda.client.sse import SseMessage
from voda.domain.errors import InvalidInput, StoreUnavailable

SETTLE_S = 0.15
"""Events come in bursts; one request after this pause covers all of them."""


class ChangeWait:
    """Waits until something happens; what another thread has to tell is called in the thread that waits."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._changes: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def __call__(self) -> None:
        """Return once something has happened since the last call, or after `every_s`."""
        try:
            self._changes.get(timeout=self._every_s)()
            time.sleep(SETTLE_S)
            while True:
                self._changes.get_nowait()()
        except Empty:
            pass

    def wake(self, tell: Callable[[], None] = lambda: None) -> None:
        """Let the wait end, with `tell` called; from any thread."""
        self._changes.put(tell)


@contextmanager
def wake_on_change(
    client: Client,
    *,
    every_s: float,
    params: Params | None = None,
    seen: Callable[[SseMessage], None] = lambda _: None,
    lost: Callable[[str], None] = lambda _: None,
) -> Iterator[ChangeWait]:
    """Yield an object that waits until something happens, at most `every_s`.

    `seen` is called with every event, and `lost` with a sentence when the live connection breaks; the timer goes on.
    """
    position = RemoteLog(client, {}).position()
    wait, ending = ChangeWait(every_s), Cancellation()
    followed = client.with_cancellation(ending)
    followed.lost = lambda sentence: wait.wake(partial(lost, sentence))

    def follow() -> None:
        try:
            for message in followed.follow_events(after=position, params=params, away_s=math.inf):
                wait.wake(partial(seen, message))
        except ClientClosed:
            return
        except Exception as error:
            wait.wake(partial(_raise, error))

    threading.Thread(target=follow, name="voda-events", daemon=True).start()
    try:
        yield wait
    finally:
        ending.cancel()


def _raise(error: Exception) -> None:
    raise error


_EVERY_S = 5.0


def show_list(where: ServerOptions, source: ListSource, output: Output, *, watches: bool = False) -> None:
    """Print a list of the server, and again whenever it changes where it is watched."""
    if watches and output == "yaml":
        raise InvalidInput("--watch prints a table, names, or JSON with a line for each change: choose another -o")
    call_server(where, lambda client: (_watch if watches else _show)(client, source, output))


def _show(client: Client, source: ListSource, output: Output) -> None:
    found = source(client)
    is_table = output in ("table", "wide")
    if is_table:
        show_lines(lambda width: found.lines(output == "wide", width))
    else:
        print_answer(found.body, output, found.names)
    if found.note and (is_table or found.names):
        note(found.note)


def _watch(client: Client, source: ListSource, output: Output) -> None:
    """Show the list until nothing in it can change any more, or for ever."""
    is_table = output in ("table", "wide")
    shown = _RedrawnView(output) if is_table and console().is_terminal else _AppendedView(output)
    with shown.live, wake_on_change(client, every_s=_EVERY_S, lost=shown.notify) as wait:
        while True:
            try:
                found = source(client)
            except (ServerUnreachable, StoreUnavailable) as error:
                shown.notify(str(error))
            else:
                shown.show(found)
                if found.is_over:
                    return
            wait()


class _RedrawnView:
    """Redraws a table in place on a terminal."""

    def __init__(self, output: Output) -> None:
        self._is_wide = output == "wide"
        self._console = console()
        self.live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")

    def show(self, found: Listing) -> None:
        lines = found.lines(self._is_wide, self._console.width)
        room = self._console.height - 1
        note = [found.note] if found.note and len(lines) < room else []
        self.live.update(Group(*lines[:room], *note), refresh=True)

    def notify(self, sentence: str) -> None:
        self._console.print(f"voda: {sentence}")


class _AppendedView:
    """Prints one line for each item that is new or changed."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._marks: dict[str, object] = {}
        self._has_heads = False
        self.live = nullcontext()
        self.notify = note

    def show(self, found: Listing) -> None:
        marks = dict(zip(found.names, found.marks, strict=True))
        changed = [index for index, name in enumerate(found.names) if self._marks.get(name) != marks[name]]
        self._marks.update(marks)
        print_line = self._printer(found)
        for index in changed:
            print_line(index)

    def _printer(self, found: Listing) -> Callable[[int], None]:
        if self._output == "json":
            return lambda index: print_bytes(found.raw[index])
        if self._output == "name":
            return lambda index: print_names(found.names[index : index + 1])
        heads, *lines = [line.plain for line in found.lines(self._output == "wide", None)]
        if not self._has_heads:
            print(heads, flush=True)
            self._has_heads = True
        return lambda index: print(lines[index], flush=True)

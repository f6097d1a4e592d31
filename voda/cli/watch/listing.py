"""Shows a list once, or again whenever it changes.

Rule: on a terminal a watched list is redrawn; elsewhere it is a line for each change, so that it can be piped.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, assert_never

from rich.console import Group
from rich.live import Live

from voda.cli.http.client import Client, NoAnswer
from voda.cli.options import Output
from voda.cli.render.stdout import console, print_bytes, print_names, print_yaml, say
from voda.cli.watch.changes import woken
from voda.cli.watch.sources import Found, Source
from voda.domain.errors import StoreUnavailable

_EVERY_S = 5.0


async def show(client: Client, source: Source, output: Output) -> None:
    """Print the list."""
    found = await source.look(client)
    match output:
        case Output.JSON:
            print_bytes(found.body)
        case Output.YAML:
            print_yaml(found.body)
        case Output.NAME:
            print_names(found.names)
        case Output.TABLE | Output.WIDE:
            screen = console()
            for line in found.lines(output is Output.WIDE, screen.width if screen.is_terminal else None):
                screen.print(line, soft_wrap=True)
        case _:
            assert_never(output)
    if found.note and (output in (Output.TABLE, Output.WIDE) or found.names):
        say(found.note)


async def watch(client: Client, source: Source, output: Output) -> None:
    """Show the list until nothing of it can change any more, or for ever."""
    is_table = output in (Output.TABLE, Output.WIDE)
    with _Redrawn(output) if is_table and console().is_terminal else _Appended(output) as shown:
        async with woken(client, every_s=_EVERY_S, lost=shown.tell) as wait:
            while True:
                try:
                    found = await source.look(client)
                except (NoAnswer, StoreUnavailable) as error:
                    shown.tell(str(error))
                else:
                    shown.show(found)
                    if found.is_over:
                        return
                await wait()


class _Shown(Protocol):
    """Where a watched list appears."""

    def show(self, found: Found) -> None: ...

    def tell(self, sentence: str) -> None: ...


class _Redrawn:
    """A table on a terminal, drawn again in its place."""

    def __init__(self, output: Output) -> None:
        self._is_wide = output is Output.WIDE
        self._console = console()
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._live.stop()

    def show(self, found: Found) -> None:
        """Draw the list."""
        lines = found.lines(self._is_wide, self._console.width)
        room = self._console.height - 1
        note = [found.note] if found.note and len(lines) < room else []
        self._live.update(Group(*lines[:room], *note), refresh=True)

    def tell(self, sentence: str) -> None:
        """Print a sentence above the list."""
        self._live.console.print(f"voda: {sentence}")


class _Appended:
    """A line for each item that changed."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._marks: dict[str, object] = {}
        self._has_heads = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        return None

    def show(self, found: Found) -> None:
        """Print the items that are new or changed."""
        marks = dict(zip(found.names, found.marks, strict=True))
        changed = [index for index, name in enumerate(found.names) if self._marks.get(name) != marks[name]]
        self._marks.update(marks)
        print_line = self._printer(found)
        for index in changed:
            print_line(index)

    def tell(self, sentence: str) -> None:
        """Say a sentence on standard error."""
        say(sentence)

    def _printer(self, found: Found) -> Callable[[int], None]:
        if self._output is Output.JSON:
            return lambda index: print_bytes(found.raw[index])
        if self._output is Output.NAME:
            return lambda index: print_names(found.names[index : index + 1])
        heads, *lines = [line.plain for line in found.lines(self._output is Output.WIDE, None)]
        if not self._has_heads:
            print(heads, flush=True)
            self._has_heads = True
        return lambda index: print(lines[index], flush=True)

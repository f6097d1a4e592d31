"""Prints answers on standard output: as the server sent them, as YAML, or as names; and notes on standard error.

Rule: JSON is the server's bytes, unchanged.
"""

import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from io import StringIO
from typing import TYPE_CHECKING, Final

from voda.cli.options import Output
from voda.clock import SystemClock

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_UNBOUNDED: Final = 10_000
"""Columns where there is no terminal."""


def print_bytes(body: bytes) -> None:
    """Print an answer unchanged, with a final newline."""
    sys.stdout.flush()
    sys.stdout.buffer.write(body if body.endswith(b"\n") else body + b"\n")
    sys.stdout.buffer.flush()


def print_names(names: Iterable[str]) -> None:
    """Print one name per line."""
    for name in names:
        print(plain(name), flush=True)


def print_answer(body: bytes, output: Output, names: Iterable[str], text: Callable[[], str] = str) -> None:
    """Print an answer in the requested format: as it is, as YAML in the same order, its names, or text for people."""
    if output == "json":
        print_bytes(body)
    elif output == "yaml":
        import msgspec
        import yaml

        print(yaml.safe_dump(msgspec.json.decode(body), sort_keys=False, allow_unicode=True), end="", flush=True)
    elif output == "name":
        print_names(names)
    else:
        print(text(), flush=True)


def note(sentence: str) -> None:
    """Print a sentence on standard error, where it does not mix with the output."""
    print(f"voda: {plain(sentence)}", file=sys.stderr, flush=True)


def console() -> "Console":
    """Return a console for people: colours on a terminal only, no automatic highlighting."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def show(*parts: "RenderableType") -> None:
    """Print for people; where no terminal shows it, nothing is wrapped, and no line is filled up with spaces."""
    from rich.console import Console

    screen = console()
    if screen.is_terminal:
        for part in parts:
            screen.print(part)
        return
    wide = Console(highlight=False, markup=False, emoji=False, file=StringIO(), width=_UNBOUNDED, no_color=True)
    with wide.capture() as captured:
        for part in parts:
            wide.print(part)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), flush=True)


def show_lines(lines: "Callable[[int | None], Iterable[RenderableType]]") -> None:
    """Print lines made for the width of the terminal, None = there is none."""
    screen = console()
    for line in lines(screen.width if screen.is_terminal else None):
        screen.print(line, soft_wrap=True)


def now() -> datetime:
    """Return the time of day in the zone of this machine."""
    return datetime.fromtimestamp(SystemClock().now()).astimezone()


def plain(text: str) -> str:
    """Return untrusted text made safe for a terminal: one line, no control characters."""
    return "".join(
        sign if sign.isprintable() else " " if sign.isspace() else "\N{REPLACEMENT CHARACTER}" for sign in text
    )

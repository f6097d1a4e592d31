"""Answers on standard output: as the server sent them, as YAML, or as names; and what is said beside them.

Rule: JSON is the server's bytes, unchanged.
"""

import sys
from collections.abc import Callable, Iterable

from rich.console import Console

from voda.cli.options import Output


def print_bytes(body: bytes) -> None:
    """Print an answer as it came, with an end of line."""
    sys.stdout.flush()
    sys.stdout.buffer.write(body if body.endswith(b"\n") else body + b"\n")
    sys.stdout.buffer.flush()


def print_yaml(body: bytes) -> None:
    """Print a JSON answer as YAML, its fields in the same order."""
    import msgspec
    import yaml

    print(yaml.safe_dump(msgspec.json.decode(body), sort_keys=False, allow_unicode=True), end="", flush=True)


def print_names(names: Iterable[str]) -> None:
    """Print a name a line."""
    for name in names:
        print(plain(name), flush=True)


def print_answer(body: bytes, output: Output, *, name: str, text: Callable[[], str]) -> None:
    """Print an answer about one thing as it was asked for; `text` makes the words for people."""
    if output is Output.JSON:
        print_bytes(body)
    elif output is Output.YAML:
        print_yaml(body)
    elif output is Output.NAME:
        print_names([name])
    else:
        print(text(), flush=True)


def note(sentence: str) -> None:
    """Tell the user something on standard error, where it does not mix with what was asked for."""
    print(f"voda: {plain(sentence)}", file=sys.stderr, flush=True)


def console() -> Console:
    """Return what prints for people: colours on a terminal only, and no word is coloured by guessing."""
    return Console(highlight=False, markup=False, emoji=False)


def plain(text: str) -> str:
    """Return a text of others in which nothing commands the terminal: one line, no control characters."""
    return "".join(
        sign if sign.isprintable() else " " if sign.isspace() else "\N{REPLACEMENT CHARACTER}" for sign in text
    )

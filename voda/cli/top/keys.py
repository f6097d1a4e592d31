"""Reads single keys from a terminal, without Enter.

Rule: the terminal's settings are restored, whatever happens.
"""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Call `pressed` with each key while the block runs; never, when standard input is not a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    loop = asyncio.get_running_loop()

    def read() -> None:
        text = os.read(handle, 64).decode("utf-8", "replace")
        if not text:
            loop.remove_reader(handle)
        for key in text:
            pressed(key)

    # Ctrl-C still interrupts.
    tty.setcbreak(handle)
    loop.add_reader(handle, read)
    try:
        yield
    finally:
        loop.remove_reader(handle)
        termios.tcsetattr(handle, termios.TCSADRAIN, before)

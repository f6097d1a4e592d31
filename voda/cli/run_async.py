"""Runs a command's coroutine.

Rule: asyncio takes a tenth of the time of `voda --help` to import, so it is imported where something is run.
"""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def awaited(work: Coroutine[Any, Any, T]) -> T:
    """Return what the coroutine comes to."""
    import asyncio

    return asyncio.run(work)

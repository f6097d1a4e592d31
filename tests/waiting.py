"""Waits for what real processes, threads and servers do, which no event of ours tells.

Rule: what takes too long fails the test, and tells what was waited for.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

DEADLINE_S = 120.0
"""Far more than anything takes, even on a busy machine."""
_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.1
_GROWTH = 1.2


def pauses(first_s: float = _PAUSE_S) -> Iterator[float]:
    """Return the seconds to wait before each new look: longer each time, for a look costs others their time."""
    pause_s = first_s
    while True:
        yield pause_s
        pause_s = min(_GROWTH * pause_s, _LONGEST_PAUSE_S)


def wait_until(
    holds: Callable[[], object], tell: Callable[[], str] = lambda: "in vain", *, within_s: float = DEADLINE_S
) -> None:
    """Wait until something holds; fail with what `tell` says where it does not in time."""
    end, pause_s = time.perf_counter() + within_s, pauses()
    while not holds():
        assert time.perf_counter() < end, f"waited {within_s:g} s: {tell()}"
        time.sleep(next(pause_s))


async def until(holds: Callable[[], bool], *, within_s: float = DEADLINE_S) -> None:
    """Wait until something holds, while other tasks go on."""

    async def holding() -> bool:
        return holds()

    await until_it_is(holding, within_s=within_s, what=place_of(holds))


async def until_it_is(holds: Callable[[], Awaitable[bool]], *, within_s: float = DEADLINE_S, what: str = "") -> None:
    """Wait until something that has to be asked for holds; `what` is said where it does not in time."""
    limit, pause_s = asyncio.timeout(within_s), pauses()
    try:
        async with limit:
            while not await holds():  # noqa: ASYNC110 - real processes set no event
                await asyncio.sleep(next(pause_s))
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(f"waited {within_s:g} s in vain until {what or place_of(holds)}") from None


def place_of(condition: Callable[..., object]) -> str:
    """Return the name of a condition and where it is written, such as `shown (test_top.py:75)`."""
    while isinstance(condition, partial):
        condition = condition.func
    name = getattr(condition, "__qualname__", repr(condition))
    code = getattr(condition, "__code__", None)
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})" if code is not None else name


def is_alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended, and waits to be reaped, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False

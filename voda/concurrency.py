"""What many tasks of one process need: one failure must not stop the others, and several count as one.

Rule: an error that was foreseen is handled where it is understood; only the others end here, with their traceback.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from voda.domain.errors import VodaError

T = TypeVar("T")
_log = logging.getLogger(__name__)


@contextmanager
def log_unexpected(doing: str, about: str) -> Iterator[None]:
    """Go on after the block, whatever error it raised, and log the error.

    The log line has what the block does, in one or two words, and the one object or job that it is about.
    """
    try:
        yield
    except Exception:  # whatever it is, it concerns one object; everything else must go on
        _log.exception("unforeseen doing=%s about=%s", doing, about[:200])


async def within(span_s: float | None, wait: Awaitable[object]) -> bool:
    """Wait for something, but no longer than so many seconds (None: for ever), and return whether it came."""
    try:
        async with asyncio.timeout(span_s):
            await wait
    except TimeoutError:
        return False
    return True


async def gather_all(works: Iterable[Awaitable[object]]) -> None:
    """Wait for all of it, whatever becomes of one part; then raise the first error of any."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def for_each(items: Sequence[T], work: Callable[[T], Awaitable[object]], *, at_once: int) -> None:
    """Do the work for each item in order, so many at a time."""
    queue = iter(items)

    async def take() -> None:
        for item in queue:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(items))):
            group.create_task(take())


def single_error(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error that stands for a group: an unforeseen one first, else the first of voda's own."""
    leaves = list(_leaves(failures))
    unforeseen = [error for error in leaves if not isinstance(error, VodaError)]
    return (unforeseen or leaves)[0]


def _leaves(failure: BaseException) -> Iterator[BaseException]:
    if not isinstance(failure, BaseExceptionGroup):
        yield failure
        return
    for each in failure.exceptions:
        yield from _leaves(each)

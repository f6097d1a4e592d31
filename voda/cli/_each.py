"""The same for several things: one that fails does not spare the others, and the command fails in the end.

Rule: every failure is told once; the exit status is that of the last one.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from voda.cli._print import say
from voda.domain.errors import VodaError

T = TypeVar("T")


async def each(things: Sequence[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Act on one after the other.

    Raises:
        VodaError: the last failure; those before it have been told.
    """
    failure: VodaError | None = None
    for thing in things:
        try:
            await act(thing)
        except VodaError as error:
            if failure is not None:
                say(str(failure))
            failure = error
    if failure is not None:
        raise failure

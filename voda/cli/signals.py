"""Runs a service until the process is told to end.

Rule: the first SIGINT or SIGTERM ends it in order, the second at once.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

S = TypeVar("S")


def tell(*, verbose: bool) -> None:
    """Let the service tell what happens, on standard error."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    # What the libraries underneath are about is of no interest even to those who want to know more.
    logging.getLogger("alembic").setLevel(logging.WARNING)


def with_programs(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Let jobs find `voda run` and its neighbours, after whatever the user's own path holds."""
    path = environment.get("PATH", os.defpath)
    return {**environment, "PATH": f"{path}{os.pathsep}{Path(sys.executable).parent}"}


async def until_told(
    service: AbstractAsyncContextManager[S], greet: Callable[[S], None], ending: Callable[[S], None]
) -> bool:
    """Run a service until told to end, and return whether it ended in order.

    Args:
        service: entered here.
        greet: called when it runs.
        ending: called when it is told to end.

    Raises:
        VodaError: what the service failed with.
    """
    import asyncio

    from voda.app.exception_groups import most_telling_error

    told_to_end, this = asyncio.Event(), asyncio.current_task()
    assert this is not None, "run as a task"

    def be_told() -> None:
        if told_to_end.is_set():
            this.cancel()
        told_to_end.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, be_told)
    try:
        async with service as running:
            greet(running)
            await told_to_end.wait()
            ending(running)
    except BaseExceptionGroup as failures:
        raise most_telling_error(failures) from failures
    except asyncio.CancelledError:
        return False
    return True

"""Runs the work of a command: a coroutine, or a service until a signal, with a progress bar for long work.

Rules: the first SIGINT or SIGTERM ends a service in order, the second at once. asyncio takes a tenth of the time of
`voda --help` to import, so it is imported only when something runs.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

S = TypeVar("S")


def configure_logging(*, verbose: bool) -> None:
    """Log to standard error."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    # Details of libraries do not interest even those who want to know more.
    logging.getLogger("alembic").setLevel(logging.WARNING)


def with_voda_on_path(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with voda's scripts appended to PATH, so that jobs find `voda run`."""
    path = environment.get("PATH", os.defpath)
    return {**environment, "PATH": f"{path}{os.pathsep}{Path(sys.executable).parent}"}


async def run_until_signal(
    service: AbstractAsyncContextManager[S], greet: Callable[[S], None], ending: Callable[[S], None]
) -> bool:
    """Run a service until a signal, and return whether it ended in order.

    Args:
        service: entered here.
        greet: called once it runs.
        ending: called at the first signal.

    Raises:
        VodaError: the service failed.
    """
    import asyncio

    from voda.concurrency import single_error

    is_ending, this = asyncio.Event(), asyncio.current_task()
    assert this is not None, "run as a task"

    def on_signal() -> None:
        if is_ending.is_set():
            this.cancel()
        is_ending.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        async with service as running:
            greet(running)
            await is_ending.wait()
            ending(running)
    except BaseExceptionGroup as failures:
        raise single_error(failures) from failures
    except asyncio.CancelledError:
        return False
    return True


T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result."""
    import asyncio

    return asyncio.run(work)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar while the block runs; yields a function (done, total), total 0 = unknown."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)

"""Runs a service until the process is told to end.

Rule: the first SIGINT or SIGTERM ends it in order, the second at once.
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
    """Let the service tell what happens, on standard error."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    # What the libraries underneath are about is of no interest even to those who want to know more.
    logging.getLogger("alembic").setLevel(logging.WARNING)


def with_voda_on_path(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Let jobs find `voda run` and its neighbours, after whatever the user's own path holds."""
    path = environment.get("PATH", os.defpath)
    return {**environment, "PATH": f"{path}{os.pathsep}{Path(sys.executable).parent}"}


async def run_until_signal(
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

    from voda.app.exception_groups import single

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
        raise single(failures) from failures
    except asyncio.CancelledError:
        return False
    return True


T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Return what the coroutine comes to."""
    import asyncio

    return asyncio.run(work)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while the block runs, moved by calling what it yields with (done, in all); 0 in all = unknown."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)

"""Runs the work of a command: a coroutine, or a service until a signal, with a progress bar for long work.

Rules: the first SIGINT or SIGTERM ends a service in order, the second at once. asyncio takes a tenth of the time of
`voda --help` to import, so it is imported only when something runs.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

_log = logging.getLogger(__name__)
_USUAL_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class RunningService(Protocol):
    @property
    def url(self) -> str:
        """The address to ask."""

    def description(self) -> Iterable[str]:
        """Return what a user wants to know at the start, line by line."""


S = TypeVar("S", bound=RunningService)
T = TypeVar("T")


def configure_logging(*, verbose: bool) -> None:
    """Log to standard error."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    # Who ran what beside whose job is said in any case.
    logging.getLogger("voda.audit").setLevel(logging.INFO)
    # Details of libraries do not interest even those who want to know more.
    logging.getLogger("alembic").setLevel(logging.WARNING)


def with_voda_on_path(environment: Mapping[str, str], *, is_multi_user: bool = False) -> Mapping[str, str]:
    """Return the environment with voda's scripts appended to PATH, so that jobs find `voda run`; for jobs of all users
    to the usual PATH, since that of root's shell may lead where only root may go.
    """
    path = _USUAL_PATH if is_multi_user else environment.get("PATH", os.defpath)
    return {**environment, "PATH": f"{path}{os.pathsep}{Path(sys.executable).parent}"}


def run_until_signal(service: AbstractAsyncContextManager[S], hint: str, ending: Callable[[S], None]) -> bool:
    """Run a service until a signal, and return whether it ended in order.

    `hint` tells what a signal does; `ending` is called at the first one. Raises the VodaError of a service that failed.
    """
    import uvloop

    # It answers a third more requests than asyncio's own loop.
    return uvloop.run(_run_until_signal(service, hint, ending))


async def _run_until_signal(service: AbstractAsyncContextManager[S], hint: str, ending: Callable[[S], None]) -> bool:
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
            with _whatever_becomes_of_the_output():
                _greet(running, hint)
            await is_ending.wait()
            with _whatever_becomes_of_the_output():
                ending(running)
    except BaseExceptionGroup as failures:
        raise single_error(failures) from failures
    except asyncio.CancelledError:
        return False
    return True


@contextmanager
def _whatever_becomes_of_the_output() -> Iterator[None]:
    """Go on where nothing can be printed, as on a full disk: it serves all the same."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        _log.warning("the output cannot be written: %s", error.strerror or error)


def _greet(service: RunningService, hint: str) -> None:
    from rich.console import Console

    from voda import __version__

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]voda {__version__}[/bold] serves {service.url}")
    for line in service.description():
        console.print(f"  {line}", markup=False)
    console.print(hint)


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

"""The random user from the command line: `python -m tests.monkey --seed 3 --steps 1000`, or `make monkey`.

Rule: exit status 0 means that nothing was wrong with any seed, 1 that something was, which is told.
"""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.kube.peers.cluster import cluster_of_all_kinds
from tests.monkey.run import running
from voda.cli.command_group import built, command
from voda.cli.parameters import Option
from voda.clock import stopwatch

_console: Final = Console(highlight=False, soft_wrap=True)


@command("tests.monkey")
def main(
    seed: Annotated[int, Option(min=0, help="The first seed.")] = 1,
    seeds: Annotated[int, Option(min=1, help="How many seeds, each on an empty cluster.")] = 1,
    steps: Annotated[int, Option(min=1, help="Steps of each seed.")] = 100,
    claims: Annotated[bool, Option("--claims", help="GPUs are devices that jobs claim.")] = False,
    keep: Annotated[bool, Option("--keep", help="Keep the logs also where nothing was wrong.")] = False,
) -> None:
    """Let a random user and random faults loose on a real Kubernetes.

    Example: python -m tests.monkey --seed 3 --steps 200
    """
    failed = [number for number in range(seed, seed + seeds) if not _run(number, steps, claims, keep)]
    if failed:
        how = " --claims" if claims else ""
        _console.print(f"failed: {', '.join(f'--seed {number} --steps {steps}{how}' for number in failed)}")
    sys.exit(1 if failed else 0)


def _run(seed: int, steps: int, claims: bool, keep: bool) -> bool:
    """Run one seed, and say whether all was well; the log stays where it was not."""
    folder, laps = Path(tempfile.mkdtemp(prefix=f"voda-monkey-{seed}-")), list[float]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=_console) as progress:
        task = progress.add_task(f"seed {seed}, steps", total=steps)
        try:
            with stopwatch(laps):
                asyncio.run(_steps(folder, seed, steps, claims, lambda done: progress.update(task, completed=done)))
        except (AssertionError, ExceptionGroup) as error:
            progress.console.print(error, markup=False)
            return False
    _console.print(f"seed {seed}: {steps} steps in {laps[0]:.0f} s, nothing was wrong")
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return True


async def _steps(folder: Path, seed: int, count: int, claims: bool, progress: Callable[[int], None]) -> None:
    with cluster_of_all_kinds() as cluster:
        async with running(cluster, folder, seed, has_claims=claims) as run:
            await run.go(count, progress)


if __name__ == "__main__":
    built(main, "tests.monkey")(prog_name="python -m tests.monkey")

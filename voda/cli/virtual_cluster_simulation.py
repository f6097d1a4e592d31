"""`voda simulate --virtual-clusters FILE`: one cluster that virtual clusters share, and their private clusters."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from voda.cli.execution import run_async
from voda.cli.log_files import print_json
from voda.cli.parameters import Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.domain.cells import CellsSpec
    from voda.simulator.engine import SimulationOptions
    from voda.simulator.virtual_clusters.experiment import Finished, ModeRun
    from voda.simulator.virtual_clusters.modes import Mode, SharedWorkload
    from voda.simulator.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualClusterArguments:
    virtual_clusters: Annotated[
        Path | None, Option(metavar="FILE", help="Share the cluster among these (docs/virtual-clusters.md).")
    ] = None
    private: Annotated[
        bool, Option("--private", help="Simulate each one's private cluster too, and count whom sharing delays.")
    ] = False
    mode: Annotated[
        list[str] | None, Option(help="numbers, cells, cells-lent or cells-elastic; repeatable; all if none is named.")
    ] = None


def simulate_virtual_clusters(  # noqa: PLR0913 - what a simulation is made of, and where it goes
    workload: "Workload",
    policies: Sequence[str],
    options: "SimulationOptions",
    chosen: VirtualClusterArguments,
    *,
    out: Path | None,
    as_json: bool,
) -> None:
    """Simulate the modes of sharing under each policy, and print what they give each virtual cluster."""
    from rich.console import Console

    from voda.simulator.virtual_clusters.experiment import figures
    from voda.simulator.virtual_clusters.modes import shared_workload
    from voda.simulator.virtual_clusters.page import SharingFigures, write_page
    from voda.simulator.virtual_clusters.report import tables

    assert chosen.virtual_clusters is not None, "the file is what makes it such a simulation"
    shared = shared_workload(workload, _read(chosen.virtual_clusters))
    modes = _modes(chosen)
    runs = [_run(shared, modes, options, policy) for policy in policies]
    ratelimit_s = options.settings.ratelimit_s
    results = SharingFigures(
        workload=workload.name,
        virtual_clusters=[
            figures(shared, of_policy, policy=policy, ratelimit_s=ratelimit_s)
            for policy, of_policy in zip(policies, runs, strict=True)
        ],
    )
    command = shlex.join(["voda", *sys.argv[1:]])
    page = write_page(out, shared, results, runs, command=command) if out else None
    if as_json:
        print_json(results)
        return
    console = Console()
    console.print(tables(results.virtual_clusters))
    if page is not None:
        console.print(f"Pictures: {page}", soft_wrap=True, highlight=False)


def _read(path: Path) -> "CellsSpec":
    from voda.manifests.virtual_clusters import read_virtual_clusters

    try:
        body = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return read_virtual_clusters(body).cells
    except InvalidInput as error:
        raise InvalidInput(f"{path}, {error}") from error


def _modes(chosen: VirtualClusterArguments) -> "Sequence[Mode]":
    """Return the modes in the order in which they are simulated and shown."""
    from voda.simulator.virtual_clusters.modes import BASELINES

    names = set(chosen.mode or BASELINES)
    if unknown := sorted(names - set(BASELINES)):
        raise InvalidInput(f"--mode {unknown[0][:40]}: expected {', '.join(BASELINES)}")
    shared = [mode for mode in BASELINES if mode in names]
    if not chosen.private:
        return shared
    modes: list[Mode] = []
    for mode in shared:
        modes += [each for each in (BASELINES[mode], mode) if each not in modes]
    return modes


def _run(
    shared: "SharedWorkload", modes: "Sequence[Mode]", options: "SimulationOptions", policy: str
) -> "Sequence[ModeRun]":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from voda.simulator.virtual_clusters.experiment import run_modes

    columns = (TextColumn("{task.description:<30}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:

        def started(mode: "Mode") -> "Finished":
            task = progress.add_task(f"{policy} {mode}", total=len(shared.workload.arrivals))
            return lambda finished: progress.update(task, completed=finished)

        return run_async(run_modes(shared, modes, options, policy=policy, progress=started))

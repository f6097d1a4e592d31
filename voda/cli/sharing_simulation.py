"""`voda simulate --workload openb/...`: raters of shared GPUs compared, instead of policies."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from voda.cli.log_files import print_json
from voda.cli.parameters import Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.sharing.raters import Rater
    from voda.simulator.sharing.experiment import OnArrival, SharingRun
    from voda.simulator.sharing.openb import OpenbList

FAMILY = "openb"
PUBLISHED = "42-51"


def is_sharing(workload: str) -> bool:
    """Return whether a workload's pods share GPUs."""
    return workload.partition("/")[0] == FAMILY


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingArguments:
    rater: Annotated[list[str] | None, Option(help="openb: which rater; repeatable; fgd if none is named.")] = None
    seeds: Annotated[str, Option(metavar="N-M,...", help="openb: orders of arrival; 42-51 are the published.")] = ""


def simulate_sharing(
    workload: str, chosen: SharingArguments, *, data: Path | None, out: Path | None, as_json: bool
) -> None:
    """Run raters on a list of pods, and print what each left unallocated."""
    from rich.console import Console

    from voda.sharing.raters import RATERS
    from voda.simulator.sharing.compare import parse_seeds
    from voda.simulator.sharing.openb import LISTS, load_list
    from voda.simulator.sharing.page import results_of, write_page
    from voda.simulator.sharing.report import sharing_table

    name = workload.partition("/")[2]
    if name not in LISTS:
        raise InvalidInput(f"there is no workload {workload[:60]!r}: expected {', '.join(f'openb/{x}' for x in LISTS)}")
    raters = [RATERS.choose(rater) for rater in dict.fromkeys(chosen.rater or ("fgd",))]
    numbers = parse_seeds(chosen.seeds or PUBLISHED)
    runs = _run(load_list(name, data), raters, numbers)
    results = results_of(runs)
    page = write_page(out, results, shlex.join(["voda", *sys.argv[1:]])) if out else None
    if as_json:
        print_json(results)
        return
    console = Console()
    console.print(sharing_table(results.means, workload, len(numbers)))
    if page is not None:
        console.print(f"Pictures: {page}", soft_wrap=True, highlight=False)


def _run(workload: "OpenbList", raters: "Sequence[Rater]", seeds: Sequence[int]) -> "Sequence[SharingRun]":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from voda.simulator.sharing.compare import compare

    columns = (TextColumn("{task.description:<18}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
        total = len(workload.arrivals(seeds[0]).pods)
        bars = {rater.name: progress.add_task(rater.name, total=total * len(seeds)) for rater in raters}
        arrived = dict.fromkeys(bars, 0)

        def started(rater: str, _: int) -> "OnArrival":
            before = arrived[rater]

            def heard(number: int, _: object) -> None:
                arrived[rater] = before + number
                progress.update(bars[rater], completed=arrived[rater])

            return heard

        return compare(workload, raters, seeds, progress=started if not progress.disable else None)

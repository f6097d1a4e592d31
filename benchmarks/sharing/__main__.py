"""`python -m benchmarks.sharing LIST`: raters of shared GPUs compared on production pods of Alibaba."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from benchmarks.sharing.compare import compare, parse_seeds
from benchmarks.sharing.experiment import OnArrival, SharingRun
from benchmarks.sharing.openb import LISTS, OpenbList, load_list
from benchmarks.sharing.page import results_of, write_page
from benchmarks.sharing.report import sharing_table
from voda.cli.log_files import print_json
from voda.domain.errors import VodaError
from voda.sharing.rating.raters import RATERS, Rater

_PUBLISHED = "42-51"


def main(arguments: Sequence[str]) -> int:
    """Run raters on a list of pods, and print what each left unallocated."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharing", description=main.__doc__)
    parser.add_argument("list", choices=LISTS)
    parser.add_argument("--rater", action="append", help="repeatable; fgd if none is named")
    parser.add_argument("--seeds", default=_PUBLISHED, help="orders of arrival, N-M,...; 42-51 are the published")
    parser.add_argument("--data", type=Path, help="folder of the public data sets")
    parser.add_argument("--out", type=Path, help="folder for a page with the curves")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    chosen = parser.parse_args(arguments)
    try:
        raters = [RATERS.choose(rater) for rater in dict.fromkeys(chosen.rater or ("fgd",))]
        seeds = parse_seeds(chosen.seeds)
        results = results_of(_run(load_list(chosen.list, chosen.data), raters, seeds))
        if chosen.out:
            print(write_page(chosen.out, results, shlex.join(["python", "-m", "benchmarks.sharing", *arguments])))
    except VodaError as error:
        parser.error(str(error))
    if chosen.json:
        print_json(results)
    else:
        Console().print(sharing_table(results.means, chosen.list, len(seeds)))
    return 0


def _run(workload: OpenbList, raters: Sequence[Rater], seeds: Sequence[int]) -> Sequence[SharingRun]:
    columns = (TextColumn("{task.description:<18}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
        total = len(workload.arrivals(seeds[0]).pods)
        bars = {rater.name: progress.add_task(rater.name, total=total * len(seeds)) for rater in raters}
        arrived = dict.fromkeys(bars, 0)

        def started(rater: str, _: int) -> OnArrival:
            before = arrived[rater]

            def heard(number: int, _: object) -> None:
                arrived[rater] = before + number
                progress.update(bars[rater], completed=arrived[rater])

            return heard

        return compare(workload, raters, seeds, progress=started if not progress.disable else None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

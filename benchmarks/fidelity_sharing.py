"""Part (c) of `make fidelity`: FGD and the raters it was compared with, against the published runs, column by column.

Rule: every figure of every deterministic rater is within 0.01 points; Random within its spread over the seeds.
"""

import csv
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Final

from msgspec import Struct
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.sharing.baselines import BestFit, DotProduct, GpuClustering, GpuPacking
from benchmarks.sharing.experiment import SharingRun, simulate
from benchmarks.sharing.openb import LISTS, OPENB, PUBLISHED_SEEDS, load_list
from voda.sharing.rating.pod import PodPlacement
from voda.sharing.rating.raters import RATERS, Rater
from voda.simulator.data import find_folder

MOST_POINTS: Final = 0.01
"""Between a figure of ours and the published one, which is rounded to 0.01."""
POLICIES: Final = ("FGD", "BestFit", "DotProd", "GpuPacking", "GpuClustering")
VARIANT_SEEDS: Final = (42, 51)
"""Of the lists other than the default."""
_ROUNDING: Final = 1e-9
_SPREADS: Final = 3.0


class SharingCase(Struct, frozen=True, kw_only=True):
    """One published run."""

    workload: str
    policy: str
    seed: int


def cases() -> Iterator[SharingCase]:
    """Yield the published runs that are repeated."""
    for workload in LISTS:
        for policy in POLICIES:
            for seed in PUBLISHED_SEEDS if workload == "default" else VARIANT_SEEDS:
                yield SharingCase(workload=workload, policy=policy, seed=seed)


def rater_of(policy: str) -> Rater:
    """Return a new rater by its published name."""
    others: Mapping[str, type[Rater]] = {each.name: each for each in (BestFit, DotProduct, GpuPacking, GpuClustering)}
    return others[policy]() if policy in others else RATERS[policy.lower()]


def repeat(case: SharingCase, data: Path | None = None, *, until: float = 1_000.0) -> SharingRun:
    """Run a published run anew, up to a load in percent."""
    rater = rater_of(case.policy)
    remember = partial(_remember, rater) if isinstance(rater, GpuClustering) else None
    return simulate(load_list(case.workload, data), rater, case.seed, until=until, on_arrival=remember)


def _remember(rater: GpuClustering, _: int, placement: PodPlacement | None) -> None:
    if placement is not None:
        rater.placed(placement)


def published(data: Path | None = None) -> Mapping[SharingCase, Mapping[str, float]]:
    """Return the columns of every published run: alloc_100 is what is allocated at a load of 100 %."""
    with (find_folder(OPENB, data) / "results-per-seed.csv").open(newline="", encoding="utf-8") as file:
        return {
            SharingCase(workload=row.pop("workload"), policy=row.pop("policy"), seed=int(row.pop("seed"))): {
                column: float(value) for column, value in row.items()
            }
            for row in csv.DictReader(file)
        }


def differences(run: SharingRun, columns: Mapping[str, float]) -> Mapping[str, float]:
    """Return column -> points by which ours differs; columns of loads that were not reached are left out."""
    answer: dict[str, float] = {}
    for column, value in columns.items():
        what, load = column.split("_")
        point = next((point for point in run.points if point.load == int(load)), None)
        if point is not None and int(load) < run.points[-1].load + (run.points[-1].load >= 130):
            answer[column] = abs((100.0 - point.unallocated if what == "alloc" else point.fragment) - value)
    return answer


def print_report(data: Path | None = None) -> bool:
    """Print the largest difference of each list and rater; return whether all are small enough."""
    table = Table(title="Shared GPUs: published runs of FGD's authors, repeated", title_justify="left")
    for head in ("list", "rater", "runs", "columns", "largest difference", "goal"):
        table.add_column(head, justify="left" if head in {"list", "rater"} else "right")
    expected, worst = published(data), dict[tuple[str, str], list[float]]()
    for case in track(list(cases()), description="shared GPUs", console=Console(stderr=True), transient=True):
        worst.setdefault((case.workload, case.policy), []).extend(
            differences(repeat(case, data), expected[case]).values()
        )
    for (workload, policy), found in worst.items():
        runs = len(PUBLISHED_SEEDS if workload == "default" else VARIANT_SEEDS)
        table.add_row(workload, policy, str(runs), str(len(found)), f"{max(found):.4f} points", f"<= {MOST_POINTS}")
    console = Console()
    console.print(table)
    is_random_near = _print_random(console, expected, data)
    return all(max(found) <= MOST_POINTS + _ROUNDING for found in worst.values()) and is_random_near


def _print_random(console: Console, expected: Mapping[SharingCase, Mapping[str, float]], data: Path | None) -> bool:
    """Print what our Random leaves, and return whether it is within three standard deviations of the published mean."""
    named = [case for case in expected if (case.workload, case.policy) == ("default", "Random")]
    theirs = [100.0 - expected[case]["alloc_100"] for case in named]
    ours = [repeat(case, data).at(100).unallocated for case in named[:2]]
    spread = stdev(theirs)
    console.print(
        f"Random, default: {fmean(ours):.2f} % unallocated at a load of 100 %; published {fmean(theirs):.2f} %,"
        f" standard deviation {spread:.2f}",
        soft_wrap=True,
        highlight=False,
    )
    return all(abs(one - fmean(theirs)) <= _SPREADS * spread for one in ours)


if __name__ == "__main__":
    raise SystemExit(0 if print_report() else 1)

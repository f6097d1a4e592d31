"""`python -m benchmarks quality`: how well policies schedule public workloads, against the best of the other policies.

Rules: every run of a workload has the same jobs, cluster and seed; figures of a family of workloads (`pollux`,
`pollux-2x`) are means over its workloads, the worst rho is the largest; options vary all workloads alike. Without
options: the new policy and the others, on five Pollux workloads of each load, which takes about ten minutes on one
core. Several placers are also shown side by side, workload by workload.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.quality_pictures import NEW, write_pictures
from benchmarks.variations import Variation, varied
from voda.domain.errors import VodaError
from voda.policies import POLICIES
from voda.simulator.compare import ComparedRun, compare, contestants
from voda.simulator.engine import SimulationOptions
from voda.simulator.metrics import RunResult
from voda.simulator.workload import Workload
from voda.simulator.workloads.catalogue import load_workload
from voda.simulator.workloads.request import WorkloadOptions, parse_nodes

WORKLOADS: Final = tuple(f"{load}/workload-{number}" for load in ("pollux", "pollux-2x") for number in (1, 3, 4, 6, 8))
_S_PER_H: Final = 3600.0
_NAMES: Final = ("workloads", "policy", "placer")
_HEADS: Final = ("avg JCT s", "ratio", "unfair %", "worst rho", "restarts", "makespan h")


class Figures(Struct, frozen=True, kw_only=True):
    """One policy and placer on the workloads of one family."""

    family: str
    workloads: int
    policy: str
    placer: str
    avg_jct_s: float
    jct_to_best: float
    """Its mean completion time over the shortest one of the other policies in the same runs."""
    unfair_share: float
    """Of all jobs; 0 to 1."""
    worst_rho: float
    restarts_per_job: float
    makespan_h: float


def summarise(results: Sequence[RunResult]) -> Sequence[Figures]:
    """Return the figures of every family, policy and placer, in the order of the results."""
    groups: dict[tuple[str, str, str], list[RunResult]] = {}
    for result in results:
        family = result.workload.partition("/")[0]
        groups.setdefault((family, result.policy, result.placer), []).append(result)
    means = {key: fmean(each.avg_jct_s for each in group) for key, group in groups.items()}
    best: dict[str, float] = {}
    for (family, policy, _), mean_s in means.items():
        if policy.partition(",")[0] != NEW:
            best[family] = min(mean_s, best.get(family, mean_s))
    return [
        Figures(
            family=key[0],
            workloads=len(group),
            policy=key[1],
            placer=key[2],
            avg_jct_s=means[key],
            jct_to_best=means[key] / best.get(key[0], means[key]),
            unfair_share=fmean(each.unfair_share for each in group),
            worst_rho=max(each.worst_rho for each in group),
            restarts_per_job=fmean(each.restarts_per_job for each in group),
            makespan_h=fmean(each.makespan_s for each in group) / _S_PER_H,
        )
        for key, group in groups.items()
    ]


def table(figures: Sequence[Figures], variation: str = "") -> Table:
    """Return the figures for people; the ratio is to the best of the other policies."""
    title = "mean completion times, fairness and restarts" + (f"; {variation}" if variation else "")
    shown = Table(title=title, title_justify="left", pad_edge=False)
    for head in _NAMES:
        shown.add_column(head)
    for head in _HEADS:
        shown.add_column(head, justify="right")
    for each in figures:
        shown.add_row(*_cells(each))
    return shown


def _cells(each: Figures) -> tuple[str, ...]:
    return (
        f"{each.family} ({each.workloads})",
        each.policy,
        each.placer,
        f"{each.avg_jct_s:,.0f}",
        f"{each.jct_to_best:.2f}",
        f"{100 * each.unfair_share:.0f}",
        f"{each.worst_rho:.1f}",
        f"{each.restarts_per_job:.1f}",
        f"{each.makespan_h:.1f}",
    )


def side_by_side(results: Sequence[RunResult]) -> Table:
    """Return average JCT, restarts a job and makespan of every placer, for each workload and policy."""
    placers = [*dict.fromkeys(each.placer for each in results)]
    shown = Table(title="placers: avg JCT s, restarts a job, makespan h", title_justify="left", pad_edge=False)
    for head in ("workload", "policy"):
        shown.add_column(head)
    for placer in placers:
        shown.add_column(placer, justify="right")
    found = {(each.workload, each.policy, each.placer): each for each in results}
    for workload, policy in dict.fromkeys((each.workload, each.policy) for each in results):
        runs = [found[workload, policy, placer] for placer in placers]
        cells = (f"{run.avg_jct_s:,.0f} {run.restarts_per_job:.2f} {run.makespan_s / _S_PER_H:.1f}" for run in runs)
        shown.add_row(workload, policy, *cells)
    return shown


class Measured(NamedTuple):
    """One run of a workload."""

    result: RunResult
    jct_s: Sequence[float]
    """Completion times of its jobs."""


async def measured(
    workloads: Sequence[str], runs: Sequence[ComparedRun], load: Callable[[str], Workload], *, seed: int
) -> Sequence[Measured]:
    """Run all workloads once for each policy and placer, and tell standard error how far it is."""
    results: list[Measured] = []
    for number, name in enumerate(workloads, start=1):
        workload = load(name)
        for run in runs:
            print(f"{number} of {len(workloads)}: {name}, {run.title}, {run.placer} ...", file=sys.stderr, flush=True)
            (outcome,) = await compare(workload, [run], SimulationOptions(seed=seed))
            if outcome.unfinished:
                print(f"{name}, {run.title}: {len(outcome.unfinished)} jobs did not end", file=sys.stderr, flush=True)
            ended = [job.jct_s for job in outcome.history.finished if job.outcome == "completed"]
            results.append(Measured(outcome.result, ended))
    return results


def draw(folder: Path, runs: Sequence[Measured], *, are_varied: bool) -> Sequence[Path]:
    """Write the pictures of every family of workloads; of several placers, each policy has the first one."""
    figures = summarise([run.result for run in runs])
    paths: list[Path] = []
    for family in dict.fromkeys(each.family for each in figures):
        placers = {each.policy: each.placer for each in reversed(figures) if each.family == family}
        jct_s: dict[str, list[float]] = {policy: [] for policy in placers}
        for result, seconds in runs:
            if result.workload.partition("/")[0] == family and placers[result.policy] == result.placer:
                jct_s[result.policy] += seconds
        unfair = {
            each.policy: each.unfair_share
            for each in figures
            if each.family == family and each.placer == placers[each.policy]
        }
        names = {run.result.workload for run in runs if run.result.workload.startswith(f"{family}/")}
        has_published = not are_varied and names == {name for name in WORKLOADS if name.startswith(f"{family}/")}
        paths += write_pictures(folder, family, jct_s, unfair, has_published=has_published)
    return paths


def main(arguments: Sequence[str]) -> None:
    """Print the figures of the workloads and policies that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks quality", description="How well policies schedule.")
    parser.add_argument("-w", "--workload", action="append", help="repeatable; five of each load of Pollux by default")
    parser.add_argument("-p", "--policy", action="append", help="repeatable, NAME[:PARAMETER=VALUE,...]; default: all")
    parser.add_argument("--placer", action="append", help="repeatable; default: packed")
    parser.add_argument("--lengths-unknown", action="store_true", help="jobs do not declare their epochs")
    parser.add_argument("--sigma", type=float, default=0.0, help="epochs are drawn, lognormal around the workload's")
    parser.add_argument("--without-categories", action="store_true", help="every job is the only one of its kind")
    parser.add_argument("--powers-of-two", action="store_true", help="jobs run at 1, 2, 4, 8, ... replicas alone")
    parser.add_argument("--nodes", help="cluster such as 8x8 or 4x8,8x4; default: that of the workload")
    parser.add_argument("--jobs", type=int, default=0, help="of traces and poisson; default: all")
    parser.add_argument("--pictures", type=Path, help="folder for pictures, as SVG files")
    parser.add_argument("--data", type=Path, help="folder of the public data sets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    given = parser.parse_args(arguments)
    variation = Variation(
        sigma=given.sigma,
        lengths_unknown=given.lengths_unknown,
        without_categories=given.without_categories,
        powers_of_two=given.powers_of_two,
    )

    def load(name: str) -> Workload:
        nodes, options = parse_nodes(given.nodes) if given.nodes else None, WorkloadOptions(jobs=given.jobs)
        workload = load_workload(name, data=given.data, nodes=nodes, seed=given.seed, options=options)
        return varied(workload, variation, given.seed)

    try:
        runs = contestants(policies=given.policy or list(POLICIES), placers=given.placer or ["packed"])
        measurements = asyncio.run(measured(given.workload or WORKLOADS, runs, load, seed=given.seed))
    except VodaError as error:
        sys.exit(str(error))
    results = [run.result for run in measurements]
    figures = summarise(results)
    if given.pictures is not None:
        draw(given.pictures, measurements, are_varied=bool(variation.name or given.nodes or given.jobs))
    if given.output == "json":
        document: Mapping[str, object] = {"figures": figures, "runs": results}
        print(msgspec.json.format(msgspec.json.encode(document)).decode())
    else:
        Console().print(table(figures, variation.name))
        if len({each.placer for each in results}) > 1:
            Console().print(side_by_side(results))

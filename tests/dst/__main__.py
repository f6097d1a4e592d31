"""Deterministic simulation testing from the command line: `python -m tests.dst --seeds 1000`, or `make dst`.

Rule: exit status 0 means that every invariant held in every seed, 1 that one was broken (the story is told then), or
that nothing happened by which one could be.
"""

import sys
from contextlib import closing
from typing import Annotated, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tests.dst.mutations import MUTATIONS, without
from tests.dst.search import Plan, Totals, search
from tests.dst.shrink import shrunk
from tests.dst.story import story
from tests.dst.trial import Trial, Verdict, trial_of, tried
from voda.cli.command_group import built, command
from voda.cli.parameters import Option
from voda.clock import stopwatch

_console: Final = Console(highlight=False, soft_wrap=True)


@command("tests.dst")
def main(  # noqa: PLR0913 - a command line
    seeds: Annotated[int, Option(min=1, help="How many seeds to try.")] = 200,
    first: Annotated[int, Option("--from", min=0, help="The first of them.")] = 0,
    seed: Annotated[int | None, Option(min=0, help="Try this one alone, and tell its story.")] = None,
    hours: Annotated[float, Option(min=0.1, help="Virtual hours of each seed, without the quiet ones.")] = 2.0,
    quiet_hours: Annotated[float, Option(min=0.1, help="In which all jobs have to end.")] = 3.0,
    jobs: Annotated[int, Option(min=1, help="Processes.")] = 2,
    mutation: Annotated[str, Option("--without", help=f"Switch off: {', '.join(MUTATIONS)}.")] = "",
    keep_going: Annotated[bool, Option("--keep-going", help="Try all seeds, whatever is found.")] = False,
    shrink_runs: Annotated[int, Option(min=0, help="Most runs to shorten a story.")] = 200,
    full: Annotated[bool, Option("--full", help="Tell the seed as it was drawn, without shortening it.")] = False,
) -> None:
    """Try seeds until an invariant breaks, and tell the shortest story of it."""
    if mutation and mutation not in MUTATIONS:
        raise click.BadParameter(f"expected one of {', '.join(MUTATIONS)}, got {mutation}", param_hint="--without")
    plan = Plan(hours=hours + quiet_hours, quiet_s=quiet_hours * 3600, mutation=mutation)
    if seed is not None:
        sys.exit(_tell(seed, plan, most_runs=0 if full else shrink_runs, is_full=full))
    totals = _search(range(first, first + seeds), plan, jobs=jobs, keep_going=keep_going)
    if not totals.failed:
        sys.exit(_refuse_idle(totals))
    worst = min(totals.failed, key=lambda failed: failed.seed)
    sys.exit(_tell(worst.seed, plan, most_runs=shrink_runs, is_full=False))


def _search(seeds: range, plan: Plan, *, jobs: int, keep_going: bool) -> Totals:
    totals = Totals()
    laps: list[float] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with stopwatch(laps), Progress(*columns, TimeRemainingColumn(), console=_console) as progress:
        task = progress.add_task("seeds", total=len(seeds))
        with closing(search(seeds, plan, jobs=jobs)) as found:
            for one in found:
                totals.add(one)
                progress.update(task, advance=1, description=f"seeds, {totals.virtual_s / 3600:,.0f} hours")
                if one.breach:
                    progress.console.print(f"seed {one.seed}: {one.breach}", markup=False)
                    if not keep_going:
                        break
    _console.print(_summary(totals, laps[0]))
    return totals


def _refuse_idle(totals: Totals) -> int:
    """Return the exit status of a search in which all held: where nothing was promised, nothing was proven."""
    if totals.acknowledged and totals.faults:
        return 0
    _console.print(f"nothing was proven: {totals.acknowledged} requests acknowledged, {totals.faults.total()} faults")
    return 1


def _summary(totals: Totals, wall_s: float) -> Table:
    table = Table(show_header=False, box=None)
    hours = totals.virtual_s / 3600
    injected = ", ".join(f"{kind} {count:,}" for kind, count in sorted(totals.faults.items()))
    asked = f"{totals.requests:,} requests of users ({totals.acknowledged:,} acknowledged)"
    rows = {
        "seeds": f"{totals.seeds:,}, of which {len(totals.failed)} broke an invariant",
        "simulated": f"{hours:,.0f} hours in {wall_s:.1f} s: {hours / wall_s * 60:,.0f} hours per minute",
        "happened": f"{totals.jobs:,} jobs, {asked}, {totals.events:,} events in the log",
        "injected": f"{totals.faults.total():,} faults: {injected}",
    }
    for name, told in rows.items():
        table.add_row(name, told)
    return table


def _tell(seed: int, plan: Plan, *, most_runs: int, is_full: bool) -> int:
    with without(plan.mutation):
        trial = trial_of(seed, hours=plan.hours, quiet_s=plan.quiet_s)
        verdict = tried(trial)
        if not verdict.breach:
            told = f"{verdict.at_s / 3600:.1f} hours, {verdict.events:,} events, {verdict.jobs} jobs"
            _console.print(f"seed {seed}: every invariant held ({told}; digest {verdict.digest[:16]})")
            if is_full:
                _console.print("\n".join(verdict.trace), markup=False)
            return 0
        if most_runs:
            trial, verdict = _shrink(trial, verdict, most_runs)
    options = f"--hours {(plan.hours * 3600 - plan.quiet_s) / 3600:g} --quiet-hours {plan.quiet_s / 3600:g}"
    mutated = f" --without {plan.mutation}" if plan.mutation else ""
    command = f"again: .venv/bin/python -m tests.dst --seed {seed} {options}{mutated}"
    _console.print(story(trial, verdict, command=command), markup=False)
    return 1


def _shrink(trial: Trial, verdict: Verdict, most_runs: int) -> tuple[Trial, Verdict]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_console, transient=True) as progress:
        task = progress.add_task("looking for the shortest story", total=most_runs)

        def run(candidate: Trial) -> Verdict:
            progress.update(task, advance=1)
            return tried(candidate)

        return shrunk(trial, verdict, run, most_runs=most_runs)


if __name__ == "__main__":
    built(main, "tests.dst")(prog_name="voda-dst")

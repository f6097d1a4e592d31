"""Fidelity (a): the rules of the Pollux paper's simulator, run in ours, against the results its authors published.

Rule: only the two policies, the placer and the rounding of the clock are the peer's; every decision goes through the
product's log, controller, planner, reconciler and simulated cluster, and job completion times are read off the log.
`python -m benchmarks.fidelity_peer` prints the table.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.peer.jobs import PeerJobs
from benchmarks.peer.optimus import PeerOptimus
from benchmarks.peer.placer import PeerPlacer, PeerPolicy
from benchmarks.peer.tick import TICK_S, whole_second_ends
from benchmarks.peer.tiresias import PeerTiresias
from voda.controller.follower import catch_up
from voda.domain.settings import Settings
from voda.projections.history import History
from voda.simulator.data import POLLUX, find_folder
from voda.simulator.engine import Simulation, SimulationOptions, SimulationRun
from voda.simulator.workloads.catalogue import load_workload

WORKLOADS: Final = (1, 3, 4, 6, 8)
LOADS: Final = (1, 2)
POLICIES: Final[Mapping[str, Callable[[PeerJobs], PeerPolicy]]] = {"tiresias": PeerTiresias, "optimus": PeerOptimus}
MOST_DEVIATION: Final = 0.005
"""Of an average from the published one, as a share."""
_FAMILY: Final = {1: "pollux", 2: "pollux-2x"}


class Case(Struct, frozen=True, kw_only=True):
    """One run that was published."""

    workload: int
    load: int
    """1 = 160 jobs in 8 hours, 2 = 320."""
    policy: str


class Comparison(Struct, frozen=True, kw_only=True):
    """One case: what was published and what we get."""

    case: Case
    published_s: float
    """Average job completion time, as printed."""
    ours_s: float
    jobs: int
    exact: int
    """Jobs whose completion time is the published one, to the second."""

    @property
    def deviation(self) -> float:
        """Signed share by which our average is above the published one."""
        return self.ours_s / self.published_s - 1.0

    @property
    def is_met(self) -> bool:
        """Whether the average is close enough."""
        return abs(self.deviation) <= MOST_DEVIATION


def cases() -> tuple[Case, ...]:
    """Return every case, in the order of the table."""
    return tuple(
        Case(workload=workload, load=load, policy=policy)
        for load in LOADS
        for workload in WORKLOADS
        for policy in POLICIES
    )


def run(
    chosen: Sequence[Case] | None = None, *, data: Path | None = None, progress: Callable[[], None] = lambda: None
) -> tuple[Comparison, ...]:
    """Run the cases one after the other.

    Args:
        chosen: None = all.
        data: folder of the public data sets; None = found as by voda itself.
        progress: called once for every case that is done.

    Raises:
        DataNotFound: the public data are not on this machine.
    """
    rows: list[Comparison] = []
    for case in cases() if chosen is None else chosen:
        rows.append(compare(case, data))
        progress()
    return tuple(rows)


def print_report(data: Path | None = None) -> bool:
    """Run all cases, print the table, and return whether every average is close enough."""
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("published runs", total=len(cases()))
        rows = run(data=data, progress=lambda: bar.advance(task))
    console.print(_table(rows))
    worst = max(abs(row.deviation) for row in rows)
    exact, jobs = sum(row.exact for row in rows), sum(row.jobs for row in rows)
    console.print(
        f"{exact} of {jobs} jobs to the second; averages off by at most {worst:.3%} (goal: {MOST_DEVIATION:.1%})",
        highlight=False,
        soft_wrap=True,
    )
    return all(row.is_met for row in rows)


def compare(case: Case, data: Path | None = None) -> Comparison:
    """Run one case and compare every job."""
    ours_s = asyncio.run(completion_times(case, data))
    published_s, average_s = published(case, data)
    return Comparison(
        case=case,
        published_s=average_s,
        ours_s=sum(ours_s.values()) / len(published_s),
        jobs=len(published_s),
        exact=sum(ours_s.get(job_id) == jct_s for job_id, jct_s in published_s.items()),
    )


async def completion_times(case: Case, data: Path | None = None) -> Mapping[str, int]:
    """Run one case; return job id -> whole seconds from submission to completion."""
    ran = await peer_run(case, data)
    history = History()
    await catch_up(ran.store, [], after=0, on_event=history.apply)
    # The log dates an end that the peer rounds onto a tick one microsecond later, see benchmarks/peer/tick.py.
    return {job.job_id: round(job.jct_s) for job in history.finished}


async def peer_run(case: Case, data: Path | None = None) -> SimulationRun:
    """Run one case in our simulator, under the peer's rules."""
    workload = load_workload(f"{_FAMILY[case.load]}/workload-{case.workload}", data=data)
    policy = POLICIES[case.policy](PeerJobs(workload))
    options = SimulationOptions(
        settings=Settings(policy=policy.name, placer=PeerPlacer.name, ratelimit_s=0.0, heeds_resize_cost=False),
        tick_s=TICK_S,
        end_of=whole_second_ends(workload.begins_at),
    )
    placer = PeerPlacer(policy)
    return await Simulation(workload, options, policies=lambda _: policy, placers=lambda _: placer).run()


def published(case: Case, data: Path | None = None) -> tuple[Mapping[str, int], float]:
    """Return the authors' results: job id -> seconds, and the average they print."""
    path = find_folder(POLLUX, data) / "results-published" / f"{case.policy}-{case.load}.0.json"
    summary = json.loads(path.read_bytes())
    name = f"workload-{case.workload}"
    return summary["jcts"][name], float(summary["avgs"][name])


def _table(rows: Sequence[Comparison]) -> Table:
    table = Table(title="Average JCT in s, published and by the same rules in our simulator")
    for heading in ("workload", "load", "policy"):
        table.add_column(heading, no_wrap=True)
    for heading in ("published", "ours", "off by", "exact jobs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for before, row in zip((None, *rows), rows, strict=False):
        if before is not None and before.case.load != row.case.load:
            table.add_section()
        table.add_row(
            f"{row.case.workload}",
            f"{row.case.load}x",
            row.case.policy,
            f"{row.published_s:.2f}",
            f"{row.ours_s:.2f}",
            f"{row.deviation:+.3%}",
            f"{row.exact}/{row.jobs}",
            style=None if row.is_met else "red",
        )
    return table


if __name__ == "__main__":
    raise SystemExit(0 if print_report() else 1)

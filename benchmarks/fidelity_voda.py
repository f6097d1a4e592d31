"""Fidelity (b): the simulated cluster, given the allocations measured on the ancestor's cluster, against measured JCTs.

24 jobs ran under each of four algorithms. Work per model and costs per change are fitted on three of the four runs and
tested on the fourth, in turn. Rule: what is predicted is replayed through the product's Cluster port; the fit never
sees a job of the run it is tested on. `python -m benchmarks.fidelity_voda` prints the figures that the product ships.
"""

import asyncio
import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls

from voda.clock import VirtualClock
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.plan import Action, HaltJob, ResizeJob, StartJob
from voda.events.types import JobCompleted
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.data import VODA_EXP, find_folder, intact
from voda.simulator.workload import Costs, SpeedupProfile
from voda.simulator.workloads.voda_exp import read_experiment

MOST_ERROR: Final = 0.06
"""Mean over the jobs of |predicted JCT - measured JCT| / measured JCT."""
# Where the workers sat was not recorded, and the profiles are blind to it: two nodes that take everything will do.
_HERE, _THERE = Node(name="here", gpus=Gpus(1_000)), Node(name="there", gpus=Gpus(1_000))


class Measured(Struct, frozen=True, kw_only=True):
    """One job of one run, as the ancestor's scheduler logged it."""

    algorithm: str
    job_id: str
    model: str
    submitted_s: float
    jct_s: float
    ran_s: float
    """Seconds with GPUs."""
    speedup_s: float
    """Integral of T(replicas) over time: the work done, and what stood still meanwhile."""
    starts_weight: float
    """Sum of T(new size) over starts, and below over resizes."""
    resizes_weight: float
    workers_moved: int
    sizes: tuple[tuple[float, int], ...]
    """(seconds since the first submission, replicas from then on)."""

    @property
    def speed(self) -> float:
        """Mean T(replicas) while it ran."""
        return self.speedup_s / self.ran_s

    @property
    def moved_at_s(self) -> tuple[float, ...]:
        """When workers moved: only their number is known, so they are spread evenly over the time it ran."""
        return tuple(self._after_running((i + 0.5) / self.workers_moved) for i in range(self.workers_moved))

    def _after_running(self, share: float) -> float:
        left_s = share * self.ran_s
        for (at_s, replicas), (until_s, _) in zip(self.sizes, (*self.sizes[1:], (math.inf, 0)), strict=True):
            if replicas and left_s <= until_s - at_s:
                return at_s + left_s
            left_s -= until_s - at_s if replicas else 0.0
        return self.sizes[-1][0]


class CostModel(Struct, frozen=True, kw_only=True):
    """What the fit yields."""

    work_s: Mapping[str, float]
    """Model -> seconds on one replica."""
    costs: Costs
    """A migration is charged once for every worker that moves."""


class HeldOut(Struct, frozen=True, kw_only=True):
    """One algorithm's run, predicted by a model fitted on the others."""

    algorithm: str
    errors: tuple[float, ...]
    """|predicted - measured| / measured, one per job."""
    errors_without_costs: tuple[float, ...]
    """The same for a model of work alone: the yardstick."""

    @property
    def mean_error(self) -> float:
        """Over the run's jobs."""
        return float(np.mean(self.errors))

    @property
    def is_met(self) -> bool:
        """Whether the mean error is small enough."""
        return self.mean_error <= MOST_ERROR


def run(data: Path | None = None) -> tuple[HeldOut, ...]:
    """Fit on three algorithms and test on the fourth, in turn.

    Raises:
        DataNotFound: the measurements are not on this machine.
    """
    jobs = read_measured(data)
    algorithms = tuple(dict.fromkeys(job.algorithm for job in jobs))
    return tuple(_held_out(algorithm, jobs) for algorithm in algorithms)


def read_measured(data: Path | None = None) -> tuple[Measured, ...]:
    """Return the 96 jobs of the four runs."""
    folder = find_folder(VODA_EXP, data)
    with intact(folder, VODA_EXP), (folder / "measured_jobs.csv").open(encoding="utf-8", newline="") as file:
        sizes = _read_sizes(folder / "measured_allocations.jsonl")
        return tuple(_measured(row, sizes[row["algorithm"], row["job"]]) for row in csv.DictReader(file))


def fit(jobs: Sequence[Measured], *, with_costs: bool = True) -> CostModel:
    """Fit work and costs by non-negative least squares on the relative error of the JCT.

    Every job did its model's work, and stood still after each change while its GPUs were counted:
    speedup_s = work_s + start_s x starts_weight + resize_s x resizes_weight + migrate_s x workers moved x mean T.
    """
    models = sorted({job.model for job in jobs})
    rows = np.array([[*(job.model == model for model in models), *_changes(job, with_costs)] for job in jobs], float)
    # An error of x in speedup_s is one of x / speed in the JCT.
    weights = np.array([1.0 / (job.speed * job.jct_s) for job in jobs])
    done = np.array([job.speedup_s for job in jobs])
    found = nnls(rows * weights[:, None], done * weights)[0].tolist()
    start_s, resize_s, migrate_s = found[len(models) :]
    return CostModel(
        work_s=dict(zip(models, found, strict=False)),
        costs=Costs(start_s=start_s, resize_s=resize_s, migrate_s=migrate_s),
    )


def predict(jobs: Sequence[Measured], model: CostModel) -> Mapping[str, float]:
    """Replay the recorded allocations of one run; return job id -> predicted JCT in seconds."""
    return asyncio.run(_replay(jobs, model))


async def _replay(jobs: Sequence[Measured], model: CostModel) -> Mapping[str, float]:
    clock = VirtualClock()
    cluster = SimulatedCluster((_HERE, _THERE), now=clock.now)
    submitted_s = {job.job_id: job.submitted_s for job in jobs}
    jct_s: dict[str, float] = {}
    for job in jobs:
        profile = _profile(job, model)
        cluster.admit(JobSpec(job_id=job.job_id, max_replicas=4, epochs=profile.epochs), profile)
    script = sorted((entry for job in jobs for entry in _script(job)), key=lambda entry: entry[0])
    for at_s, action in [*script, (math.inf, None)]:
        while (end_s := cluster.next_at()) <= at_s and end_s < math.inf:
            clock.move_to(end_s)
            cluster.advance(end_s)
            ended = [notice.job_id for notice in cluster.take_notices() if isinstance(notice, JobCompleted)]
            jct_s.update((job_id, end_s - submitted_s[job_id]) for job_id in ended)
        if action is not None and action.job_id not in jct_s:
            clock.move_to(at_s)
            await cluster.apply(action)
    return jct_s


def _script(job: Measured) -> Iterator[tuple[float, Action]]:
    """Yield what happened to one job, and when."""
    before = 0
    for at_s, replicas in job.sizes:
        if replicas:
            kind = ResizeJob if before else StartJob
            yield at_s, kind(job_id=job.job_id, nodes=(_HERE.name,) * replicas)
        elif before:
            yield at_s, HaltJob(job_id=job.job_id)
        before = replicas
    for number, at_s in enumerate(job.moved_at_s):
        node = _HERE if number % 2 else _THERE
        size = [replicas for since_s, replicas in job.sizes if since_s <= at_s][-1]
        others = (_HERE.name,) * (size - 1)
        yield at_s, ResizeJob(job_id=job.job_id, nodes=(node.name, *others))


def _profile(job: Measured, model: CostModel) -> SpeedupProfile:
    shipped = read_experiment().models[job.model]
    return SpeedupProfile(
        epochs=shipped.epochs, work_s=model.work_s[job.model], speedup=shipped.speedup, costs=model.costs
    )


def _changes(job: Measured, with_costs: bool) -> tuple[float, float, float]:
    if not with_costs:
        return 0.0, 0.0, 0.0
    return job.starts_weight, job.resizes_weight, job.workers_moved * job.speed


def _held_out(algorithm: str, jobs: Sequence[Measured]) -> HeldOut:
    known = [job for job in jobs if job.algorithm != algorithm]
    unseen = [job for job in jobs if job.algorithm == algorithm]
    return HeldOut(
        algorithm=algorithm,
        errors=_errors(unseen, fit(known)),
        errors_without_costs=_errors(unseen, fit(known, with_costs=False)),
    )


def _errors(jobs: Sequence[Measured], model: CostModel) -> tuple[float, ...]:
    jct_s = predict(jobs, model)
    return tuple(abs(jct_s[job.job_id] - job.jct_s) / job.jct_s for job in jobs)


def _measured(row: Mapping[str, str], sizes: tuple[tuple[float, int], ...]) -> Measured:
    return Measured(
        algorithm=row["algorithm"],
        job_id=row["job"],
        model=row["model"],
        submitted_s=float(row["submit_s"]),
        jct_s=float(row["jct_s"]),
        ran_s=float(row["ran_s"]),
        speedup_s=float(row["speedup_seconds"]),
        starts_weight=float(row["start_weight"]),
        resizes_weight=float(row["rescale_weight"]),
        workers_moved=int(row["worker_migrations"]),
        sizes=sizes,
    )


def _read_sizes(path: Path) -> Mapping[tuple[str, str], tuple[tuple[float, int], ...]]:
    """Return (algorithm, job) -> the rounds in which its size changed, the first from 0."""
    sizes: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        scheduled = json.loads(line)
        for job_id, replicas in scheduled["gpus"].items():
            changes = sizes.setdefault((scheduled["algorithm"], job_id), [])
            if replicas != (changes[-1][1] if changes else 0):
                changes.append((scheduled["t"], replicas))
    return {key: tuple(changes) for key, changes in sizes.items()}


def print_report(data: Path | None = None) -> bool:
    """Print the errors and the fitted figures; return whether every error is small enough."""
    table = Table(title="JCTs measured on the ancestor's cluster, predicted from its allocations")
    for column in ("tested on", "jobs", "mean error", "worst", "without costs", "goal"):
        table.add_column(column, justify="left" if column == "tested on" else "right")
    held_out = run(data)
    for one in held_out:
        table.add_row(one.algorithm, *_cells(one.errors, one.errors_without_costs))
    everything = [error for one in held_out for error in one.errors]
    table.add_section()
    table.add_row("all", *_cells(everything, [error for one in held_out for error in one.errors_without_costs]))
    console = Console()
    console.print(table)
    model = fit(read_measured(data))
    console.print("Fitted on all four, and shipped in voda/simulator/workloads/voda-exp-run-1.json:", soft_wrap=True)
    for name, seconds in {**model.work_s, **_as_dict(model.costs)}.items():
        console.print(f"  {name:12} {seconds:8.1f} s", highlight=False)
    return all(one.is_met for one in held_out)


def _cells(errors: Sequence[float], without: Sequence[float]) -> tuple[str, ...]:
    return (
        str(len(errors)),
        f"{np.mean(errors):.2%}",
        f"{max(errors):.1%}",
        f"{np.mean(without):.2%}",
        f"<= {MOST_ERROR:.0%}",
    )


def _as_dict(costs: Costs) -> Mapping[str, float]:
    return {"start": costs.start_s, "resize": costs.resize_s, "migrate": costs.migrate_s}


if __name__ == "__main__":
    raise SystemExit(0 if print_report() else 1)

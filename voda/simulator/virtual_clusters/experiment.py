"""Runs the modes of sharing under a policy, and compares each job's start with that in its private cluster.

A job has an *anomaly* where it starts later than in its private cluster by more than the reclaim time: that is what a
virtual cluster exists to prevent.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from voda.controller.follower import catch_up
from voda.projections.history import History
from voda.projections.timeline import Steps, Timeline
from voda.simulator.engine import ProgressCallback, SimulationOptions, SimulationRun
from voda.simulator.metrics import integral
from voda.simulator.virtual_clusters.lending import Lending
from voda.simulator.virtual_clusters.modes import BASELINES, Mode, SharedWorkload, simulations

RECLAIM_GRACE_S: Final = 120.0
"""How long workers may take to leave cells that a guarantee needs."""
_S_PER_H: Final = 3600.0
Finished = Callable[[int], None]
"""(jobs that ended in a mode so far) -> nothing."""


class WaitingTimes(Struct, frozen=True):
    """How long one job waited."""

    start_s: float
    """From its submission to its first start; infinite: it never started."""
    queueing_s: float
    """Without workers, whenever in its life."""


@dataclass(kw_only=True)
class ModeRun:
    """What one mode gave under one policy."""

    mode: Mode
    waits: dict[str, WaitingTimes] = field(default_factory=dict)
    """Job -> how long it waited; jobs that never ended are not there."""
    steps: list[Steps] = field(default_factory=list)
    """Of each of its clusters."""
    held_gpu_s: float = 0.0
    there_gpu_s: float = 0.0
    """Both from the first submission to the last one."""
    lending: Sequence[Lending] = ()
    decision_s: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    unfinished: list[str] = field(default_factory=list)


class Anomalies(Struct, frozen=True, kw_only=True):
    """Jobs that started later than in their private cluster by more than the reclaim time."""

    jobs: int
    worst_s: float
    """Later than there, of the worst job, be it an anomaly or not; negative: all started earlier."""
    worst_job: str


class ModeFigures(Struct, frozen=True, kw_only=True):
    """One mode, all virtual clusters together."""

    mode: Mode
    jobs: int
    queueing_s: float
    """Mean."""
    utilisation: float
    """GPU time held / there was, from the first submission to the last one; 0 to 1."""
    anomalies: Anomalies | None
    """None: there is nothing to compare with."""
    borrowed_gpu_h: float
    """Held without a guarantee."""
    reclaims: int
    lost_gpu_h: float
    """By reclaiming."""
    lost_by_kill_gpu_h: float
    """What the same reclaims lose by HiveD's rule."""
    unfinished: int
    decisions: int
    decision_p95_s: float
    wall_s: float


class ClusterFigures(Struct, frozen=True, kw_only=True):
    """One virtual cluster in all modes."""

    name: str
    gpus: int
    jobs: int
    queueing_s: Mapping[Mode, float]
    """Mean."""
    anomalies: Mapping[Mode, Anomalies]


class PolicyFigures(Struct, frozen=True, kw_only=True):
    """One policy."""

    policy: str
    reclaim_s: float
    """A start later by no more than this is no anomaly."""
    modes: Sequence[ModeFigures]
    clusters: Sequence[ClusterFigures]


async def run_mode(
    shared: SharedWorkload, mode: Mode, options: SimulationOptions, finished: Finished | None = None
) -> ModeRun:
    """Simulate one mode."""
    costs = {arrival.spec.job_id: arrival.profile.costs for arrival in shared.workload.arrivals}
    result, lending = ModeRun(mode=mode), []
    for _, simulation in simulations(shared, mode, options):
        run = await simulation.run(_beginning_at(len(result.waits), finished) if finished else None)
        lent = Lending(costs)
        await _take_in(result, run, lent, shared)
        lending.append(lent)
    # Numbers guarantee no cells, so nothing of theirs is lent or taken back.
    result.lending = () if mode is Mode.NUMBERS else lending
    return result


def _beginning_at(before: int, finished: Finished) -> ProgressCallback:
    return lambda count, _: finished(before + count)


async def _take_in(result: ModeRun, run: SimulationRun, lending: Lending, shared: SharedWorkload) -> None:
    history, timeline = History(), Timeline()
    await catch_up(run.store, [history, timeline, lending], after=0)
    for job in history.finished:
        started_at = math.inf if job.first_started_at is None else job.first_started_at
        result.waits[job.job_id] = WaitingTimes(started_at - job.submitted_at, job.queueing_s)
    steps = timeline.steps()
    begin, end = window(shared)
    result.steps.append(steps)
    result.held_gpu_s += integral(steps, steps.gpus_in_use, begin, end)
    result.there_gpu_s += integral(steps, steps.capacity, begin, end)
    result.decision_s += run.decision_s
    result.wall_s += run.wall_s
    result.unfinished += run.unfinished


def window(shared: SharedWorkload) -> tuple[float, float]:
    """Return the instants of the first and of the last submission."""
    arrivals, begins_at = shared.workload.arrivals, shared.workload.begins_at
    return begins_at + arrivals[0].submitted_s, begins_at + arrivals[-1].submitted_s


async def run_modes(
    shared: SharedWorkload,
    modes: Sequence[Mode],
    options: SimulationOptions,
    *,
    policy: str,
    progress: Callable[[Mode], Finished] | None = None,
) -> Sequence[ModeRun]:
    """Simulate each mode under a policy."""
    chosen = replace(options, settings=replace(options.settings, policy=policy))
    return [await run_mode(shared, mode, chosen, progress(mode) if progress else None) for mode in modes]


def figures(shared: SharedWorkload, runs: Sequence[ModeRun], *, policy: str, ratelimit_s: float) -> PolicyFigures:
    """Return what the runs of one policy amount to."""
    members: dict[str, list[str]] = {}
    for arrival in shared.workload.arrivals:
        members.setdefault(arrival.virtual_cluster or "default", []).append(arrival.spec.job_id)
    reclaim_s = ratelimit_s + RECLAIM_GRACE_S
    by_mode = {run.mode: run for run in runs}
    everybody = [job_id for jobs in members.values() for job_id in jobs]
    return PolicyFigures(
        policy=policy,
        reclaim_s=reclaim_s,
        modes=[_mode_figures(run, _anomalies(by_mode, run.mode, everybody, reclaim_s)) for run in runs],
        clusters=[
            ClusterFigures(
                name=name,
                gpus=shared.nodes[name] * shared.node_gpus,
                jobs=len(jobs),
                queueing_s={run.mode: _queueing_s(run, jobs) for run in runs},
                anomalies={
                    run.mode: found for run in runs if (found := _anomalies(by_mode, run.mode, jobs, reclaim_s))
                },
            )
            for name, jobs in sorted(members.items(), key=lambda item: -shared.nodes[item[0]])
        ],
    )


def lateness_s(runs: Mapping[Mode, ModeRun], mode: Mode, jobs: Sequence[str]) -> Mapping[str, float] | None:
    """Return job -> how much later it started than in its private cluster; None where that was not simulated."""
    private = runs.get(BASELINES.get(mode, mode))
    if mode.is_private or private is None:
        return None
    shared = runs[mode].waits
    known = [job_id for job_id in jobs if job_id in private.waits]
    return {
        job_id: (shared[job_id].start_s if job_id in shared else math.inf) - private.waits[job_id].start_s
        for job_id in known
    }


def _anomalies(runs: Mapping[Mode, ModeRun], mode: Mode, jobs: Sequence[str], reclaim_s: float) -> Anomalies | None:
    later_s = lateness_s(runs, mode, jobs)
    if not later_s:
        return None
    worst = max(later_s, key=lambda job_id: later_s[job_id])
    late = sum(seconds > reclaim_s for seconds in later_s.values())
    return Anomalies(jobs=late, worst_s=later_s[worst], worst_job=worst)


def _queueing_s(run: ModeRun, jobs: Sequence[str]) -> float:
    return float(np.mean([run.waits[job_id].queueing_s for job_id in jobs if job_id in run.waits] or [0.0]))


def _mode_figures(run: ModeRun, anomalies: Anomalies | None) -> ModeFigures:
    def hours(name: str) -> float:
        return float(sum(getattr(each, name) for each in run.lending)) / _S_PER_H

    return ModeFigures(
        mode=run.mode,
        jobs=len(run.waits),
        queueing_s=_queueing_s(run, tuple(run.waits)),
        utilisation=run.held_gpu_s / run.there_gpu_s if run.there_gpu_s else 0.0,
        anomalies=anomalies,
        borrowed_gpu_h=hours("borrowed_gpu_s"),
        reclaims=sum(each.reclaims for each in run.lending),
        lost_gpu_h=hours("lost_gpu_s"),
        lost_by_kill_gpu_h=hours("lost_by_kill_gpu_s"),
        unfinished=len(run.unfinished),
        decisions=len(run.decision_s),
        decision_p95_s=float(np.percentile(run.decision_s, 95)) if run.decision_s else 0.0,
        wall_s=run.wall_s,
    )

"""How soon a job's gates are lifted and its pods bound, on an idle cluster; and what gates cost a large job.

The yardstick of a large job is the same Job without voda: no gates, no suspension, the same kube-scheduler, by turns.
What gates cost is counted from the first pod that kube-scheduler may bind: what comes before is the Job controller's.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.kube.jobs_plane import JobsStage, jobs_plane
from benchmarks.kube.options import Options
from benchmarks.kube.replica import serving
from benchmarks.kube.shares import Shares
from benchmarks.kube.tail import Tail
from benchmarks.table import Row
from tests.kube import client as api
from tests.kube.objects import an_indexed_job

TITLE = "start of an Indexed Job, idle cluster of 100 kwok nodes"
_NODES = 100
_TRIES = 20
_WORKERS = 8
_LARGE_TRIES = 7
"""Of each way."""
_LARGE = 64
_QUIET_S = 0.5

Lap = tuple[float, float, float]
"""Seconds from a job's creation until the first of its pods has no gate, until none has, and until all are bound."""


async def run(options: Options) -> Sequence[Row]:
    """Return the time from the first request of kubectl, as a watch of the pods shows it."""
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder:
        log = str(Path(folder) / "voda.db")
        async with jobs_plane(_NODES) as world:
            with serving(world.plane, Path(folder) / "one", log, program=options.program) as replica:
                await replica.until_leads()
                async with Tail(log) as tail:
                    shares = Shares(world.plane, [replica])
                    small = [
                        await _lap(world, tail, f"small-{number}", _WORKERS)
                        for number in range(options.scaled(_TRIES, 2))
                    ]
                    cost = Row(what="CPU: voda, per job", figure=1e3 * shares.voda_s() / len(small), unit="ms")
                    gated, plain = [], []
                    for number in range(options.scaled(_LARGE_TRIES, 2)):
                        gated.append(await _lap(world, tail, f"gated-{number}", _LARGE))
                        plain.append(await _lap(world, tail, f"plain-{number}", _LARGE, managed=False))
                    return [*_rows(small), cost, *_large_rows(gated, plain), *shares.rows()]


def _rows(small: Sequence[Lap]) -> Sequence[Row]:
    ungated, bound = ([1e3 * lap[stage] for lap in small] for stage in (1, 2))
    what = f"job of {_WORKERS} workers created to"
    return [
        Row(what=f"{what} all gates lifted, p95 of {len(small)}", figure=_at(ungated, 95), unit="ms", goal=300),
        Row(what="the same, p50", figure=_at(ungated, 50), unit="ms"),
        Row(what=f"{what} all bound, p95", figure=_at(bound, 95), unit="ms", goal=500),
        Row(what="the same, p50", figure=_at(bound, 50), unit="ms"),
    ]


def _large_rows(gated: Sequence[Lap], plain: Sequence[Lap]) -> Sequence[Row]:
    return [
        _ratio("first pod without a gate to last bound", _medians(gated, since=0), _medians(plain, since=0), goal=1.3),
        _ratio("created to last bound", _medians(gated), _medians(plain), goal=None),
    ]


def _medians(laps: Sequence[Lap], *, since: int | None = None) -> float:
    """Return the median time until all are bound, from a stage or from the creation, ms."""
    return 1e3 * float(np.median([lap[2] - (lap[since] if since is not None else 0.0) for lap in laps]))


def _ratio(what: str, gated_ms: float, plain_ms: float, *, goal: float | None) -> Row:
    return Row(
        what=f"{_LARGE} workers, {what}, beside the same Job without voda, medians",
        figure=gated_ms / plain_ms,
        unit="times",
        goal=goal,
        yardstick=f"{gated_ms:.0f} ms with voda, {plain_ms:.0f} ms without",
        ratio=gated_ms / plain_ms,
    )


async def _lap(world: JobsStage, tail: Tail, name: str, workers: int, *, managed: bool = True) -> Lap:
    """Create a job, wait until it runs, and delete it."""
    bounds = {"least": workers, "most": workers} if managed else {}
    job = an_indexed_job(name, world.namespace, workers, managed=managed, suspend=managed, pool="v100", **bounds)
    pods, began = world.pods, time.perf_counter()
    await world.client.create(api.JOBS, job)
    await pods.until(lambda: len(pods.bound.get(name, ())) == workers, f"{name} is bound")
    await pods.until(lambda: len(pods.running.get(name, ())) == workers, f"{name} runs")
    ungated, bound = pods.ungated[name].values(), pods.bound[name].values()
    await world.client.delete(api.JOBS, name, world.namespace)
    await pods.until_gone()
    await tail.rested(_QUIET_S)
    return min(ungated) - began, max(ungated) - began, max(bound) - began


def _at(laps: Sequence[float], percent: float) -> float:
    return float(np.percentile(laps, percent))

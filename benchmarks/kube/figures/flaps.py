"""What voda makes of 1,000 nodes that fall silent once each within a minute, and answer again a moment later."""

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kube.blocked import blocked_s, seconds_noted
from benchmarks.kube.figures.reaction import fill
from benchmarks.kube.options import Options
from benchmarks.kube.plane import Stage, control_plane
from benchmarks.kube.replica import Replica, serving
from benchmarks.kube.seeding import add_nodes, nodes
from benchmarks.kube.shares import Shares
from benchmarks.kube.tail import Tail
from benchmarks.kube.workers import WorkersOnly
from benchmarks.table import Row
from voda.events.envelope import Event
from voda.events.types import NodeChanged, PlanAdopted, WorkerExited

TITLE = "1,000 nodes flap once each within a minute, 500 running jobs"
_NODES = 1_000
_JOBS = 500
_WITHIN_S = 60.0
_SILENT_S = 2.0
_AFTER_S = 10.0


async def run(options: Options) -> Sequence[Row]:
    """Return what the log has of it, and how long the loop kept anybody waiting meanwhile."""
    count, jobs = options.scaled(_NODES, 10), options.scaled(_JOBS, 5)
    with (
        tempfile.TemporaryDirectory(prefix="voda-bench-") as folder,
        control_plane(controllers=True, scheduler=True) as plane,
    ):
        log, lags = str(Path(folder) / "voda.db"), Path(folder) / "lags"
        async with Stage(plane, [WorkersOnly]) as world:
            await add_nodes(world.client, nodes(count))
            program = ("-m", "benchmarks.kube.blocked", str(lags))
            with serving(plane, Path(folder) / "one", log, program=program) as replica:
                await replica.until_leads()
                async with Tail(log) as tail:
                    await fill(world, tail, jobs)
                    return await _measured(world, tail, replica, lags, count)


async def _measured(world: Stage, tail: Tail, replica: Replica, lags: Path, count: int) -> Sequence[Row]:
    await tail.new()
    shares, since = Shares(world.plane, [replica]), seconds_noted(lags)
    began = time.perf_counter()
    await asyncio.gather(*(_flap(world, number, count) for number in range(count)))
    span_s = time.perf_counter() - began
    await asyncio.sleep(_AFTER_S)
    voda_s = shares.voda_s()
    return [*_rows(await tail.new(), count), *_lag_rows(blocked_s(lags, since)), _cpu(voda_s, span_s), *shares.rows()]


async def _flap(world: Stage, number: int, count: int) -> None:
    name = f"v100-{number:04}"
    await asyncio.sleep(_WITHIN_S * number / count)
    await world.set_ready(name, False)
    await asyncio.sleep(_SILENT_S)
    await world.set_ready(name, True)


def _rows(events: Sequence[Event], count: int) -> Sequence[Row]:
    exits = sum(len(event.data.workers) for event in events if isinstance(event.data, WorkerExited))
    facts = Counter(event.data.node.name for event in events if isinstance(event.data, NodeChanged))
    plans = sum(isinstance(event.data, PlanAdopted) for event in events)
    return [
        Row(what="workers moved or lost", figure=exits, unit="", goal=0),
        Row(what="facts of one node, at most", figure=max(facts.values(), default=0), unit="", goal=2),
        Row(what="nodes of which the log has facts", figure=len(facts), unit=f"of {count}"),
        Row(what="plans adopted", figure=plans, unit=""),
    ]


def _lag_rows(lag: tuple[float, float]) -> Sequence[Row]:
    cpu_s, passed_s = lag
    what = "longest that voda's event loop kept new work waiting"
    return [
        Row(what=f"{what}, seconds of its own CPU", figure=1e3 * cpu_s, unit="ms", goal=100),
        Row(what=f"{what}, seconds that passed", figure=1e3 * passed_s, unit="ms"),
    ]


def _cpu(voda_s: float, span_s: float) -> Row:
    return Row(what="CPU: voda", figure=100 * voda_s / (span_s + _AFTER_S), unit="% of a core")

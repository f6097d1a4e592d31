"""All that the report knows of one run: its figures, and the projections of its log."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from voda.events.store import EventStore
from voda.projections.history import History
from voda.projections.timeline import Timeline
from voda.simulator.engine import Run
from voda.simulator.fairness import IdealTime
from voda.simulator.metrics import Execution, RunResult, measure

_PAGE = 10_000


class RunOutcome(Struct, frozen=True, kw_only=True):
    """One run, ready to be reported."""

    result: RunResult
    history: History
    timeline: Timeline
    source: str
    """Where the workload's figures come from, one line."""
    unfinished: Sequence[str] = ()
    """Jobs that could never run to their end on this cluster."""
    log: Path | None = None
    """The run's event log, where it was kept."""


async def outcome_of(run: Run, ideal_s: IdealTime, *, log: Path | None = None) -> RunOutcome:
    """Fold the log of a simulation and measure it.

    Args:
        run: what the simulation left behind.
        ideal_s: of the run's workload, see `ideal.ideal_times`; the runs of one workload share it.
        log: where the log was exported to.
    """
    history, timeline = await fold(run.store)
    settings = run.options.settings
    execution = Execution(
        workload=run.workload.name,
        policy=settings.policy,
        placer=settings.placer,
        decisions_s=run.decision_s,
        wall_s=run.wall_s,
    )
    return RunOutcome(
        result=measure(history, timeline, execution, ideal_s),
        history=history,
        timeline=timeline,
        source=run.workload.source,
        unfinished=run.unfinished,
        log=log,
    )


async def fold(store: EventStore) -> tuple[History, Timeline]:
    """Return the histories of the jobs and the timeline of the GPUs that a whole log tells of."""
    history, timeline = History(), Timeline()
    position = 0
    while events := await store.read(position, _PAGE):
        for event in events:
            history.apply(event)
            timeline.apply(event)
        position = events[-1].position
    return history, timeline


def labels(runs: Sequence[RunOutcome]) -> tuple[str, ...]:
    """Return a name for each run: its policy, with the placer where the runs differ in it."""
    has_many_placers = len({run.result.placer for run in runs}) > 1
    names = (f"{run.result.policy} / {run.result.placer}" if has_many_placers else run.result.policy for run in runs)
    return tuple(names)

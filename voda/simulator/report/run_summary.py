"""One run for the report: its figures, and the projections of its log."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from voda.projections.history import History
from voda.projections.timeline import Timeline
from voda.simulator.metrics import RunResult
from voda.text import counted


class RunOutcome(Struct, frozen=True, kw_only=True):
    """One run, ready to be reported."""

    result: RunResult
    history: History
    timeline: Timeline
    source: str
    """Where the workload's figures come from, one line."""
    unfinished: Sequence[str] = ()
    """Jobs that cannot run to their end on this cluster."""
    log: Path | None = None
    """The run's event log, where it was kept."""


def labels(runs: Sequence[RunOutcome]) -> tuple[str, ...]:
    """Return a name for each run: its policy, with the placer where the runs differ in it."""
    has_many_placers = len({run.result.placer for run in runs}) > 1
    names = (f"{run.result.policy} / {run.result.placer}" if has_many_placers else run.result.policy for run in runs)
    return tuple(names)


def warnings(runs: Sequence[RunOutcome]) -> Sequence[str]:
    """Return one sentence for each run with unfinished jobs: its averages are over the others."""
    return [
        f"{label}: {counted(len(run.unfinished), 'job')} could never run to their end on this cluster, e.g. "
        f"{run.unfinished[0][:60]}; the figures are of the others."
        for label, run in zip(labels(runs), runs, strict=True)
        if run.unfinished
    ]


def about(runs: Sequence[RunOutcome]) -> str:
    """Return jobs, nodes and GPUs of the workload in words."""
    sizes = runs[0].timeline.nodes
    jobs = max(run.result.jobs + len(run.unfinished) for run in runs)
    return f"{counted(jobs, 'job')} on {counted(len(sizes), 'node')} with {counted(sum(sizes.values()), 'GPU')}"

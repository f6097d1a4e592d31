"""One workload under several policies: run each, keep its log, and gather what the report needs.

Rule: every run starts from the same workload, seed and failures; only policy and placer differ.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from voda.controller.follower import catch_up
from voda.domain.errors import StoreNotWritable
from voda.log.archive.copy import export_log
from voda.placement.registry import placer as chosen_placer
from voda.policies.registry import policies as known_policies
from voda.policies.registry import policy as chosen_policy
from voda.projections.history import History
from voda.projections.timeline import Timeline
from voda.simulator.engine import simulate
from voda.simulator.fairness import IdealTimes
from voda.simulator.metrics import Execution, measure
from voda.simulator.profiles.base import Workload
from voda.simulator.report.run_summary import RunOutcome
from voda.simulator.run import ProgressCallback, SimulationOptions, SimulationRun


class ComparedRun(Struct, frozen=True, kw_only=True):
    """What differs from run to run."""

    policy: str
    placer: str

    @property
    def folder(self) -> str:
        """Name of the folder that keeps the run's log."""
        return self.policy if self.placer == "steady" else f"{self.policy}-{self.placer}"


def contestants(*, policies: Sequence[str], placers: Sequence[str]) -> Sequence[ComparedRun]:
    """Return every pair of a policy and a placer, in the order given; no policies = all there are.

    Raises:
        InvalidInput: an unknown name.
    """
    names = tuple(dict.fromkeys(policies)) or tuple(known_policies())
    pairs = [ComparedRun(policy=name, placer=where) for name in names for where in dict.fromkeys(placers)]
    for pair in pairs:
        chosen_policy(pair.policy)
        chosen_placer(pair.placer)
    return pairs


async def compare(
    workload: Workload,
    contestants: Sequence[ComparedRun],
    options: SimulationOptions,
    *,
    out: Path | None = None,
    progress: Callable[[ComparedRun], ProgressCallback] | None = None,
) -> Sequence[RunOutcome]:
    """Run the workload once for each contestant.

    Args:
        workload: jobs and nodes.
        contestants: in the order of the report.
        options: settings (less policy and placer), seed and failures, the same for all.
        out: folder for one `log.jsonl` per run; None = logs are dropped.
        progress: makes the progress callback of a run.

    Raises:
        StoreNotWritable: a log cannot be written.
    """
    ideal_s = IdealTimes(workload)
    outcomes: list[RunOutcome] = []
    for contestant in contestants:
        settings = replace(options.settings, policy=contestant.policy, placer=contestant.placer)
        told = progress(contestant) if progress else None
        run = await simulate(workload, replace(options, settings=settings), progress=told)
        log = await _kept(run, out / contestant.folder) if out else None
        outcomes.append(await _outcome(run, log, ideal_s))
    return outcomes


async def _outcome(run: SimulationRun, log: Path | None, ideal_s: IdealTimes) -> RunOutcome:
    history, timeline = History(), Timeline()
    await catch_up(run.store, [history, timeline], after=0)
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


async def _kept(run: SimulationRun, folder: Path) -> Path:
    path = folder / "log.jsonl"
    try:
        with _created(path) as file:
            await export_log(run.store, file)
    except OSError as error:
        raise StoreNotWritable(f"{path}: the log cannot be written ({error.strerror or error})") from error
    return path


def _created(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")

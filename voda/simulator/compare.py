"""Runs one workload under several policies, saves the logs, and returns what the report needs.

Rule: every run starts from the same workload, seed and failures; only policy and placer differ.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from voda.controller.follower import catch_up
from voda.domain.errors import StoreNotWritable
from voda.domain.settings import ParameterValue
from voda.log.archive.archive import Archive
from voda.log.archive.copy import copy_to_folder
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.policies.toolkit.parameters import check_parameters, parse_assignments
from voda.projections.history import History
from voda.projections.timeline import Timeline
from voda.simulator.engine import ProgressCallback, Simulation, SimulationOptions, SimulationRun
from voda.simulator.metrics import Execution, IdealTimes, measure
from voda.simulator.report.comparison_table import RunOutcome
from voda.simulator.workload import Workload


class ComparedRun(Struct, frozen=True, kw_only=True):
    """What differs from run to run."""

    policy: str
    placer: str
    parameters: Mapping[str, ParameterValue] = {}
    """Of the policy, where they are not its defaults."""

    @property
    def title(self) -> str:
        return ",".join([self.policy, *(f"{name}={value}" for name, value in self.parameters.items())])

    @property
    def folder(self) -> str:
        return self.title if self.placer == "steady" else f"{self.title}-{self.placer}"


def contestants(*, policies: Sequence[str], placers: Sequence[str]) -> Sequence[ComparedRun]:
    """Return every pair of a policy and a placer, in the order given; no policies = all there are.

    A policy may have parameters: `tiresias:demote_gpu_s=7200,promote_knob=4`.

    Raises:
        InvalidInput: an unknown name, or a parameter that its policy does not take.
    """
    variants = [_parse_policy(text) for text in dict.fromkeys(policies) or POLICIES]
    return [
        ComparedRun(policy=policy, placer=PLACERS.choose(placer).name, parameters=parameters)
        for policy, parameters in variants
        for placer in dict.fromkeys(placers)
    ]


def _parse_policy(text: str) -> tuple[str, Mapping[str, ParameterValue]]:
    """Return a policy and its parameters: NAME or NAME:PARAMETER=VALUE,..."""
    name, _, assignments = text.partition(":")
    policy = POLICIES.choose(name).name
    values = parse_assignments(policy, assignments.split(",") if assignments else ())
    return policy, check_parameters({policy: values})[policy]


async def compare(
    workload: Workload,
    contestants: Sequence[ComparedRun],
    options: SimulationOptions,
    *,
    out: Path | None = None,
    progress: Callable[[ComparedRun], ProgressCallback] | None = None,
) -> Sequence[RunOutcome]:
    """Run the workload once for each contestant, in this order; settings less policy and placer are the same for all.

    Each run leaves its log in a folder below `out`, if given; `progress` makes the progress callback of a run.

    Raises:
        StoreNotWritable: a log cannot be written.
    """
    ideal_s = IdealTimes(workload)
    outcomes: list[RunOutcome] = []
    for contestant in contestants:
        settings = replace(
            options.settings,
            policy=contestant.policy,
            placer=contestant.placer,
            parameters={contestant.policy: contestant.parameters} if contestant.parameters else {},
        )
        simulation = Simulation(workload, replace(options, settings=settings))
        run = await simulation.run(progress(contestant) if progress else None)
        log = await _save_log(run, out / contestant.folder / "log") if out else None
        outcomes.append(await _outcome(run, contestant, log, ideal_s))
    return outcomes


async def _outcome(run: SimulationRun, contestant: ComparedRun, log: Path | None, ideal_s: IdealTimes) -> RunOutcome:
    history, timeline = History(), Timeline()
    await catch_up(run.store, [history, timeline], after=0)
    execution = Execution(
        workload=run.workload.name,
        policy=contestant.title,
        placer=contestant.placer,
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


async def _save_log(run: SimulationRun, folder: Path) -> Path:
    _make_empty(folder)
    await copy_to_folder(run.store, folder)
    return folder


def _make_empty(folder: Path) -> None:
    """Make the folder, or delete the log of an earlier simulation."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for segment in Archive.open(folder).segments:
            segment.path.unlink()
    except OSError as error:
        raise StoreNotWritable(f"{folder}: the log cannot be written ({error.strerror or error})") from error

"""One workload under several policies: run each, keep its log, and gather what the report needs.

Rule: every run starts from the same workload, seed and failures; only policy and placer differ.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from voda.controller.follower import catch_up
from voda.domain.errors import StoreNotWritable
from voda.domain.state import ParameterValue
from voda.log.archive.export import export_log
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.policies.toolkit.parameters import check_parameters, parse_assignments
from voda.projections.history import History
from voda.projections.timeline import Timeline
from voda.simulator.engine import simulate
from voda.simulator.ideal_times import IdealTimes
from voda.simulator.metrics import Execution, measure
from voda.simulator.profile import Workload
from voda.simulator.report.run_summary import RunOutcome
from voda.simulator.run import Options, Progress, Run


class Contestant(Struct, frozen=True, kw_only=True):
    """What differs from run to run."""

    policy: str
    placer: str
    parameters: Mapping[str, ParameterValue] = {}
    """Of the policy, where they are not its defaults."""

    @property
    def title(self) -> str:
        """The policy, with the parameters that are not its defaults."""
        return ",".join([self.policy, *(f"{name}={value}" for name, value in self.parameters.items())])

    @property
    def folder(self) -> str:
        """Name of the folder that keeps the run's log."""
        return self.title if self.placer == "steady" else f"{self.title}-{self.placer}"


def contestants(*, policies: Sequence[str], placers: Sequence[str]) -> Sequence[Contestant]:
    """Return every pair of a policy and a placer, in the order given.

    Args:
        policies: such as `fifo` or `tiresias:demote_gpu_s=7200,promote_knob=4`; none = all there are.
        placers: by name.

    Raises:
        InvalidInput: an unknown name, or a parameter that its policy does not take.
    """
    chosen = [_chosen(text) for text in dict.fromkeys(policies) or POLICIES]
    return [
        Contestant(policy=policy, placer=PLACERS.choose(placer).name, parameters=parameters)
        for policy, parameters in chosen
        for placer in dict.fromkeys(placers)
    ]


def _chosen(text: str) -> tuple[str, Mapping[str, ParameterValue]]:
    """Return a policy and its parameters: NAME or NAME:PARAMETER=VALUE,..."""
    name, _, assignments = text.partition(":")
    policy = POLICIES.choose(name).name
    values = parse_assignments(policy, assignments.split(",") if assignments else ())
    return policy, check_parameters({policy: values})[policy]


async def compare(
    workload: Workload,
    contestants: Sequence[Contestant],
    options: Options,
    *,
    out: Path | None = None,
    progress: Callable[[Contestant], Progress] | None = None,
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
        settings = replace(
            options.settings,
            policy=contestant.policy,
            placer=contestant.placer,
            parameters={contestant.policy: contestant.parameters} if contestant.parameters else {},
        )
        told = progress(contestant) if progress else None
        run = await simulate(workload, replace(options, settings=settings), progress=told)
        log = await _kept(run, out / contestant.folder) if out else None
        outcomes.append(await _outcome(run, contestant, log, ideal_s))
    return outcomes


async def _outcome(run: Run, contestant: Contestant, log: Path | None, ideal_s: IdealTimes) -> RunOutcome:
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


async def _kept(run: Run, folder: Path) -> Path:
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

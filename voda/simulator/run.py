"""What goes into a simulation and what comes out of it.

Rule: values only; the loop that runs them is engine.py.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from voda.domain.job import Job
from voda.domain.state import Settings
from voda.events.envelope import Sealed
from voda.events.types import AnyFact, Intent, NodeChanged, NodeJoined, NodeLeft, PolicyChanged, RatelimitChanged
from voda.log.store import EventStore
from voda.simulator.failures import FailureRates
from voda.simulator.profiles.base import Workload
from voda.simulator.training import EpochEnd, Training, exact_end

ProgressCallback = Callable[[int, int], None]
"""(jobs finished, jobs in all) -> nothing."""

StopCondition = Callable[[int, Mapping[str, Job]], bool]
"""(events so far, live jobs) -> whether to stop here."""


class SimulationOptions(Struct, frozen=True, kw_only=True):
    """How a workload is run."""

    settings: Settings = Settings()
    seed: int = 0
    failures: FailureRates = FailureRates()
    tick_s: float = 0.0
    """Decide only at whole multiples of this many seconds; 0 = whenever something happens."""
    end_of: EpochEnd = exact_end


class ScheduledFact(Struct, frozen=True, kw_only=True):
    """Something that people or nodes do, whatever is decided; arrivals are told by the workload."""

    at: float
    """Seconds since the epoch."""
    fact: Intent | NodeJoined | NodeChanged | NodeLeft


class InitialState(Struct, frozen=True, kw_only=True):
    """How a simulation begins; by default with an empty log and idle nodes."""

    facts: tuple[AnyFact, ...]
    """Recorded before anything else."""
    log: tuple[Sealed, ...] = ()
    """What is recorded already, from position 1 on."""
    state: bytes = b""
    """Of a dumped and rebased `Live` that the controller begins with, instead of a log."""
    trainings: tuple[Training, ...] = ()
    """Jobs that the log knows, as they stand at the workload's beginning."""
    scheduled: tuple[ScheduledFact, ...] = ()
    """By time."""


class SimulationRun(Struct, frozen=True, kw_only=True):
    """What a simulation leaves behind."""

    workload: Workload
    options: SimulationOptions
    store: EventStore
    decision_s: Sequence[float]
    """Seconds of wall time that each decision took."""
    wall_s: float
    unfinished: tuple[str, ...]
    """Jobs that could never run to their end on this cluster, or not before it was enough."""


def empty_log(pool: str, workload: Workload, options: SimulationOptions) -> InitialState:
    """Return a beginning with an empty log: the pool's settings, then its nodes."""
    settings = asdict(options.settings)
    ratelimit_s = settings.pop("ratelimit_s")
    facts: list[AnyFact] = [PolicyChanged(pool=pool, **settings)]
    facts.append(RatelimitChanged(pool=pool, ratelimit_s=ratelimit_s))
    facts += [NodeJoined(node=node) for node in workload.nodes]
    return InitialState(facts=tuple(facts))

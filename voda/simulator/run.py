"""Input and output of a simulation.

Rule: values only; engine.py runs them.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from voda.domain.job import Job
from voda.domain.state import Settings
from voda.events.envelope import Sealed
from voda.events.types import AnyFact, Intent, NodeFact, NodeJoined, PolicyChanged, RatelimitChanged
from voda.log.store import EventStore
from voda.simulator.failures import FailureRates
from voda.simulator.training import EpochEnd, Training, exact_end
from voda.simulator.workload import Workload

ProgressCallback = Callable[[int, int], None]
"""(jobs finished, jobs in all) -> nothing."""

StopCondition = Callable[[int, Mapping[str, Job]], bool]
"""(events so far, live jobs) -> whether to stop."""


class SimulationOptions(Struct, frozen=True, kw_only=True):
    """How a workload is run."""

    settings: Settings = Settings()
    seed: int = 0
    failures: FailureRates = FailureRates()
    tick_s: float = 0.0
    """Decide at whole multiples of this many seconds only; 0 = at every event."""
    end_of: EpochEnd = exact_end


class ScheduledFact(Struct, frozen=True, kw_only=True):
    """An action of people or a change of nodes, whatever the decisions; arrivals come from the workload."""

    at: float
    """Seconds since the epoch."""
    fact: Intent | NodeFact


class InitialState(Struct, frozen=True, kw_only=True):
    """The beginning of a simulation; by default an empty log and idle nodes."""

    facts: tuple[AnyFact, ...]
    """Recorded before anything else."""
    log: tuple[Sealed, ...] = ()
    """The log so far, from position 1 on."""
    state: bytes = b""
    """Dump of a rebased `Live` from which the controller begins, instead of a log."""
    trainings: tuple[Training, ...] = ()
    """Jobs of the log, with their progress at the workload's beginning."""
    scheduled: tuple[ScheduledFact, ...] = ()
    """By time."""


class SimulationRun(Struct, frozen=True, kw_only=True):
    """The result of a simulation."""

    workload: Workload
    options: SimulationOptions
    store: EventStore
    decision_s: Sequence[float]
    """Seconds of wall time that each decision took."""
    wall_s: float
    unfinished: tuple[str, ...]
    """Jobs that could not run to their end on this cluster, or not before the stop."""


def empty_log(pool: str, workload: Workload, options: SimulationOptions) -> InitialState:
    """Return a beginning with an empty log: the pool's settings, then its nodes."""
    settings = asdict(options.settings)
    ratelimit_s = settings.pop("ratelimit_s")
    facts: list[AnyFact] = [PolicyChanged(pool=pool, **settings)]
    facts.append(RatelimitChanged(pool=pool, ratelimit_s=ratelimit_s))
    facts += [NodeJoined(node=node) for node in workload.nodes]
    return InitialState(facts=tuple(facts))

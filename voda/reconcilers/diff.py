"""The difference between what the plan wants and what the cluster shows, as actions.

Rules: pure; first what frees GPUs, then what uses them; a GPU is free when it is observed free, and is promised
once; a job waits until all it needs is free, so that it is disturbed once. Repeated, it reaches any plan that fits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from voda.cluster.port import Observed
from voda.domain.plan import Action, HaltJob, MigrateWorkers, ResizeJob, StartJob, StopJob
from voda.domain.state import ClusterState
from voda.reconcilers.deadlock import Mover, to_halt


def diff(state: ClusterState, observed: Observed) -> tuple[Action, ...]:
    """Return what can be done now to make the cluster show the plan.

    Args:
        state: the live jobs and the plan in force.
        observed: what holds GPUs now.

    Returns:
        Halts and stops, shrinks, migrations, starts, growths, in this order; empty when all is as planned or
        has to wait for GPUs.
    """
    ends = _ends(state, observed)
    gaps = _gaps(state, observed)
    rescaled = _rescaled(state, observed) if observed.sizes else ()
    if not ends and not gaps and not rescaled:
        return ()
    step = _ActionPlan(free=_free(observed))
    for job_id, size in rescaled:
        planned = state.plan.placement[job_id]
        (step.shrinks if size > len(planned) else step.grows).append(ResizeJob(job_id=job_id, nodes=planned))
    for action in ends:
        step.ends.append(action)
        if workers := observed.workers.get(action.job_id):
            step.coming.update(_gpus_on(workers.values(), observed.gpus_per_replica[action.job_id]))
    gaps = [_shrunk(gap, step) if gap.is_surplus else gap for gap in gaps]
    waiting = [gap for gap in gaps if gap.moves and not step.move(gap)]
    for gap in gaps:
        if not gap.observed:
            step.start(gap)
    for gap in gaps:
        if gap.observed and not gap.moves:
            step.grow(gap)
    if waiting:
        step.halt_circles(state, waiting)
    return (*step.ends, *step.shrinks, *step.moves, *step.starts, *step.grows)


@dataclass(frozen=True, slots=True)
class _JobGap:
    """A job whose observed workers are not the planned ones."""

    job_id: str
    gpus: int
    """Per worker."""
    planned: tuple[str, ...]
    observed: Mapping[int, str]

    @property
    def is_surplus(self) -> bool:
        """Whether workers have to go."""
        return max(self.observed, default=-1) >= len(self.planned)

    @property
    def moves(self) -> Mapping[int, str]:
        """Index -> planned node, of the workers that are on another node."""
        planned = self.planned
        return {
            index: planned[index]
            for index, node in sorted(self.observed.items())
            if index < len(planned) and planned[index] != node
        }

    @property
    def missing(self) -> Sequence[str]:
        """Planned nodes of the workers that are not there."""
        return [node for index, node in enumerate(self.planned) if index not in self.observed]

    @property
    def needs(self) -> Counter[str]:
        """GPUs that must be free, by node, before the job can be as planned."""
        return _gpus_on([*self.moves.values(), *self.missing], self.gpus)

    @property
    def leaves(self) -> Counter[str]:
        """GPUs that the job's moves free, by node."""
        return _gpus_on([self.observed[index] for index in self.moves], self.gpus)


@dataclass(slots=True)
class _ActionPlan:
    """The actions of one step, and what they leave free."""

    free: dict[str, int]
    """node -> GPUs observed free and not yet promised; negative where more is held than the node has."""
    coming: Counter[str] = field(default_factory=Counter)
    """node -> GPUs that the actions of this step will free."""
    ends: list[HaltJob | StopJob] = field(default_factory=list)
    shrinks: list[ResizeJob] = field(default_factory=list)
    moves: list[MigrateWorkers] = field(default_factory=list)
    starts: list[StartJob] = field(default_factory=list)
    grows: list[ResizeJob] = field(default_factory=list)

    def promise(self, needs: Mapping[str, int]) -> bool:
        """Reserve all of it, or nothing."""
        if any(self.free.get(node, 0) < gpus for node, gpus in needs.items()):
            return False
        for node, gpus in needs.items():
            self.free[node] -= gpus
        return True

    def move(self, gap: _JobGap) -> bool:
        """Migrate what is elsewhere, and add what is missing in the same breath; False = it has to wait."""
        if not self.promise(gap.needs):
            return False
        self.moves.append(MigrateWorkers(job_id=gap.job_id, moves=gap.moves))
        self.coming.update(gap.leaves)
        if gap.missing:
            self.grows.append(ResizeJob(job_id=gap.job_id, nodes=gap.planned))
        return True

    def start(self, gap: _JobGap) -> None:
        """Start the job, whole or not yet."""
        if self.promise(gap.needs):
            self.starts.append(StartJob(job_id=gap.job_id, nodes=gap.planned))

    def grow(self, gap: _JobGap) -> None:
        """Add the missing workers, all or not yet."""
        if gap.missing and self.promise(gap.needs):
            self.grows.append(ResizeJob(job_id=gap.job_id, nodes=gap.planned))

    def halt_circles(self, state: ClusterState, waiting: Sequence[_JobGap]) -> None:
        """Halt a job of every circle of waiting moves; it starts at its planned place once that is free."""
        movers = [
            Mover(job_id=gap.job_id, needs=gap.needs, leaves=gap.leaves, halt_cost=_halt_cost(state, gap))
            for gap in waiting
        ]
        reachable = {node: self.free.get(node, 0) + self.coming[node] for node in {*self.free, *self.coming}}
        for job_id in to_halt(movers, reachable):
            self.ends.append(HaltJob(job_id=job_id))
            self.shrinks = [action for action in self.shrinks if action.job_id != job_id]


def _ends(state: ClusterState, observed: Observed) -> list[HaltJob | StopJob]:
    """Return the ends of all that holds workers, or is about to, and shall have none."""
    ends: list[HaltJob | StopJob] = []
    for job_id in sorted({*observed.workers, *observed.starting}):
        job = state.jobs.get(job_id)
        if not observed.workers.get(job_id) and job_id not in observed.starting:
            continue
        if job is None:
            ends.append(StopJob(job_id=job_id, reason="unknown"))
        elif job.is_canceling:
            ends.append(StopJob(job_id=job_id, reason="canceled"))
        elif job_id not in state.plan.placement:
            ends.append(HaltJob(job_id=job_id))
    return ends


def _gaps(state: ClusterState, observed: Observed) -> list[_JobGap]:
    """Return the planned jobs that are not as planned, the earliest submitted first."""
    gaps: list[_JobGap] = []
    for job_id, planned in state.plan.placement.items():
        workers = observed.workers.get(job_id, {})
        size = len(planned)
        # Nearly always the indices come in their order: two tuples are compared faster than looked up one by one.
        if len(workers) == size and tuple(workers.values()) == planned and tuple(workers) == _indices(size):
            continue
        if _is_as_planned(workers, planned):
            continue
        job = state.jobs.get(job_id)
        # The log is about to hear that a job has ended: it is not to be started for a plan that does not know yet.
        if job is not None and not job.is_canceling and job_id not in observed.ended:
            gaps.append(_JobGap(job_id, job.spec.gpus_per_replica, planned, workers))
    return sorted(gaps, key=lambda gap: (state.jobs[gap.job_id].submitted_at, gap.job_id))


def _is_as_planned(workers: Mapping[int, str], planned: Sequence[str]) -> bool:
    return len(workers) == len(planned) and all(workers.get(index) == node for index, node in enumerate(planned))


def _rescaled(state: ClusterState, observed: Observed) -> list[tuple[str, int]]:
    """Return the jobs whose workers are as planned but will not stay so, and how many the cluster shall keep.

    Somebody scaled such a job by hand. While workers differ from the plan, so may the sizes; and what closes the gap
    sets the size, too.
    """
    changed: list[tuple[str, int]] = []
    for job_id, size in sorted(observed.sizes.items()):
        job, planned = state.jobs.get(job_id), state.plan.placement.get(job_id, ())
        if job is None or job.is_canceling or job_id in observed.ended or not planned or size == len(planned):
            continue
        if _is_as_planned(observed.workers.get(job_id, {}), planned):
            changed.append((job_id, size))
    return changed


@cache
def _indices(size: int) -> tuple[int, ...]:
    return tuple(range(size))


def _free(observed: Observed) -> dict[str, int]:
    free = {name: node.usable_gpus for name, node in observed.nodes.items()}
    for job_id, workers in observed.workers.items():
        gpus = observed.gpus_per_replica[job_id] if workers else 0
        for node in workers.values():
            free[node] = free.get(node, 0) - gpus
    return free


def _shrunk(gap: _JobGap, step: _ActionPlan) -> _JobGap:
    """Take the surplus workers away, and return the gap that is left then.

    A resize names every index up to the last one, so a worker that died in between has to come back at once; where
    its GPUs are not free, the job is cut off below it.
    """
    nodes: list[str] = []
    for index, planned in enumerate(gap.planned):
        node = gap.observed.get(index)
        if node is None and step.promise({planned: gap.gpus}):
            node = planned
        if node is None:
            break
        nodes.append(node)
    gone = [node for index, node in gap.observed.items() if index >= len(nodes)]
    step.coming.update(_gpus_on(gone, gap.gpus))
    if nodes:
        step.shrinks.append(ResizeJob(job_id=gap.job_id, nodes=tuple(nodes)))
    else:
        step.ends.append(HaltJob(job_id=gap.job_id))
    return _JobGap(gap.job_id, gap.gpus, gap.planned, dict(enumerate(nodes)))


def _halt_cost(state: ClusterState, gap: _JobGap) -> float:
    """Return what a halt and a new start would lose, GPU-seconds."""
    estimate = state.estimates.get(gap.job_id)
    cost_s = estimate.resize_cost_s if estimate else state.settings.resize_cost_s
    return cost_s * gap.gpus * len(gap.observed)


def _gpus_on(nodes: Iterable[str], gpus: int) -> Counter[str]:
    """Return node -> GPUs, `gpus` for every time the node is named."""
    return Counter({node: times * gpus for node, times in Counter(nodes).items()})

"""The difference between the plan and the cluster, as actions.

Rules: pure; one action for a job at a time, which says all that is desired of it; actions that free GPUs come before
actions that use them; a GPU is free when it is observed free, and goes to one action only; a job waits until all its
GPUs are free, so that it restarts once. Repeated, it reaches every plan that fits: where moves wait in a cycle, each
for GPUs that the next one has to free, and nothing else opens the cycle, the job that loses least is halted.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress, repeat
from operator import ne
from typing import Final

from voda.cluster.port import Observed
from voda.domain.gpus import NO_GPUS, Gpus
from voda.domain.job import Job
from voda.domain.plan import Action, HaltJob, ResizeJob, StartJob, StopJob, places
from voda.domain.state import ClusterState

_NOBODY: Final[Mapping[int, str]] = {}


def diff(state: ClusterState, observed: Observed) -> tuple[Action, ...]:
    """Return the actions that can be taken now to bring the cluster to the plan.

    Halts and stops, shrinks, moves, starts, growths, in this order, one action for a job at most, and none that is
    under way; empty when everything is as planned or waits for GPUs.
    """
    ends = _ends(state, observed)
    gaps = _gaps(state, observed)
    rescaled = _rescaled(state, observed) if observed.sizes else ()
    if not ends and not gaps and not rescaled:
        return ()
    step = _ActionPlan(free=_free(observed, frozenset(node for gap in gaps for node in gap.planned)))
    for job_id, size in rescaled:
        planned = state.plan.placement[job_id]
        (step.shrinks if size > len(planned) else step.grows).append(ResizeJob(job_id=job_id, nodes=planned))
    for action in ends:
        step.ends.append(action)
        if workers := observed.workers.get(action.job_id):
            step.coming.update(_gpus_on(workers.values(), observed.gpus_per_replica[action.job_id]))
    gaps = [_shrunk(gap, step) if gap.is_surplus else gap for gap in gaps]
    # What a program waits for that failed would hold its GPUs idle.
    gaps = [gap for gap in gaps if gap.job_id not in observed.retries]
    waiting = [gap for gap in gaps if gap.moves and not step.move(gap)]
    for gap in gaps:
        if not gap.observed:
            step.start(gap)
    for gap in gaps:
        if gap.observed and not gap.moves:
            step.grow(gap)
    if waiting:
        step.halt_cycles(state, waiting)
    runs: tuple[StartJob | ResizeJob, ...] = (*step.shrinks, *step.moves, *step.starts, *step.grows)
    return (*step.ends, *(action for action in runs if observed.underway.get(action.job_id) != action.nodes))


@dataclass(frozen=True, slots=True)
class _JobGap:
    """A job whose observed workers are not the planned ones."""

    job_id: str
    gpus: Gpus
    """Per worker."""
    planned: tuple[str, ...]
    observed: Mapping[int, str]
    done: Collection[int] = ()
    """Replicas that succeeded, and never run again."""
    beside: tuple[str, ...] | None = None
    """As StartJob has it."""

    @property
    def is_surplus(self) -> bool:
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
        """Planned nodes of the workers that are missing."""
        there = {*self.observed, *self.done}
        return [node for index, node in enumerate(self.planned) if index not in there]

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
    """The actions of one step, and the GPUs they leave free."""

    free: dict[str, Gpus]
    """node -> GPUs observed free and not yet reserved; negative where workers hold more than the node has."""
    coming: Counter[str] = field(default_factory=Counter)
    """node -> GPUs that the actions of this step will free."""
    ends: list[HaltJob | StopJob] = field(default_factory=list)
    shrinks: list[ResizeJob] = field(default_factory=list)
    moves: list[ResizeJob] = field(default_factory=list)
    starts: list[StartJob] = field(default_factory=list)
    grows: list[ResizeJob] = field(default_factory=list)

    def reserve(self, needs: Mapping[str, int]) -> bool:
        """Reserve all of it, or nothing."""
        # Workers that need no GPU start where others have more than all of them.
        if any(gpus and self.free.get(node, 0) < gpus for node, gpus in needs.items()):
            return False
        for node, gpus in needs.items():
            self.free[node] -= gpus
        return True

    def move(self, gap: _JobGap) -> bool:
        """Move the workers that are elsewhere and add the missing ones; False = the job has to wait."""
        if not self.reserve(gap.needs):
            return False
        # One action says it all: a shrink of this step would ask for a state on the way.
        self.shrinks = [action for action in self.shrinks if action.job_id != gap.job_id]
        self.moves.append(ResizeJob(job_id=gap.job_id, nodes=gap.planned))
        self.coming.update(gap.leaves)
        return True

    def start(self, gap: _JobGap) -> None:
        if self.reserve(gap.needs):
            self.starts.append(StartJob(job_id=gap.job_id, nodes=gap.planned, beside=gap.beside))

    def grow(self, gap: _JobGap) -> None:
        if gap.missing and self.reserve(gap.needs):
            self.grows.append(ResizeJob(job_id=gap.job_id, nodes=gap.planned))

    def halt_cycles(self, state: ClusterState, waiting: Sequence[_JobGap]) -> None:
        """Halt a job of every cycle of waiting moves; it starts on its planned nodes once they are free."""
        movers = [
            Mover(job_id=gap.job_id, needs=gap.needs, leaves=gap.leaves, halt_cost=_halt_cost(state, gap))
            for gap in waiting
        ]
        reachable = {node: self.free.get(node, 0) + self.coming[node] for node in {*self.free, *self.coming}}
        for job_id in jobs_to_halt(movers, reachable):
            self.ends.append(HaltJob(job_id=job_id))
            self.shrinks = [action for action in self.shrinks if action.job_id != job_id]


def _ends(state: ClusterState, observed: Observed) -> list[HaltJob | StopJob]:
    """Return the ends of all jobs that have workers, or are starting some, and should have none."""
    ends: list[HaltJob | StopJob] = []
    jobs, planned = state.jobs, state.plan.placement
    at_work, starting = observed.workers.keys(), {*observed.starting}
    canceled = {job_id for job_id, job in state.special_jobs.items() if job.is_canceling}
    ending = (
        (at_work - planned.keys()) | (at_work - jobs.keys()) | (starting - planned.keys()) | (starting - jobs.keys())
    )
    for job_id in sorted(ending | (canceled & at_work) | (canceled & starting)):
        if not (observed.workers.get(job_id) or job_id in starting):
            continue
        job = jobs.get(job_id)
        if job is None:
            ends.append(StopJob(job_id=job_id, reason="unknown"))
        elif job.is_canceling:
            ends.append(StopJob(job_id=job_id, reason="canceled", is_kill=job.is_killed))
        elif job_id not in planned:
            ends.append(HaltJob(job_id=job_id, is_kill=job_id in state.overdue))
    return ends


def _gaps(state: ClusterState, observed: Observed) -> list[_JobGap]:
    """Return the planned jobs whose workers differ from the plan, the earliest submitted first."""
    wanting: dict[str, tuple[Job, Mapping[int, str]]] = {}
    placement, at_work = state.plan.placement, observed.workers
    # Nearly all are as planned.
    found, wanted = map(at_work.get, placement, repeat(_NOBODY)), map(_in_order, placement.values())
    for job_id in compress(placement, map(ne, found, wanted)):
        planned, workers = placement[job_id], at_work.get(job_id, _NOBODY)
        job = state.jobs.get(job_id)
        done = job.done if job is not None else ()
        if _is_as_planned(workers, planned, done):
            continue
        # The log does not know yet that a job has ended: do not start it for a plan that still has it.
        if job is not None and not job.is_canceling and job_id not in observed.ended:
            wanting[job_id] = job, workers
    beside = state.plan.beside(job_id for job_id, (job, _) in wanting.items() if job.spec.share is not None)
    gaps: list[_JobGap] = []
    for job_id, (job, workers) in wanting.items():
        planned, mates = state.plan.placement[job_id], beside.get(job_id)
        gpus = _gpus_per_worker(job, planned, observed, mates)
        if gpus is not None:
            gaps.append(_JobGap(job_id, gpus, planned, workers, job.done, mates))
    return sorted(gaps, key=lambda gap: (state.jobs[gap.job_id].submitted_at, gap.job_id))


def _gpus_per_worker(
    job: Job, planned: Sequence[str], observed: Observed, beside: Collection[str] | None
) -> Gpus | None:
    """Return the GPUs that must be free for each worker; one for a part of a GPU that no shared GPU has left, None
    where it has to wait until its GPU has so much left.
    """
    if job.spec.share is None:
        return job.spec.gpus_per_replica
    account = (observed.shares or {}).get(planned[0])
    if account is not None and account.has_room_beside_others(job.spec.share, beside):
        return NO_GPUS
    return None if account is not None and beside and account.gpus_of(beside) else Gpus(1)


def _is_as_planned(workers: Mapping[int, str], planned: Sequence[str], done: Collection[int] = ()) -> bool:
    if done:
        return workers == {index: node for index, node in enumerate(planned) if index not in done}
    return len(workers) == len(planned) and all(workers.get(index) == node for index, node in enumerate(planned))


def _rescaled(state: ClusterState, observed: Observed) -> list[tuple[str, int]]:
    """Return the jobs whose workers are as planned while their object has another size, with that size.

    Somebody scaled such a job by hand. While workers differ from the plan, so may the size; the action that corrects
    the workers sets the size as well.
    """
    changed: list[tuple[str, int]] = []
    for job_id, size in sorted(observed.sizes.items()):
        job, planned = state.jobs.get(job_id), state.plan.placement.get(job_id, ())
        if job is None or job.is_canceling or job_id in observed.ended or not planned or size == len(planned):
            continue
        if _is_as_planned(observed.workers.get(job_id, {}), planned, job.done):
            changed.append((job_id, size))
    return changed


@lru_cache(maxsize=1 << 15)
def _in_order(planned: tuple[str, ...]) -> Mapping[int, str]:
    return dict(enumerate(planned))


def _free(observed: Observed, names: frozenset[str]) -> dict[str, Gpus]:
    """Return how many GPUs of these nodes are free; no action needs any of others."""
    shared = {name: account.used_gpus() for name, account in (observed.shares or {}).items() if name in names}
    free = dict.fromkeys(names, NO_GPUS)
    for name in names & observed.nodes.keys():
        free[name] = Gpus(observed.nodes[name].usable_gpus - shared.get(name, 0))
    for job_id, workers in observed.workers.items():
        for node in names.intersection(workers.values()):
            used = observed.gpus_per_replica[job_id] * sum(each == node for each in workers.values())
            free[node] = Gpus(free[node] - used)
    return free


def _shrunk(gap: _JobGap, step: _ActionPlan) -> _JobGap:
    """Remove the surplus workers, and return the remaining gap.

    A worker that is missing among the others starts with it where its GPUs are free, and else once they are.
    """
    nodes: list[str] = []
    for index, planned in enumerate(gap.planned):
        node = gap.observed.get(index, "")
        if not node and (index in gap.done or step.reserve({planned: gap.gpus})):
            node = planned
        nodes.append(node)
    while nodes and not nodes[-1]:
        nodes.pop()
    surplus = [node for index, node in gap.observed.items() if index >= len(gap.planned)]
    step.coming.update(_gpus_on(surplus, gap.gpus))
    if nodes:
        size = len(gap.planned) if len(nodes) < len(gap.planned) else 0
        step.shrinks.append(ResizeJob(job_id=gap.job_id, nodes=tuple(nodes), planned=size))
    else:
        step.ends.append(HaltJob(job_id=gap.job_id))
    return _JobGap(gap.job_id, gap.gpus, gap.planned, places(nodes), gap.done)


def _halt_cost(state: ClusterState, gap: _JobGap) -> float:
    """Return what a halt and a new start would lose, GPU-seconds."""
    estimate = state.estimates.get(gap.job_id)
    cost_s = estimate.resize_cost_s if estimate else state.settings.resize_cost_s
    return cost_s * gap.gpus * len(gap.observed)


def _gpus_on(nodes: Iterable[str], gpus: Gpus) -> Counter[str]:
    """Return node -> GPUs, `gpus` for every time the node is named."""
    return Counter({node: times * gpus for node, times in Counter(nodes).items()})


@dataclass(frozen=True, slots=True)
class Mover:
    """A job that waits for free GPUs before it moves."""

    job_id: str
    needs: Mapping[str, int]
    """node -> GPUs that must be free there."""
    leaves: Mapping[str, int]
    """node -> GPUs it frees there by moving."""
    halt_cost: float
    """What a halt loses, GPU-seconds; compared only."""


def jobs_to_halt(movers: Sequence[Mover], free: Mapping[str, int]) -> tuple[str, ...]:
    """Return the cheapest job of each cycle of waiting jobs, ties by id.

    A job that waits for something else is never among them. `free` is node -> GPUs free once all present actions are
    done.
    """
    free_gpus = defaultdict(int, free)
    waiting = {mover.job_id: mover for mover in sorted(movers, key=lambda mover: mover.job_id)}
    halted: list[str] = []
    while True:
        _move_those_that_fit(waiting, free_gpus)
        cycle = _cycle(waiting, free_gpus)
        if not cycle:
            return tuple(halted)
        victim = min(cycle, key=lambda mover: (mover.halt_cost, mover.job_id))
        halted.append(victim.job_id)
        _release(waiting.pop(victim.job_id), free_gpus)


def _move_those_that_fit(waiting: dict[str, Mover], free_gpus: dict[str, int]) -> None:
    has_moved = True
    while has_moved:
        has_moved = False
        for mover in list(waiting.values()):
            if all(free_gpus[node] >= gpus for node, gpus in mover.needs.items()):
                for node, gpus in mover.needs.items():
                    free_gpus[node] -= gpus
                _release(waiting.pop(mover.job_id), free_gpus)
                has_moved = True


def _release(mover: Mover, free_gpus: dict[str, int]) -> None:
    for node, gpus in mover.leaves.items():
        free_gpus[node] += gpus


def _cycle(waiting: Mapping[str, Mover], free_gpus: Mapping[str, int]) -> Sequence[Mover]:
    """Return jobs of which each waits for the next, and the last for the first; empty if there are none."""
    leaving = defaultdict(list)
    for mover in waiting.values():
        for node in mover.leaves:
            leaving[node].append(mover.job_id)
    waits_for = {
        mover.job_id: {other for node, gpus in mover.needs.items() if free_gpus[node] < gpus for other in leaving[node]}
        for mover in waiting.values()
    }
    _drop_jobs_outside_cycles(waits_for)
    path: dict[str, None] = {}
    job_id = min(waits_for, default=None)
    while job_id is not None and job_id not in path:
        path[job_id] = None
        job_id = min(waits_for[job_id])
    members = list(path)
    return [waiting[member] for member in members[members.index(job_id) :]] if job_id is not None else []


def _drop_jobs_outside_cycles(waits_for: dict[str, set[str]]) -> None:
    """Drop jobs that wait for no other job, until none is left: halting another one would not help them."""
    while ends := {job_id for job_id, others in waits_for.items() if not others}:
        for job_id in ends:
            del waits_for[job_id]
        for others in waits_for.values():
            others -= ends

"""The simulated cluster: an adapter of the Cluster port on virtual time.

Rule: it knows profiles, never plans or policies; everything that happens to a worker becomes a notice.
"""

import asyncio
import heapq
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from voda.cluster.port import Observed
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.plan import Action, HaltJob, MigrateWorkers, ResizeJob, StartJob, StopJob
from voda.events.types import (
    ExitCause,
    JobCompleted,
    JobProgressed,
    NodeChanged,
    NodeJoined,
    NodeLeft,
    Observation,
    WorkerExited,
    WorkerStarted,
)
from voda.simulator.profiles.base import Profile
from voda.simulator.training import EpochEnd, Training, exact_end


class EpochEnds:
    """A heap of the instants at which epochs end; an entry is stale once its job has been placed anew."""

    def __init__(self, placed: Mapping[str, Training]) -> None:
        self._placed = placed
        self._heap: list[tuple[float, int, int, str]] = []
        self._entries = 0

    def add(self, training: Training) -> None:
        """Add the end of the job's current epoch, if it has one."""
        if (at := training.next_end_at()) < math.inf:
            self._entries += 1
            heapq.heappush(self._heap, (at, self._entries, training.turn, training.spec.job_id))

    def next_at(self) -> float:
        """Return the earliest end; infinite when nothing trains."""
        while self._heap:
            at, _, turn, job_id = self._heap[0]
            training = self._placed.get(job_id)
            if training is not None and training.turn == turn:
                return at
            heapq.heappop(self._heap)
        return math.inf

    def pop(self) -> tuple[float, Training]:
        """Remove the earliest end, and return it with its job; call `next_at` first."""
        at, _, _, job_id = heapq.heappop(self._heap)
        return at, self._placed[job_id]


class SimulatedNodes:
    """Nodes, and how many GPUs of each are held."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.by_name = {node.name: node for node in nodes}
        self._used = dict.fromkeys(self.by_name, 0)

    def change(self, fact: NodeJoined | NodeChanged | NodeLeft) -> bool:
        """Take over a fact about a node; return whether workers on it survive."""
        name = fact.name if isinstance(fact, NodeLeft) else fact.node.name
        self._used.setdefault(name, 0)
        if isinstance(fact, NodeLeft):
            self.by_name.pop(name, None)
        else:
            self.by_name[name] = fact.node
        return name in self.by_name and self.by_name[name].is_ready

    def hold(self, training: Training) -> None:
        """Count the GPUs of a job that runs already."""
        for node in training.workers.values():
            self._used[node] = self._used.get(node, 0) + training.spec.gpus_per_replica

    def move(self, training: Training, gone: Iterable[int], new: Mapping[int, str]) -> None:
        """Move the job's GPUs from node to node.

        Args:
            training: the job, its workers as they are now.
            gone: workers that leave their nodes.
            new: worker -> node that it joins.

        Raises:
            ActionRefused: a node has no room; everything stays as it was.
        """
        gpus = training.spec.gpus_per_replica
        delta = Counter[str]()
        for name in new.values():
            delta[name] += gpus
        for index in gone:
            delta[training.workers[index]] -= gpus
        for name, more in delta.items():
            node = self.by_name.get(name)
            if more > 0 and (node is None or self._used[name] + more > node.usable_gpus):
                free = node.usable_gpus - self._used[name] if node else 0
                raise ActionRefused(f"job {training.spec.job_id}: needs {more} more GPUs on node {name}, {free} free")
        for name, more in delta.items():
            self._used[name] += more


class SimulatedCluster:
    """Nodes, and jobs that train at the speed of their profiles."""

    def __init__(self, nodes: Iterable[Node], *, now: Callable[[], float], end_of: EpochEnd = exact_end) -> None:
        self._nodes = SimulatedNodes(nodes)
        self._now = now
        self._end_of = end_of
        self._admitted: dict[str, Training] = {}
        self._placed: dict[str, Training] = {}
        self._ends = EpochEnds(self._placed)
        self._notices: list[Observation] = []
        self._has_notices = asyncio.Event()

    def admit(self, spec: JobSpec, profile: Profile) -> None:
        """Make a job known, as its manifest and image would; an action starts it."""
        self._admitted.setdefault(spec.job_id, Training(spec, profile, self._end_of))

    def resume(self, training: Training) -> None:
        """Make a job known as it stands; workers it has hold their GPUs, without a notice of their start."""
        job_id = training.spec.job_id
        self._admitted[job_id] = training
        if training.workers:
            self._nodes.hold(training)
            self._placed[job_id] = training
            self._ends.add(training)
        if training.is_done:
            self._complete(job_id)

    def respecify(self, spec: JobSpec) -> None:
        """Give a job new bounds."""
        if (training := self._admitted.get(spec.job_id)) is not None:
            training.respecify(spec, self._now())
            if training.workers:
                self._ends.add(training)

    async def observe(self) -> Observed:
        """See Cluster.observe."""
        return Observed(
            nodes=dict(self._nodes.by_name),
            workers={job_id: training.workers for job_id, training in self._placed.items()},
            gpus_per_replica={job_id: training.spec.gpus_per_replica for job_id, training in self._placed.items()},
        )

    async def apply(self, action: Action) -> None:
        """See Cluster.apply; takes effect at once, its cost is time during which the job stands still.

        Raises:
            ActionRefused: no such job or node, or no room.
        """
        match action:
            case StartJob() | ResizeJob():
                self._resize(action.job_id, action.nodes)
            case MigrateWorkers():
                self._migrate(action.job_id, action.moves)
            case HaltJob():
                self._release(action.job_id, "stopped")
            case StopJob():
                self._release(action.job_id, "finished" if action.reason == "completed" else "stopped")
                self._admitted.pop(action.job_id, None)

    async def watch(self) -> AsyncIterator[Observation]:
        """See Cluster.watch."""
        while True:
            for notice in self.take_notices():
                yield notice
            self._has_notices.clear()
            await self._has_notices.wait()

    def take_notices(self) -> Sequence[Observation]:
        """Return what happened since the last call."""
        taken, self._notices = self._notices, []
        return taken

    @property
    def is_idle(self) -> bool:
        """Whether no job holds a worker."""
        return not self._placed

    def next_at(self) -> float:
        """Return the instant of the next epoch's end; infinite when nothing trains."""
        return self._ends.next_at()

    def advance(self, now: float) -> None:
        """End every epoch that is due by `now`."""
        while self._ends.next_at() <= now:
            at, training = self._ends.pop()
            self._finish_epoch(training, at)

    def fail_worker(self, job_id: str, index: int) -> None:
        """Let one worker die; its job falls back to its last checkpoint."""
        if (training := self._placed.get(job_id)) is not None and index in training.workers:
            self._lose(training, [index], "failed")

    def set_ready(self, name: str, is_ready: bool) -> None:
        """Let a node and all workers on it die, or bring it back."""
        node = self._nodes.by_name[name]
        if node.is_ready != is_ready:
            self.change_node(NodeChanged(node=replace(node, is_ready=is_ready)))

    def change_node(self, fact: NodeJoined | NodeChanged | NodeLeft) -> None:
        """Let a node join, change or leave; the workers on one that leaves or is not ready die."""
        self._notify(fact)
        if not self._nodes.change(fact):
            self._lose_node(fact.name if isinstance(fact, NodeLeft) else fact.node.name)

    def workers(self) -> Mapping[str, Sequence[int]]:
        """Return the worker indices of every running job, in the order of starts."""
        return {job_id: tuple(training.workers) for job_id, training in self._placed.items()}

    def _finish_epoch(self, training: Training, at: float) -> None:
        job_id, epoch_s = training.spec.job_id, training.epoch_s
        samples_per_s = None if training.is_disturbed else training.samples_per_s()
        was_disturbed = training.is_disturbed
        training.finish_epoch(at)
        self._notify(
            JobProgressed(
                job_id=job_id,
                epochs_done=training.epochs_done,
                workers=len(training.workers),
                epoch_s=None if was_disturbed else epoch_s / training.epochs_each,
                samples_per_s=samples_per_s,
            )
        )
        if training.is_done:
            self._complete(job_id)
        else:
            self._ends.add(training)

    def _complete(self, job_id: str) -> None:
        self._notify(JobCompleted(job_id=job_id))
        self._release(job_id, "finished")
        del self._admitted[job_id]

    def _resize(self, job_id: str, nodes: Sequence[str]) -> None:
        training = self._training(job_id)
        costs = training.profile.costs
        self._place(
            training,
            dict(enumerate(nodes)),
            cost_s=costs.resize_s if training.workers else costs.start_s,
            cause="stopped",
        )

    def _migrate(self, job_id: str, moves: Mapping[int, str]) -> None:
        training = self._training(job_id)
        moved = {index: node for index, node in moves.items() if index in training.workers}
        self._place(training, {**training.workers, **moved}, cost_s=training.profile.costs.migrate_s, cause="migrated")

    def _release(self, job_id: str, cause: ExitCause) -> None:
        if (training := self._placed.get(job_id)) is not None:
            self._place(training, {}, cost_s=0.0, cause=cause)

    def _lose_node(self, name: str) -> None:
        for training in list(self._placed.values()):
            if lost := [index for index, node in training.workers.items() if node == name]:
                self._lose(training, lost, "node_lost")

    def _lose(self, training: Training, lost: Sequence[int], cause: ExitCause) -> None:
        training.fall_back(self._now())
        left = {index: node for index, node in training.workers.items() if index not in lost}
        self._place(training, left, cost_s=training.profile.costs.resize_s, cause=cause)

    def _place(self, training: Training, workers: Mapping[int, str], *, cost_s: float, cause: ExitCause) -> None:
        before = training.workers
        if workers == before:
            return
        gone = tuple(index for index, node in before.items() if workers.get(index) != node)
        new = {index: node for index, node in workers.items() if before.get(index) != node}
        self._nodes.move(training, gone, new)
        training.place(workers, self._now(), cost_s=cost_s)
        job_id = training.spec.job_id
        if gone:
            self._notify(WorkerExited(job_id=job_id, workers=gone, cause=cause))
        if new:
            self._notify(WorkerStarted(job_id=job_id, workers=new))
        if workers:
            self._placed[job_id] = training
            self._ends.add(training)
        else:
            del self._placed[job_id]

    def _training(self, job_id: str) -> Training:
        try:
            return self._admitted[job_id]
        except KeyError:
            raise ActionRefused(f"job {job_id}: not known to the cluster") from None

    def _notify(self, notice: Observation) -> None:
        self._notices.append(notice)
        self._has_notices.set()

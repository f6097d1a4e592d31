"""The simulated cluster: an adapter of the Cluster port on virtual time.

Rule: it knows profiles, but no plans and no policies; every change of a worker is a notice.
"""

import asyncio
import heapq
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from voda.cluster.attempts import Attempts
from voda.cluster.port import Observed
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.plan import Action, HaltJob, ResizeJob, StartJob, StopJob, places
from voda.events import types as facts
from voda.simulator.training import EpochEnd, Training, exact_end
from voda.simulator.workload import Profile


class DueReports:
    """A heap of the instants at which jobs report next; an entry is stale once its job is placed anew."""

    def __init__(self, placed: Mapping[str, Training]) -> None:
        self._placed = placed
        self._heap: list[tuple[float, int, int, str]] = []
        self._entries = 0

    def add(self, training: Training) -> None:
        """Add the job's next report, if there will be one."""
        if (at := training.next_report_at()) < math.inf:
            self._entries += 1
            heapq.heappush(self._heap, (at, self._entries, training.turn, training.spec.job_id))

    def next_at(self) -> float:
        """Return the earliest report; infinite when nothing trains."""
        while self._heap:
            at, _, turn, job_id = self._heap[0]
            training = self._placed.get(job_id)
            if training is not None and training.turn == turn:
                return at
            heapq.heappop(self._heap)
        return math.inf

    def pop(self) -> tuple[float, Training]:
        """Remove the earliest report, and return it with its job; call `next_at` first."""
        at, _, _, job_id = heapq.heappop(self._heap)
        return at, self._placed[job_id]


class SimulatedNodes:
    def __init__(self, nodes: Iterable[Node]) -> None:
        self.by_name = {node.name: node for node in nodes}
        self._used = dict.fromkeys(self.by_name, 0)

    def change(self, fact: facts.NodeFact) -> str | None:
        """Take over a fact about a node; return the node's name if the workers on it fail."""
        match fact:
            case facts.NodeLeft(name=name):
                self.by_name.pop(name, None)
            case facts.NodeRoomChanged(name=name):
                if (node := self.by_name.get(name)) is not None:
                    self.by_name[name] = replace(node, room=fact.room)
            case facts.NodeJoined(node=node) | facts.NodeChanged(node=node):
                name = node.name
                self.by_name[name] = node
        self._used.setdefault(name, 0)
        return None if name in self.by_name and self.by_name[name].is_ready else name

    def hold(self, training: Training) -> None:
        """Count the GPUs of a job that runs already."""
        for node in training.workers.values():
            self._used[node] = self._used.get(node, 0) + training.spec.gpus_per_replica

    def move(self, training: Training, gone: Iterable[int], new: Mapping[int, str]) -> None:
        """Move the GPUs of the job's workers `gone` to the nodes of the workers `new`.

        Raises:
            ActionRefused: a node has too few free GPUs; nothing changes.
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
        self._reports = DueReports(self._placed)
        self._notices = asyncio.Queue[facts.Observation]()
        self._attempts = Attempts(self.apply, self._notices.put_nowait, now)

    def admit(self, spec: JobSpec, profile: Profile) -> None:
        """Add a job, as its manifest and image would; an action starts it."""
        self._admitted.setdefault(spec.job_id, Training(spec, profile, self._end_of))

    def resume(self, training: Training) -> None:
        """Add a job with its present progress; its workers hold their GPUs, without a notice of their start."""
        job_id = training.spec.job_id
        self._admitted[job_id] = training
        if training.workers:
            self._nodes.hold(training)
            self._placed[job_id] = training
            self._reports.add(training)
        if training.is_done:
            self._complete(job_id)

    def respecify(self, spec: JobSpec) -> None:
        if (training := self._admitted.get(spec.job_id)) is not None:
            training.respecify(spec, self._now())
            if training.workers:
                self._reports.add(training)

    async def observe(self) -> Observed:
        return Observed(
            nodes=dict(self._nodes.by_name),
            workers={job_id: training.workers for job_id, training in self._placed.items()},
            gpus_per_replica={job_id: training.spec.gpus_per_replica for job_id, training in self._placed.items()},
        )

    async def set_desired(self, actions: Sequence[Action]) -> float:
        return await self._attempts.make(actions)

    async def apply(self, action: Action) -> None:
        """Carry out one action at once; the job pauses for as long as it costs.

        Raises:
            ActionRefused: no such job or node, or too few free GPUs.
        """
        match action:
            case StartJob() | ResizeJob():
                self._start_or_change(action)
            case HaltJob():
                self._release(action.job_id, "stopped")
            case StopJob():
                self._release(action.job_id, "finished" if action.reason == "completed" else "stopped")
                self._admitted.pop(action.job_id, None)

    async def watch(self) -> AsyncIterator[facts.Observation]:
        while True:
            yield await self._notices.get()

    def take_notices(self) -> Sequence[facts.Observation]:
        return [self._notices.get_nowait() for _ in range(self._notices.qsize())]

    def next_at(self) -> float:
        """Return the instant of the next report; infinite when nothing trains."""
        return self._reports.next_at()

    def advance(self, now: float) -> None:
        while self._reports.next_at() <= now:
            at, training = self._reports.pop()
            self._notices.put_nowait(_report(training, at))
            if training.is_done:
                self._complete(training.spec.job_id)
            else:
                self._reports.add(training)

    def fail_worker(self, job_id: str, index: int) -> None:
        """Let one worker fail; its job falls back to its last checkpoint."""
        if (training := self._placed.get(job_id)) is not None and index in training.workers:
            self._lose(training, [index], "failed")

    def set_ready(self, name: str, is_ready: bool) -> None:
        """Let a node fail with all workers on it, or bring it back."""
        node = self._nodes.by_name[name]
        if node.is_ready != is_ready:
            self.change_node(facts.NodeChanged(node=replace(node, is_ready=is_ready)))

    def change_node(self, fact: facts.NodeFact) -> None:
        """Let a node join, change or leave; if it leaves or is not ready, the workers on it fail."""
        self._notices.put_nowait(fact)
        if (name := self._nodes.change(fact)) is None:
            return
        for training in list(self._placed.values()):
            if lost := [index for index, node in training.workers.items() if node == name]:
                self._lose(training, lost, "node_lost")

    def workers(self) -> Mapping[str, Sequence[int]]:
        """Return the worker indices of every running job, in the order of starts."""
        return {job_id: tuple(training.workers) for job_id, training in self._placed.items()}

    def _complete(self, job_id: str) -> None:
        self._notices.put_nowait(facts.JobCompleted(job_id=job_id))
        self._release(job_id, "finished")
        del self._admitted[job_id]

    def _start_or_change(self, action: StartJob | ResizeJob) -> None:
        if (training := self._admitted.get(action.job_id)) is None:
            raise ActionRefused(f"job {action.job_id}: not known to the cluster")
        before, after = training.workers, places(action.nodes)
        is_moving = any(before.get(index, node) != node for index, node in after.items())
        costs = training.profile.costs
        cost_s = costs.resize_s if before.keys() != after.keys() else costs.migrate_s
        if before and is_moving:
            cost_s = max(cost_s, costs.migrate_s)
        self._place(training, after, cost_s=cost_s if before else costs.start_s, cause="stopped")

    def _release(self, job_id: str, cause: facts.ExitCause) -> None:
        if (training := self._placed.get(job_id)) is not None:
            self._place(training, {}, cost_s=0.0, cause=cause)

    def _lose(self, training: Training, lost: Sequence[int], cause: facts.ExitCause) -> None:
        training.fall_back(self._now())
        left = {index: node for index, node in training.workers.items() if index not in lost}
        self._place(training, left, cost_s=training.profile.costs.resize_s, cause=cause)

    def _place(self, training: Training, workers: Mapping[int, str], *, cost_s: float, cause: facts.ExitCause) -> None:
        before = training.workers
        if workers == before:
            return
        gone = tuple(index for index, node in before.items() if workers.get(index) != node)
        new = {index: node for index, node in workers.items() if before.get(index) != node}
        self._nodes.move(training, gone, new)
        training.place(workers, self._now(), cost_s=cost_s)
        job_id = training.spec.job_id
        moved = tuple(index for index in gone if index in workers)
        if ended := tuple(index for index in gone if index not in workers):
            self._notices.put_nowait(facts.WorkerExited(job_id=job_id, workers=ended, cause=cause))
        if moved:
            self._notices.put_nowait(facts.WorkerExited(job_id=job_id, workers=moved, cause="migrated"))
        if new:
            self._notices.put_nowait(facts.WorkerStarted(job_id=job_id, workers=new))
        if workers:
            self._placed[job_id] = training
            self._reports.add(training)
        else:
            del self._placed[job_id]


def _report(training: Training, at: float) -> facts.JobProgressed:
    """Return the job's report at that instant, and finish its epoch where it ends then."""
    epoch_s, was_disturbed = training.epoch_s / training.epochs_each, training.is_disturbed
    samples_per_s = training.samples_per_s()
    is_end = at >= training.next_end_at()
    if is_end:
        training.finish_epoch(at)
    return facts.JobProgressed(
        job_id=training.spec.job_id,
        epochs_done=training.epochs_done if is_end else training.report_share(at),
        workers=len(training.workers),
        epoch_s=epoch_s if is_end and not was_disturbed else None,
        samples_per_s=samples_per_s,
        epoch_samples=samples_per_s * epoch_s if samples_per_s is not None else None,
    )

"""What is really so in the cluster: nodes, workers and the GPUs they hold, whatever anybody was told of it.

Rules: a worker holds its GPUs from the instant it is asked for until it is gone, and going takes time; a node is never
overfull, because the cluster refuses; what happens is told at that instant, as facts in their order.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from tests.dst.training import Training
from voda.cluster.port import Observed
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.plan import Action, HaltJob, ResizeJob, StartJob, StopJob, places
from voda.domain.reasons.nodes import Said
from voda.events.types import (
    ExitCause,
    JobCompleted,
    JobFailed,
    NodeChanged,
    NodeJoined,
    NodeLeft,
    Observation,
    WorkerExited,
    WorkerStarted,
)

_KEPT: Final = 64
"""Former sights of a pool that a lagging observer may still be shown."""


class Held(Struct, kw_only=True):
    """A worker, and the GPUs that it holds."""

    node: str
    gpus: int
    state: Literal["starting", "running", "ending"] = "starting"
    since_s: float
    cause: ExitCause = "stopped"
    """Of its end, once it is ending."""


class Pace(Struct, frozen=True, kw_only=True):
    """How long workers take, seconds, shortest and longest."""

    start_s: tuple[float, float] = (2.0, 40.0)
    end_s: tuple[float, float] = (0.5, 30.0)


class Surroundings(Protocol):
    """What the cluster needs of its world."""

    @property
    def now_s(self) -> float:
        """Return the seconds since the beginning."""
        ...

    def later(self, span_s: float, act: Callable[..., object], *args: Any) -> object:
        """Have something done after a while."""
        ...

    def draw(self, bounds: tuple[float, float]) -> float:
        """Draw a number."""
        ...

    def changed(self, what: str) -> None:
        """Hear that something is different now."""
        ...

    def trained(self, job_id: str, epochs: int, workers: int, epoch_s: float | None) -> None:
        """Hear that a job has finished an epoch."""
        ...

    def training(self, spec: JobSpec) -> Training:
        """Return how a job begins."""
        ...


class _Work(Struct, kw_only=True):
    """What the cluster knows of a job."""

    spec: JobSpec
    training: Training
    workers: dict[int, Held]
    wish: tuple[str, ...] = ()
    """Nodes by index, as the last accepted action has it."""
    is_disturbed: bool = True
    """Whether its workers changed in the epoch under way."""


class TrueCluster:
    """See the module."""

    def __init__(self, nodes: Sequence[Node], around: Surroundings, pace: Pace | None = None) -> None:
        self.nodes: dict[str, Node] = {node.name: node for node in nodes}
        self.ended: dict[str, JobCompleted | JobFailed] = {}
        self.listeners: list[Callable[[str, Observation], None]] = []
        """Are told (pool, fact)."""
        self.stuck: dict[str, object] = {}
        """Job -> why none of its workers gets a GPU."""
        self._work: dict[str, _Work] = {}
        self._around = around
        self._pace = pace or Pace()
        self._sights: dict[str, list[tuple[float, Observed]]] = {}
        """Pool -> what it showed and since when, oldest first."""
        for pool in {node.pool: None for node in nodes}:
            self._sights[pool] = [(0.0, self._look(pool))]

    # ---- what there is

    @property
    def workers(self) -> Mapping[str, Mapping[int, Held]]:
        """Return job id -> worker index -> what it holds, of the jobs that hold something."""
        return {job_id: work.workers for job_id, work in self._work.items() if work.workers}

    def used(self, node: str) -> int:
        """Return the GPUs held on a node."""
        return sum(held.gpus for work in self._work.values() for held in work.workers.values() if held.node == node)

    def observed(self, pool: str, *, age_s: float = 0.0) -> tuple[float, Observed]:
        """Return what the pool shows, or showed that long ago, and since when it did."""
        before_s = self._around.now_s - age_s
        sights = self._sights[pool]
        return next((sight for sight in reversed(sights) if sight[0] <= before_s), sights[0])

    # ---- what voda asks for

    def apply(self, action: Action, spec: JobSpec | None) -> None:
        """Begin to carry out an action.

        Args:
            action: as Cluster.apply takes it.
            spec: of its job, as whoever asks has it; None = it does not know the job.

        Raises:
            ActionRefused: no such job or node, or no room.
        """
        match action:
            case HaltJob() | StopJob():
                if (work := self._work.get(action.job_id)) is not None:
                    work.wish = ()
                    self._end(work, list(work.workers), "stopped")
            case StartJob() | ResizeJob():
                self._resize(self._known(action.job_id, spec), action.nodes)

    def _known(self, job_id: str, spec: JobSpec | None) -> _Work:
        if job_id in self.ended:
            raise ActionRefused(f"job {job_id}: it has ended")
        if job_id not in self._work:
            if spec is None:
                raise ActionRefused(f"job {job_id}: not known to the cluster")
            self._work[job_id] = _Work(spec=spec, training=self._around.training(spec), workers={})
        return self._work[job_id]

    def _resize(self, work: _Work, nodes: Sequence[str]) -> None:
        """Let a job have a worker on each of the nodes, by index; where one is empty, none comes."""
        held, wanted = work.workers, places(nodes)
        new = [index for index in wanted if index not in held]
        moved = [index for index, worker in held.items() if wanted.get(index, worker.node) != worker.node]
        self._refuse_crowd(work, Counter(nodes[index] for index in (*new, *moved)))
        if work.spec.job_id in self.stuck and (new or moved):
            raise ActionRefused(f"job {work.spec.job_id}: its pods are not made")
        work.wish = tuple(nodes)
        self._end(work, [index for index in held if index >= len(nodes)], "stopped")
        self._end(work, moved, "migrated")
        self._begin(work, new)

    def _refuse_crowd(self, work: _Work, wanted: Mapping[str, int]) -> None:
        gpus = work.spec.gpus_per_replica
        for name, workers in wanted.items():
            node = self.nodes.get(name)
            free = max(0, node.usable_gpus - self.used(name)) if node else 0
            if node is None or node.pool != work.spec.pool or free < workers * gpus:
                raise ActionRefused(
                    f"job {work.spec.job_id}: needs {workers * gpus} more GPUs on node {name}, {free} free"
                )

    # ---- workers

    def _begin(self, work: _Work, indices: Sequence[int]) -> None:
        if not indices:
            return
        now_s, job_id = self._around.now_s, work.spec.job_id
        for index in indices:
            held = Held(node=work.wish[index], gpus=work.spec.gpus_per_replica, since_s=now_s)
            work.workers[index] = held
            self._around.later(self._around.draw(self._pace.start_s), self._started, work, index, held)
        self._go_on(work)
        started = {index: work.workers[index].node for index in indices}
        self._tell(work.spec.pool, WorkerStarted(job_id=job_id, workers=started), f"begin {job_id} {started}")

    def _started(self, work: _Work, index: int, held: Held) -> None:
        if work.workers.get(index) is held and held.state == "starting":
            held.state = "running"
            self._go_on(work)

    def _end(self, work: _Work, indices: Sequence[int], cause: ExitCause) -> None:
        """Let workers go, which takes a while."""
        for index in indices:
            held = work.workers[index]
            if held.state != "ending":
                held.state, held.cause = "ending", cause
                self._around.later(self._around.draw(self._pace.end_s), self._ended, work, index, held)
        if indices:
            self._go_on(work)

    def _ended(self, work: _Work, index: int, held: Held) -> None:
        if work.workers.get(index) is not held:
            return
        self._gone(work, [index], held.cause)
        # A worker that moves, or whose end was taken back, comes again where there is room by now; else the gap shows.
        node = self.nodes.get(work.wish[index]) if index < len(work.wish) else None
        is_free = node is not None and node.usable_gpus - self.used(node.name) >= held.gpus
        if is_free and work.spec.job_id not in self.stuck:
            self._begin(work, [index])

    def _gone(self, work: _Work, indices: Sequence[int], cause: ExitCause) -> None:
        for index in indices:
            del work.workers[index]
        job_id = work.spec.job_id
        self._go_on(work, falls_back=cause in ("failed", "node_lost"))
        fact = WorkerExited(job_id=job_id, workers=tuple(indices), cause=cause)
        self._tell(work.spec.pool, fact, f"gone {job_id} {list(indices)} {cause}")

    # ---- training

    def _go_on(self, work: _Work, *, falls_back: bool = False) -> None:
        held, training = work.workers, work.training
        is_whole = len(held) == len(work.wish) and all(worker.state == "running" for worker in held.values())
        workers = len(held) if is_whole and work.spec.job_id not in self.ended else 0
        work.is_disturbed = True
        training.go_on(workers, self._around.now_s, falls_back=falls_back)
        self._await_epoch(work)

    def _await_epoch(self, work: _Work) -> None:
        if work.training.workers:
            self._around.later(work.training.left_s, self._epoch, work, work.training.turn)

    def _epoch(self, work: _Work, turn: int) -> None:
        training, job_id = work.training, work.spec.job_id
        if training.turn != turn or job_id in self.ended:
            return
        epoch_s = None if work.is_disturbed else training.left_s
        training.end_epoch(self._around.now_s)
        work.is_disturbed = False
        self._around.trained(job_id, training.done, training.workers, epoch_s)
        if training.is_done:
            self._finish(work, JobCompleted(job_id=job_id), "finished")
        else:
            self._await_epoch(work)

    def _finish(self, work: _Work, end: JobCompleted | JobFailed, cause: ExitCause) -> None:
        job_id = work.spec.job_id
        self.ended[job_id] = end
        work.wish = ()
        for held in work.workers.values():
            held.state = "ending"
        self._tell(work.spec.pool, end, f"end {job_id} {type(end).__name__}")
        if work.workers:
            self._around.later(self._around.draw(self._pace.end_s) / 10, self._leave, work, cause)
        self._go_on(work)

    def _leave(self, work: _Work, cause: ExitCause) -> None:
        if work.workers:
            self._gone(work, sorted(work.workers), cause)

    # ---- what goes wrong

    def kill_worker(self, job_id: str, index: int) -> None:
        """Let a worker die."""
        work = self._work.get(job_id)
        if work is not None and index in work.workers and job_id not in self.ended:
            self._gone(work, [index], "failed")

    def fail_job(self, job_id: str) -> None:
        """Let a job at work fail for good."""
        work = self._work.get(job_id)
        if work is not None and work.workers and job_id not in self.ended:
            self._finish(work, JobFailed(job_id=job_id, reason=Said(text="its program failed")), "failed")

    def finish_job(self, job_id: str) -> None:
        """Let a job at work end well, here and now."""
        work = self._work.get(job_id)
        if work is not None and work.workers and job_id not in self.ended:
            self._finish(work, JobCompleted(job_id=job_id), "finished")

    def change_node(self, name: str, *, is_lost: bool = True, **fields: Any) -> None:
        """Let a node be different; the workers on one that is not ready are gone, unless it is only not heard."""
        before = self.nodes.get(name)
        if before is None or (node := replace(before, **fields)) == before:
            return
        self.nodes[name] = node
        self._tell(node.pool, NodeChanged(node=node), f"node {name} {fields}")
        if is_lost and not node.is_ready:
            self._lose_workers(name)

    def remove_node(self, name: str) -> None:
        """Let a node be gone, with all workers on it."""
        if (node := self.nodes.pop(name, None)) is not None:
            self._tell(node.pool, NodeLeft(name=name, pool=node.pool, how="deleted"), f"node {name} left")
            self._lose_workers(name)

    def add_node(self, node: Node) -> None:
        """Let a node come."""
        if node.name not in self.nodes:
            self.nodes[node.name] = node
            self._tell(node.pool, NodeJoined(node=node), f"node {node.name} joined")

    def _lose_workers(self, node: str) -> None:
        for work in self._work.values():
            lost = [index for index, held in work.workers.items() if held.node == node]
            if lost:
                self._gone(work, sorted(lost), "node_lost")

    # ---- inside

    def _look(self, pool: str) -> Observed:
        work = {job_id: each for job_id, each in self._work.items() if each.workers and each.spec.pool == pool}
        mine = {job_id for job_id, each in self._work.items() if each.spec.pool == pool}
        return Observed(
            nodes={name: node for name, node in self.nodes.items() if node.pool == pool},
            workers={
                job_id: {index: each.workers[index].node for index in sorted(each.workers)}
                for job_id, each in work.items()
            },
            gpus_per_replica={job_id: each.spec.gpus_per_replica for job_id, each in work.items()},
            ended={job_id: end for job_id, end in self.ended.items() if job_id in mine},
        )

    def _tell(self, pool: str, fact: Observation, what: str) -> None:
        kept = self._sights.setdefault(pool, [])
        kept.append((self._around.now_s, self._look(pool)))
        del kept[:-_KEPT]
        self._around.changed(what)
        for told in self.listeners:
            told(pool, fact)

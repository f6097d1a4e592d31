"""Plans against the log they rest on, read without any of voda's own projections.

Rules: a plan holds live jobs only, each at min..max replicas on nodes of its pool, and never more on a node than the
node had at the position that the plan is based on.
"""

from bisect import bisect_right
from collections import Counter
from typing import Generic, TypeVar

from msgspec.structs import replace

from tests.dst.invariants.broken import Broken
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.envelope import Event
from voda.events.types import (
    JobCanceled,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobSubmitted,
    NodeChanged,
    NodeDrainRequested,
    NodeJoined,
    NodeLeft,
    NodeUndrainRequested,
    PlanAdopted,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.jobs.requests import respecified

T = TypeVar("T")


class Past(Generic[T]):
    """What something was in the log, from which position on."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._values: list[T] = []

    @property
    def now(self) -> T:
        """Return what it is at the log's end."""
        return self._values[-1]

    def note(self, position: int, value: T) -> None:
        """Take in what it is from a position on."""
        self._positions.append(position)
        self._values.append(value)

    def at(self, position: int) -> T | None:
        """Return what it was at the position; None before it was anything."""
        found = bisect_right(self._positions, position)
        return self._values[found - 1] if found else None


class Plans:
    """Reads the log as it grows."""

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        """Job id -> position of its end."""
        self.specs: dict[str, JobSpec] = {}
        """Job id -> what is wished by now, of all jobs ever submitted."""
        self.placements: dict[str, dict[str, tuple[str, ...]]] = {}
        """Pool -> the plan in force."""
        self._past_specs: dict[str, Past[JobSpec]] = {}
        self.nodes: dict[str, Past[Node | None]] = {}
        """As plans have to see them: those that voda drains are draining."""
        self._shown: dict[str, Node] = {}
        """As the cluster shows them."""
        self._drained: set[str] = set()
        self._past_workers: dict[str, Past[dict[int, str]]] = {}
        """Job id -> index -> node of its workers."""
        self.workers: dict[str, set[int]] = {}
        """Job id -> those of its workers that hold GPUs."""
        self._numbers: dict[str, int] = {}
        self._based_on: dict[str, int] = {}

    def see(self, event: Event) -> None:
        """Take in the next event.

        Raises:
            Broken: it is a plan that its own past does not allow.
        """
        self._note_workers(event)
        match event.data:
            case JobSubmitted(spec=spec):
                if event.version != 1:
                    raise Broken("once", f"job {spec.job_id} is submitted as event {event.version} of its stream")
                self._wish(event.position, spec)
            case JobChanged(job_id=job_id) if job_id in self.specs and job_id not in self.ends:
                self._wish(event.position, respecified(self.specs[job_id], event.data))
            case JobCompleted() | JobFailed() | JobCanceled():
                self.ends.setdefault(event.data.job_id, event.position)
            case NodeJoined(node=node) | NodeChanged(node=node):
                self._note_node(event.position, node)
            case NodeDrainRequested(name=name) | NodeUndrainRequested(name=name):
                self._note_drain(event.position, name, is_drained=isinstance(event.data, NodeDrainRequested))
            case WorkerStarted(job_id=job_id, workers=workers) if not self._is_afterwards(event.data):
                self.workers.setdefault(job_id, set()).update(workers)
            case WorkerExited(job_id=job_id, workers=gone):
                self.workers.setdefault(job_id, set()).difference_update(gone)
            case NodeLeft(name=name):
                self._drained.discard(name)
                self._shown.pop(name, None)
                self.nodes.setdefault(name, Past()).note(event.position, None)
            case PlanAdopted():
                self._adopt(event, event.data)

    def _note_node(self, position: int, node: Node) -> None:
        self._shown[node.name] = node
        drained = replace(node, is_draining=True) if node.name in self._drained else node
        self.nodes.setdefault(node.name, Past()).note(position, drained)

    def _note_drain(self, position: int, name: str, *, is_drained: bool) -> None:
        if (node := self._shown.get(name)) is not None:
            (self._drained.add if is_drained else self._drained.discard)(name)
            self._note_node(position, node)

    def spec_at(self, job_id: str, position: int) -> JobSpec | None:
        """Return what was wished of a job at a position; None before it was submitted."""
        past = self._past_specs.get(job_id)
        return past.at(position) if past else None

    def workers_at(self, job_id: str, position: int) -> dict[int, str]:
        """Return index -> node of the workers that a job had at a position."""
        past = self._past_workers.get(job_id)
        return (past.at(position) if past else None) or {}

    def _note_workers(self, event: Event) -> None:
        fact = event.data
        if not isinstance(fact, WorkerStarted | WorkerExited) or self._is_afterwards(fact):
            return
        past = self._past_workers.setdefault(fact.job_id, Past())
        before = past.at(event.position) or {}
        gone = fact.workers if isinstance(fact, WorkerExited) else ()
        come = fact.workers if isinstance(fact, WorkerStarted) else {}
        past.note(event.position, {index: node for index, node in before.items() if index not in gone} | dict(come))

    def _is_afterwards(self, fact: WorkerStarted | WorkerExited) -> bool:
        """Say whether it is told late of a job that went with its workers: that is of no consequence."""
        return isinstance(fact, WorkerStarted) and fact.job_id in self.ends and not self.workers.get(fact.job_id)

    def _wish(self, position: int, spec: JobSpec) -> None:
        self.specs[spec.job_id] = spec
        self._past_specs.setdefault(spec.job_id, Past()).note(position, spec)

    def _adopt(self, event: Event, plan: PlanAdopted) -> None:
        which = f"plan {plan.number} of pool {plan.pool}"
        if plan.number != (expected := self._numbers.get(plan.pool, 0) + 1):
            raise Broken("plans", f"{which} follows plan {expected - 1}")
        if not self._based_on.get(plan.pool, 0) <= plan.based_on < event.position:
            raise Broken("plans", f"{which} at position {event.position} is based on position {plan.based_on}")
        self._numbers[plan.pool], self._based_on[plan.pool] = plan.number, plan.based_on
        placement = self.placements.setdefault(plan.pool, {})
        for job_id in plan.released:
            placement.pop(job_id, None)
        placement.update(plan.placed)
        used: Counter[str] = Counter()
        for job_id, nodes in placement.items():
            spec = self._live(which, job_id, plan.based_on)
            if not spec.min_replicas <= len(nodes) <= spec.max_replicas:
                bounds = f"{spec.min_replicas}..{spec.max_replicas}"
                raise Broken("bounds", f"{which} gives job {job_id} {len(nodes)} replicas, expected 0 or {bounds}")
            if spec.pool != plan.pool:
                raise Broken("pools", f"{which} holds job {job_id} of pool {spec.pool}")
            for index, node in enumerate(nodes):
                used[node] += spec.gpus_per_replica
                self._refuse_newcomer(which, plan, job_id, index, node)
        for name, gpus in used.items():
            self._refuse_overfull(which, plan, name, gpus)

    def _live(self, which: str, job_id: str, position: int) -> JobSpec:
        spec = self.spec_at(job_id, position)
        if spec is None:
            raise Broken("plans", f"{which} holds job {job_id}, which was not submitted by position {position}")
        if (end := self.ends.get(job_id)) is not None and end <= position:
            raise Broken("plans", f"{which} holds job {job_id}, which ended at position {end}")
        return spec

    def _refuse_newcomer(self, which: str, plan: PlanAdopted, job_id: str, index: int, name: str) -> None:
        """Refuse a worker on a node that is silent or cordoned, unless it was at work there."""
        past = self.nodes.get(name)
        node = past.at(plan.based_on) if past else None
        if node is None or (node.is_ready and node.is_schedulable):
            return
        if self.workers_at(job_id, plan.based_on).get(index) != name:
            raise Broken("capacity", f"{which} brings worker {index} of job {job_id} to {name}, which takes none")

    def _refuse_overfull(self, which: str, plan: PlanAdopted, name: str, gpus: int) -> None:
        past = self.nodes.get(name)
        node = past.at(plan.based_on) if past else None
        if node is None or node.pool != plan.pool:
            raise Broken("capacity", f"{which} uses node {name}, which was not in the pool at {plan.based_on}")
        # A node that is silent or cordoned keeps the workers it has.
        usable = 0 if node.is_draining else node.own_gpus
        if gpus > usable:
            raise Broken("capacity", f"{which} uses {gpus} GPUs of node {name}, which has {usable} usable")

"""Drives one group's operations: each is one call of the functions that the planner calls.

A pod of HiveD is a worker of a gang. `schedule` decides and adopts the decision, `allocate` starts the worker.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tests.conformance.hived.vectors import Answer, Operation, PodSpec
from tests.conformance.hived.wording import REFUSAL_CODES, WAIT_CODES, bound, request_of
from voda.cells.adoption import adopt, start
from voda.cells.book import CellBook, open_book
from voda.cells.decisions import GangPreempts, GangStarts, GangWaits
from voda.cells.gangs import GangPlacement, GangRequest
from voda.cells.health import set_node_bad, set_node_healthy
from voda.cells.preemption import end_worker, stop_waiting
from voda.cells.requests import RequestRefused
from voda.cells.scheduling import Conditions, decide
from voda.cells.structure.quotas import build_quotas
from voda.cells.structure.topology import Topology, build_topology
from voda.domain.cells import read_specification

_OK: Final[Answer] = {"kind": "ok"}


class _Worker(NamedTuple):
    """A pod that was told where to go."""

    request: GangRequest
    placement: GangPlacement
    slot: int


@dataclass
class Driver:
    """A book of cells and the pods that use it."""

    book: CellBook
    configs: Any
    """Name -> document."""
    answered: dict[str, _Worker] = field(default_factory=dict)
    """Pod -> its last answer that let it start."""
    running: dict[str, _Worker] = field(default_factory=dict)
    requests: dict[str, GangRequest] = field(default_factory=dict)

    def perform(self, operation: Operation) -> Answer:
        """Perform an operation and return the answer in HiveD's words."""
        match operation.op:
            case "schedule":
                return self._schedule(operation, operation.spec or PodSpec())
            case "allocate":
                self._allocate(operation.pod, self.answered[operation.pod])
            case "delete_allocated":
                worker = self.running.pop(operation.pod)
                end_worker(self.book, worker.request.name, worker.slot)
            case "delete_unallocated":
                stop_waiting(self.book, self.requests[operation.pod].name, operation.pod)
            case "set_bad_node":
                set_node_bad(self.book, operation.node)
            case "set_healthy_node":
                set_node_healthy(self.book, operation.node)
            case "reconfigure":
                self._reconfigure(operation.config)
        return _OK

    def _schedule(self, operation: Operation, spec: PodSpec) -> Answer:
        request = request_of(operation.pod, spec)
        self.requests[operation.pod] = request
        suggested = None if operation.suggested_nodes == "all" else set(operation.suggested_nodes)
        may_preempt = operation.phase == "preempting"
        try:
            conditions = Conditions(suggested=suggested, may_preempt=may_preempt)
            decision = decide(self.book, request, spec.leaf_cell_number, conditions)
        except RequestRefused as error:
            return {"kind": "error", "errorClass": "user", "code": 400, "reason": REFUSAL_CODES[error.reason]}
        match decision:
            case GangStarts():
                self.answered[operation.pod] = _Worker(request, decision.placement, decision.slot)
                answer = bound(self.book, request, decision.placement[decision.slot])
            case GangPreempts():
                answer = {"kind": "preempt", "victims": sorted(self._workers(decision.victims))}
            case GangWaits():
                answer = {"kind": "wait", "reason": WAIT_CODES[decision.blockers[-1].reason]}
        adopt(self.book, request, decision, operation.pod, may_preempt=may_preempt)
        return answer

    def _workers(self, gangs: Iterable[str]) -> Iterable[str]:
        return (worker for name in gangs for worker in self.book.gangs[name].workers.values())

    def _allocate(self, pod: str, worker: _Worker) -> None:
        self.running[pod] = worker
        start(self.book, worker.request, worker.placement, slot=worker.slot, worker=pod)

    def _reconfigure(self, config: str) -> None:
        """HiveD starts anew: every node is healthy, and each pod comes back with what it was told."""
        self.book = open_healthy(self.configs[config])
        for pod, worker in self.running.items():
            self._allocate(pod, worker)


def driver(configs: Any, config: str, *, nodes_start_bad: bool) -> Driver:
    """Return a driver of a configuration; every node starts bad, as in HiveD."""
    document = configs[config]
    return Driver(open_bad(document) if nodes_start_bad else open_healthy(document), configs)


def open_healthy(document: Any) -> CellBook:
    """Return the book after every node was reported."""
    book = open_bad(document)
    for node in _nodes(book.topology):
        set_node_healthy(book, node)
    return book


def open_bad(document: Any) -> CellBook:
    """Return the book before any node was reported."""
    spec = read_specification(document)
    # The recorded runs searched chains in this order; HiveD's own is random.
    order = sorted({cell.cell_type for cell in spec.physical_cluster.physical_cells}, reverse=True)
    topology = build_topology(spec.physical_cluster, search_order=order)
    book = open_book(topology, build_quotas(spec.virtual_clusters, topology))
    for node in _nodes(topology):
        set_node_bad(book, node)
    return book


def _nodes(topology: Topology) -> Iterable[str]:
    tops = (cell for cell, parent in enumerate(topology.trees.parent) if parent < 0)
    return dict.fromkeys(node for cell in tops for node in topology.nodes[cell])

"""Decides in cells: the guaranteed part of each virtual cluster, then idle cells for whoever gains by them."""

from collections.abc import Mapping, Set

from msgspec.structs import replace

from voda.domain.cells import CellsSpec
from voda.domain.node import Node
from voda.domain.plugins import first_known
from voda.domain.reasons.outcomes import Reason
from voda.domain.state import ClusterState
from voda.planner.candidates import Candidates, Placed
from voda.planner.feasibility import feasible_view
from voda.planner.virtual_clusters.cell_draft import CellDraft, JobCells, numbered
from voda.planner.virtual_clusters.cell_reasons import cell_reasons
from voda.planner.virtual_clusters.former_workers import KeptWorkers
from voda.planner.virtual_clusters.guaranteed import place_guaranteed
from voda.planner.virtual_clusters.opportunistic import place_opportunistic
from voda.planner.virtual_clusters.recovery import recover
from voda.planner.virtual_clusters.unused_book import unused_book
from voda.policies import POLICIES, Policy


class CellPlanner:
    """Decides on pools that have virtual clusters (`decide` calls it); for one thread at a time.

    It keeps of each pool what its last decision was made of, which spares time: decisions are the same without it.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[CellsSpec, list[Node], KeptWorkers]] = {}
        """Pool -> its cells, its nodes, and what is kept of its workers for as long as these stay."""

    def __call__(self, candidates: Candidates, policy: Policy, now: float) -> Placed:
        """Return what is decided; the policy is the pool's.

        It shares the idle cells, and the quotas of virtual clusters that name none of their own.
        """
        view, impossible = feasible_view(candidates.view)
        draft = recover(view, candidates.last, self.kept_workers(view))
        draft.steady = candidates.steady
        placed = _decide(draft, policy, now)
        return replace(placed, reasons={**placed.reasons, **impossible}, left_out=impossible)

    def kept_workers(self, view: ClusterState) -> KeptWorkers:
        """Return what is kept of the workers of a pool, for its cells and nodes as they are in this view."""
        assert view.cells is not None, "the pool has virtual clusters"
        last, there = self._kept.get(view.pool), list(view.nodes.values())
        # Nearly always these are the very objects, which are compared at once.
        if last is not None and last[0] is view.cells and last[1] == there:
            return last[2]
        kept = KeptWorkers(unused_book(view.cells, there))
        self._kept[view.pool] = view.cells, there, kept
        return kept


def _decide(draft: CellDraft, policy: Policy, now: float) -> Placed:
    assert draft.view.cells is not None, "the pool has virtual clusters"
    policies = {name: spec.policy for name, spec in draft.view.cells.virtual_clusters.items() if spec.policy}

    def policy_of(cluster: str) -> Policy:
        own = policies.get(cluster)
        return policy if own is None else first_known(POLICIES.choose, own, policy.name)

    steady = draft.steady
    guaranteed = place_guaranteed(draft, policy_of, now)
    _leave_closed_nodes(draft)
    within = {**guaranteed.targets, **dict.fromkeys(steady, 1)} if steady else guaranteed.targets
    opportunistic = place_opportunistic(draft, policy, now, within)
    _leave_closed_nodes(draft)
    return _result(draft, cell_reasons(draft, guaranteed, opportunistic, policy.name))


def _leave_closed_nodes(draft: CellDraft) -> None:
    """Take away workers on closed nodes whose index changes: under another one they would have to start there anew."""
    closed = draft.view.closed_nodes.keys()
    for job_id, members in list(draft.workers.items() if closed else ()):
        if not any(worker.cells.node in closed for worker in members):
            continue
        _drop_moved(draft, job_id, closed)
        if draft.size(job_id) < min(len(members), draft.view.jobs[job_id].spec.min_replicas):
            for worker in draft.workers[job_id]:
                draft.drop(worker)


def _drop_moved(draft: CellDraft, job_id: str, closed: Set[str]) -> None:
    """Drop a job's workers on closed nodes whose index changes; each that goes may change the index of others."""
    while moved := [
        worker
        for index, worker in enumerate(numbered(draft, job_id))
        if worker.cells.node in closed and worker.index != index
    ]:
        draft.drop(moved[-1])


def _result(draft: CellDraft, reasons: Mapping[str, Reason]) -> Placed:
    placement: dict[str, tuple[str, ...]] = {}
    guaranteed: dict[str, tuple[str, ...]] = {}
    devices: dict[str, tuple[tuple[int, ...], ...]] = {}
    for job_id, members in draft.workers.items():
        if members:
            cells = draft.unchanged.get(job_id) or _cells(draft, job_id)
            placement[job_id], devices[job_id] = cells.nodes, cells.devices
            if cells.quotas:
                guaranteed[job_id] = cells.quotas
    return Placed(placement=placement, guaranteed=guaranteed, devices=devices, reasons=reasons)


def _cells(draft: CellDraft, job_id: str) -> JobCells:
    workers, guaranteed = numbered(draft, job_id), len(draft.guaranteed(job_id))
    return JobCells(
        nodes=tuple([worker.cells.node for worker in workers]),
        devices=tuple([worker.cells.devices for worker in workers]),
        quotas=tuple([worker.cells.quota for worker in workers[:guaranteed]]),
    )

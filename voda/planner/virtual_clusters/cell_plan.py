"""Decides in cells: the guaranteed part of each virtual cluster, then idle cells for whoever gains by them."""

from collections.abc import Mapping, Set

from msgspec import Struct

from voda.domain.plan import Devices, Placement, Quotas
from voda.domain.plugins import first_known
from voda.domain.reasons.outcomes import Reason
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.cell_draft import CellDraft, JobCells, numbered
from voda.planner.virtual_clusters.cell_reasons import cell_reasons
from voda.planner.virtual_clusters.guaranteed import place_guaranteed
from voda.planner.virtual_clusters.opportunistic import place_opportunistic
from voda.planner.virtual_clusters.recovery import recover
from voda.policies import POLICIES, Policy


class Placed(Struct, frozen=True, kw_only=True):
    """Where the workers of every job are, what guarantees them, and why."""

    placement: Placement
    guaranteed: Quotas = {}
    devices: Devices = {}
    reasons: Mapping[str, Reason]
    left_out: Mapping[str, Reason] = {}
    """Jobs for which the nodes have no room -> why."""


def decide_in_cells(
    view: ClusterState, policy: Policy, now: float, *, last: Set[str] = frozenset(), steady: Set[str] = frozenset()
) -> Placed:
    """Return the plan of a pool that has virtual clusters.

    Args:
        view: of jobs that may have workers; closed nodes have room for the workers there alone.
        policy: the pool's; it shares the idle cells, and the quotas of virtual clusters that name none of their own.
        last: jobs that others go before for a while; they have no guarantee meanwhile.
        steady: jobs of one worker that leave an idle cell for a guarantee alone, and for no other work.
    """
    assert view.cells is not None, "the pool has virtual clusters"
    policies = {name: spec.policy for name, spec in view.cells.virtual_clusters.items() if spec.policy}

    def policy_of(cluster: str) -> Policy:
        own = policies.get(cluster)
        return policy if own is None else first_known(POLICIES.choose, own, policy.name)

    draft = recover(view, last)
    draft.steady = steady
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

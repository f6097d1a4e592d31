"""Decides in cells: the guaranteed part of each virtual cluster, then idle cells for whoever gains by them."""

from collections.abc import Mapping, Set

from msgspec.structs import replace

from voda.domain.plugins import first_known
from voda.domain.reasons.outcomes import Reason, also
from voda.domain.state import ClusterState
from voda.planner.candidates import Candidates, Placed
from voda.planner.displacement import displaced_in_vain, taken_sizes
from voda.planner.feasibility import feasible_view, with_caps
from voda.planner.virtual_clusters.cell_draft import CellDraft, numbered
from voda.planner.virtual_clusters.cell_reasons import cell_reasons
from voda.planner.virtual_clusters.fixed_gangs import with_fixed_gangs
from voda.planner.virtual_clusters.guaranteed import place_guaranteed
from voda.planner.virtual_clusters.opportunistic import place_opportunistic
from voda.planner.virtual_clusters.plan_book import PlanBook
from voda.planner.virtual_clusters.pool_jobs import JobCells
from voda.planner.virtual_clusters.recovery import recover
from voda.policies import POLICIES, Policy


class CellPlanner:
    """Decides on pools that have virtual clusters (`decide` calls it); for one thread at a time.

    It has the plan in force of each pool as a book, which follows the plans that are adopted.
    """

    def __init__(self) -> None:
        self._plans: dict[str, PlanBook] = {}
        """By pool."""

    def __call__(self, candidates: Candidates, policy: Policy, now: float) -> Placed:
        """Return what is decided; the policy is the pool's.

        It shares the idle cells, and the quotas of virtual clusters that name none of their own.
        """
        view, impossible = feasible_view(with_fixed_gangs(candidates.view, candidates.fixed))
        vain = displaced_in_vain(view)
        taken = taken_sizes(view, vain.keys())
        draft = self.recover(with_caps(view, taken), {*candidates.last, *(vain.keys() - taken.keys())})
        draft.steady = candidates.steady
        placed = _decide(draft, policy, now)
        bounded = {job_id: also(placed.reasons[job_id], why) for job_id, why in vain.items()}
        return replace(placed, reasons={**placed.reasons, **bounded, **impossible}, left_out=impossible)

    def recover(self, view: ClusterState, without_guarantee: Set[str] = frozenset()) -> CellDraft:
        """Return the plan in force as a draft; the arguments are as for `recovery.recover`."""
        if (planned := self._plans.get(view.pool)) is None:
            planned = self._plans[view.pool] = PlanBook.of(view)
        return recover(view, without_guarantee, planned)


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
        spec = draft.view.jobs[job_id].spec
        if (size := spec.size_within(draft.size(job_id))) or len(members) >= spec.min_replicas:
            for worker in numbered(draft, job_id)[size:]:
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
    part = draft.jobs.kept.copy()
    for job_id in draft.touched:
        part.drop(job_id)
        if draft.size(job_id):
            part.put(job_id, _cells(draft, job_id))
    return Placed(placement=part.placement, guaranteed=part.quotas, devices=part.devices, reasons=reasons)


def _cells(draft: CellDraft, job_id: str) -> JobCells:
    workers, guaranteed = numbered(draft, job_id), draft.guaranteed(job_id)
    names, roots = draft.book.quotas.root_names, draft.book.quotas.root
    gangs = [draft.book.gangs[worker.name] for worker in workers[: len(guaranteed)]]
    return JobCells(
        nodes=tuple([worker.cells.node for worker in workers]),
        devices=tuple([worker.cells.devices for worker in workers]),
        quotas=tuple([names[roots[next(iter(gang.virtual.values()))]] for gang in gangs]),
    )
